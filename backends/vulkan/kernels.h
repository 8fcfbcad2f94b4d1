// SPDX-License-Identifier: Apache-2.0
// The kernels of this backend, one list per file, and the functions that record them.
#pragma once

#include <span>
#include <type_traits>
#include <vector>

#include "operands.h"
#include "switchyard/sdk/device_kernel.hpp"
#include "switchyard/sdk/error.hpp"

namespace gpu {

constexpr uint32_t kMostCandidates = 1024;  // kMost of sample_candidates.comp

constexpr uint32_t kThreads = 256;  // of every workgroup, unless its shader says otherwise

// One operation being recorded.
struct Recording {
  swy_list& list;
  const swy_op& op;
  const Operands& operands;
  const char* kernel;
  swy_error* error;

  const swy_device& device() const { return *list.device; }
  const swy_bucket& bucket() const { return list.bucket; }
  uint64_t step() const { return list.step; }
  template <class Attrs>
  const Attrs& attrs() const {
    return *static_cast<const Attrs*>(op.attrs);
  }
};

// swy_kernel.weight_dtypes of kernels that read every canonical encoding.
constexpr uint32_t kMatrices = SWY_DTYPE_BIT(SWY_F32) | SWY_DTYPE_BIT(SWY_BF16) | SWY_DTYPE_BIT(SWY_I8) |
                               SWY_DTYPE_BIT(SWY_I4) | SWY_DTYPE_BIT(SWY_I4A) | SWY_DTYPE_BIT(SWY_MXFP4);

using Kernel = swy::DeviceKernel<Recording>;
using swy::kAlways, swy::kInvariant, swy::ceil_div, swy::row_bytes, swy::weight_bytes;

std::span<const Kernel> embedding_kernels();
std::span<const Kernel> rms_norm_kernels();
std::span<const Kernel> linear_kernels();
std::span<const Kernel> linear_tiles_kernels();
std::span<const Kernel> gated_delta_kernels();
std::span<const Kernel> gated_delta_chunks_kernels();
std::span<const Kernel> gated_delta_step_kernels();
std::span<const Kernel> router_kernels();
std::span<const Kernel> moe_kernels();
std::span<const Kernel> moe_resident_kernels();
std::span<const Kernel> moe_tiles_kernels();
std::span<const Kernel> mlp_kernels();
std::span<const Kernel> attention_kernels();
std::span<const Kernel> lm_head_kernels();
std::span<const Kernel> sample_kernels();
std::span<const Kernel> add_kernels();
std::span<const Kernel> cast_kernels();
std::span<const Kernel> gather_rows_kernels();
std::span<const Kernel> head_split_kernels();
std::span<const Kernel> rope_kernels();
std::span<const Kernel> kv_append_kernels();
std::span<const Kernel> causal_conv_kernels();
std::span<const Kernel> delta_gates_kernels();

// The table that the host sees.
std::vector<swy_kernel> make_kernels();
// Checks once per physical device whether the sampler's arithmetic gives the required bits.
swy_status check_sampling(swy_device& device, swy_error* error);
// Whether the check was made and passed. [thread-safe]
bool samples(const PhysicalDevice& physical);

// Estimates: bytes at the rate of memory, multiply-adds at a rate that plain kernels reach, and the launches.
inline double cost_of(double bytes, double multiply_adds, double launches = 1) {
  const double memory = bytes / 2.5e6, math = multiply_adds / 6e6;
  return 3.0 * launches + (memory > math ? memory : math);
}

// ---- launching

struct Grid {
  uint32_t x = 1, y = 1, z = 1;
};

// Adds a launch of `shader`. `constants` are its specialization constants in order, `push` its push constants (in
// std430 layout), `reads` and `writes` the activations, workspace and states that it touches.
template <class Push>
swy_status launch(const Recording& r, const Shader& shader, std::initializer_list<uint32_t> constants, Grid grid,
                  const Push& push, std::initializer_list<Span> reads, std::initializer_list<Span> writes) {
  static_assert(std::is_trivially_copyable_v<Push> && sizeof(Push) <= kPushBytes && sizeof(Push) % 4 == 0);
  const Launch l{shader,
                 {constants.begin(), constants.size()},
                 grid.x,
                 grid.y,
                 grid.z,
                 {reads.begin(), reads.size()},
                 {writes.begin(), writes.size()}};
  return add_dispatch(r.list, l, &push, sizeof push, r.kernel, r.error);
}

inline uint32_t at_most(uint32_t n, uint32_t limit) { return n < limit ? n : limit; }

// Assigns parts of the workspace, each aligned to 256 bytes; without a base it only measures.
class Arena {
 public:
  explicit Arena(Span base) : base_(base.address) {}
  Arena() = default;
  Span take(uint64_t bytes) {
    const Span s{base_ + used_, bytes};
    used_ += (bytes + 255) / 256 * 256;
    return s;
  }
  uint64_t used() const { return used_; }

 private:
  uint64_t base_ = 0, used_ = 0;
};

}  // namespace gpu
