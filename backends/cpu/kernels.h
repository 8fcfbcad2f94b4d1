// SPDX-License-Identifier: Apache-2.0
// The kernels of this backend, one list per file, and what they share. The "team" are the threads that the host lends
// (swy_executor); a "member" is one of them.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>

#include "multiply.h"
#include "switchyard/sdk/kernel.hpp"
#include "switchyard/weights.h"

namespace cpu {

std::span<const swy::HostKernel> embedding_kernels();
std::span<const swy::HostKernel> rms_norm_kernels();
std::span<const swy::HostKernel> linear_kernels();
std::span<const swy::HostKernel> attention_kernels();
std::span<const swy::HostKernel> head_split_kernels();
std::span<const swy::HostKernel> rope_kernels();
std::span<const swy::HostKernel> kv_append_kernels();
std::span<const swy::HostKernel> gated_delta_kernels();
std::span<const swy::HostKernel> causal_conv_kernels();
std::span<const swy::HostKernel> delta_gates_kernels();
std::span<const swy::HostKernel> moe_kernels();
std::span<const swy::HostKernel> router_kernels();
std::span<const swy::HostKernel> mlp_kernels();
std::span<const swy::HostKernel> add_kernels();
std::span<const swy::HostKernel> lm_head_kernels();
std::span<const swy::HostKernel> cast_kernels();
std::span<const swy::HostKernel> sample_kernels();
std::span<const swy::HostKernel> lm_head_sample_kernels();

// How a matrix product is computed.
enum class Mode {
  vector,      // 8-bit activations, vector instructions; plain weights in fp32
  tiles_int8,  // the same, with the same bits, on AMX tiles
  tiles_wide,  // AMX tiles with one scale per wide block (rows.h) of activations and weights; bf16 weights as
               // tiles_bf16
  tiles_bf16,  // bf16 weights on AMX tiles; activations keep 16 bits of mantissa
  exact,       // fp32 activations
};
// The encodings that every mode multiplies (panels.h).
inline constexpr uint32_t kMatrices = SWY_DTYPE_BIT(SWY_F32) | SWY_DTYPE_BIT(SWY_BF16) | SWY_DTYPE_BIT(SWY_I8) |
                                      SWY_DTYPE_BIT(SWY_I4) | SWY_DTYPE_BIT(SWY_I4A) | SWY_DTYPE_BIT(SWY_MXFP4);
constexpr bool on_tiles(Mode mode) { return mode != Mode::vector && mode != Mode::exact; }
// Whether a row's bits depend only on that row. Not so for the other tiles, which round or add in another way than
// vectors.
constexpr uint32_t flags_of(Mode mode) {
  return SWY_KERNEL_CAPTURE_SAFE | SWY_KERNEL_DETERMINISTIC |
         (mode == Mode::tiles_wide || mode == Mode::tiles_bf16 ? 0u : uint32_t{SWY_KERNEL_BATCH_INVARIANT});
}
constexpr swy_dtype activations_of(Mode mode) {
  return mode == Mode::exact ? SWY_F32 : mode == Mode::tiles_bf16 ? SWY_BF16 : SWY_I8;
}
// SWY_OK, or why kernels of this mode cannot be used: the option `exact`, the instruction set, the weights' encodings.
// `quantized`: whether any weight is quantized.
swy_status mode_usable(Mode mode, bool quantized, swy_error* error);

// Flags of kernels that write each element of output 0 after they read that element of input 0.
inline constexpr uint32_t kElementwise =
    SWY_KERNEL_CAPTURE_SAFE | SWY_KERNEL_DETERMINISTIC | SWY_KERNEL_BATCH_INVARIANT | SWY_KERNEL_IN_PLACE;
// Whether one member writes all outputs of an operation sooner than a team meets at a barrier.
bool small_work(const swy_op& op, const swy_bucket& bucket);

// Estimates, in microseconds, at a rate that any machine of today reaches.
inline double cost_of(double multiply_adds) { return 1.0 + multiply_adds / 20e3; }
// Every weight element times every row, plus the activations.
double generic_cost(const swy_op& op, const swy_bucket& bucket);
// Products of `rows` rows; with few rows tiles are mostly empty.
double product_cost(Mode mode, double elements, double rows);

// Assigns parts of one workspace, each aligned to 64 bytes; without a base it only measures.
class Arena {
 public:
  explicit Arena(void* base) : base_(static_cast<char*>(base)) {}
  template <class T>
  T* take(uint64_t count) {
    T* p = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += swy_align64(count * sizeof(T));
    return p;
  }
  uint64_t used() const { return used_; }

 private:
  char* base_;
  uint64_t used_ = 0;
};

// A plain (fp32 or bf16) weight that is not a matrix of a product: norms, gates, convolutions. [first, first + n) into
// `to`, plus `bias`.
void load_plain(const swy_tensor& tensor, const void* data, uint64_t first, uint64_t n, float bias, float* to);

// Such a weight of an operation, if it has it.
class OptionalPlain {
 public:
  OptionalPlain() = default;
  OptionalPlain(const swy::Call& call, swy::OperandName name) {
    const uint32_t place = call.op->revision == 1 ? UINT32_MAX : swy::at(*call.op, name);
    if (place == UINT32_MAX) return;
    tensor_ = call.op->weights[place];
    data_ = call.weights[place];
  }
  explicit operator bool() const { return tensor_ != nullptr; }
  // [first, first + n) into `to`, which is returned; NULL without the weight.
  const float* load(uint64_t first, uint64_t n, float* to) const {
    if (tensor_ == nullptr) return nullptr;
    load_plain(*tensor_, data_, first, n, 0.0f, to);
    return to;
  }

 private:
  const swy_tensor* tensor_ = nullptr;
  const void* data_ = nullptr;
};

}  // namespace cpu
