// SPDX-License-Identifier: Apache-2.0
// The kernels of this backend, one list per file, and the functions that record them.
#pragma once

#include <cuda_runtime.h>

#include <span>
#include <vector>

#include "list.h"
#include "operands.h"
#include "switchyard/sdk/device_kernel.hpp"
#include "switchyard/sdk/error.hpp"

namespace gpu {

constexpr uint32_t kMostCandidates = 1024;  // of TOP_CANDIDATES

// How much of a multiprocessor's fast memory a kernel wants as shared memory, the rest being cache. Steps of few rows
// (kSplitRows) ask for the most, so that kernels can begin beside each other.
enum class FastMemory { by_rows, cache, shared };

// One operation being recorded.
struct Recording {
  swy_list& list;
  const swy_op& op;
  const Operands& operands;
  swy_error* error;
  FastMemory split = FastMemory::by_rows;

  const swy_device& device() const { return *list.device; }
  const swy_bucket& bucket() const { return list.bucket; }
  // The same for a launch with another split.
  Recording with(FastMemory other) const { return {list, op, operands, error, other}; }
  template <class Attrs>
  const Attrs& attrs() const {
    return *static_cast<const Attrs*>(op.attrs);
  }
};

// swy_kernel.weight_dtypes of kernels that read every canonical encoding.
constexpr uint32_t kMatrices = SWY_DTYPE_BIT(SWY_F32) | SWY_DTYPE_BIT(SWY_BF16) | SWY_DTYPE_BIT(SWY_I8) |
                               SWY_DTYPE_BIT(SWY_I4) | SWY_DTYPE_BIT(SWY_I4A) | SWY_DTYPE_BIT(SWY_MXFP4);

using Kernel = swy::DeviceKernel<Recording, double(const swy_device&, const swy_op&, const swy_bucket&)>;
using swy::kAlways, swy::kInvariant, swy::ceil_div, swy::row_bytes, swy::weight_bytes;

std::span<const Kernel> embedding_kernels();
std::span<const Kernel> rms_norm_kernels();
std::span<const Kernel> head_split_kernels();
std::span<const Kernel> linear_kernels();
std::span<const Kernel> linear_boxes_kernels();
std::span<const Kernel> linear_bytes_kernels();
std::span<const Kernel> linear_few_kernels();
std::span<const Kernel> linear_grouped_kernels();
std::span<const Kernel> linear_strips_kernels();
std::span<const Kernel> linear_tiles_kernels();
std::span<const Kernel> mlp_kernels();
std::span<const Kernel> attention_kernels();
std::span<const Kernel> attention_tiles_kernels();
std::span<const Kernel> attention_decode_kernels();
std::span<const Kernel> attention_prompt_kernels();
std::span<const Kernel> attention_wgmma_kernels();
std::span<const Kernel> rope_kernels();
std::span<const Kernel> kv_append_kernels();
std::span<const Kernel> gated_delta_kernels();
std::span<const Kernel> gated_delta_batch_kernels();
std::span<const Kernel> gated_delta_step_kernels();
std::span<const Kernel> gated_delta_chunks_kernels();
std::span<const Kernel> causal_conv_kernels();
std::span<const Kernel> delta_gates_kernels();
std::span<const Kernel> router_kernels();
std::span<const Kernel> moe_kernels();
std::span<const Kernel> moe_boxes_kernels();
std::span<const Kernel> moe_bytes_kernels();
std::span<const Kernel> moe_grouped_kernels();
std::span<const Kernel> moe_strips_kernels();
std::span<const Kernel> moe_tiles_kernels();
std::span<const Kernel> add_kernels();
std::span<const Kernel> lm_head_kernels();
std::span<const Kernel> lm_head_boxes_kernels();
std::span<const Kernel> lm_head_few_kernels();
std::span<const Kernel> cast_kernels();
std::span<const Kernel> sample_kernels();
std::span<const Kernel> candidates_kernels();

// The table that the host sees, for a device whose options are known.
std::vector<swy_kernel> make_kernels(const swy_device& device);
// Whether the sampler's arithmetic gives the required bits on this device.
swy_status check_sampling(const swy_device& device, swy_error* error);

// Estimates: bytes at the rate of memory, multiply-adds at a rate that plain kernels reach, and the launch.
inline double cost_of(const swy_device& device, double bytes, double multiply_adds, double launches = 1) {
  const double memory = device.rates.bytes(bytes, 3.5e6), math = device.rates.floats(multiply_adds, 8e6);
  return 2.0 * launches + (memory > math ? memory : math);
}

// What kernels state in `supports`.
inline swy_status needs_copy_engine(const swy_device& device, swy_error* error) {
  if (device.features.copy_engine) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH,
                   "needs the copy engine and clusters of blocks (compute capability 9.0 or newer)");
}
inline swy_status needs_wgmma(const swy_device& device, swy_error* error) {
  if (device.features.wgmma) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "needs wgmma (compute capability 9.0 alone)");
}

// Whether boxes (boxes.cuh) come by the copy engine: blocks that request all that they read need much shared memory.
inline bool boxes_by_engine(const swy_device& device) {
  return device.features.copy_engine && device.features.block_memory >= 227 * 1024;
}

// Shared memory of a multiprocessor of Hopper, and the amount that each block takes of it in addition to its kernel's
// request: for kernels that only Hopper has.
constexpr uint32_t kHopperMemory = 228 * 1024, kHopperReserved = 1024;
// More than half of a multiprocessor's memory, less the amount that each block takes in addition: this prevents two
// blocks of a launch on one multiprocessor. Otherwise a multiprocessor without a block of the previous kernel would get
// two, and another one none.
inline uint32_t alone_memory(const swy_device& device) {
  return device.features.processor_memory / 2 - device.features.reserved + 128;
}

// ---- launching

// Steps of so many rows have kernels that begin beside each other; and with up to the first number of rows, the experts
// of each row have blocks of their own.
constexpr uint32_t kBesideRows = 2, kSplitRows = 4;

// Sets a kernel's split. A multiprocessor changes it only when nothing runs there, so a kernel with another split
// cannot begin beside the current one. Loads that are under way need cache: a kernel of few blocks with many loads asks
// for it. Set anew for every list, since lists of other steps may have the same kernel.
inline swy_status set_split(const Recording& r, const void* kernel) {
  const bool shared = r.split == FastMemory::by_rows ? r.bucket().rows <= kSplitRows : r.split == FastMemory::shared;
  return check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                    shared ? cudaSharedmemCarveoutMaxShared : cudaSharedmemCarveoutDefault),
               "dividing cache and shared memory", r.error);
}

// Raises a kernel's limit of shared memory. It is never lowered: lists with more may be replayed later.
inline swy_status allow_shared(const void* kernel, int bytes, swy_error* error) {
  cudaFuncAttributes attributes{};
  cudaError_t e = cudaFuncGetAttributes(&attributes, kernel);
  if (e == cudaSuccess && attributes.maxDynamicSharedSizeBytes < bytes) {
    e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  }
  return check(e, "reserving shared memory", error);
}

// Starts a kernel so that it may begin before the previous one has ended. Each kernel waits itself (depend() in
// device_code.cuh) before it reads the results of others, and before it returns. `cluster`: blocks of a cluster, along
// x.
template <class... Params, class... Args>
swy_status launch_clusters(const Recording& r, void (*kernel)(Params...), uint32_t cluster, dim3 grid, dim3 block,
                           size_t shared_bytes, Args&&... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return SWY_OK;
  if (shared_bytes > 48 * 1024) {
    const swy_status s = allow_shared(reinterpret_cast<const void*>(kernel), static_cast<int>(shared_bytes), r.error);
    if (s != SWY_OK) return s;
  }
  if (const swy_status s = set_split(r, reinterpret_cast<const void*>(kernel)); s != SWY_OK) return s;
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = r.list.capture;
  config.attrs = attributes;
  if (cluster > 1) {
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[config.numAttrs++].val.clusterDim = {cluster, 1, 1};
  }
  if (r.list.started && r.device().features.dependent_launch && r.list.ticks == nullptr) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  r.list.started = true;
  const cudaError_t e = cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
  if (e != cudaSuccess) return check(e, "recording a kernel", r.error);
  return note_launch(r.list, reinterpret_cast<const void*>(kernel), r.error);
}
template <class... Params, class... Args>
swy_status launch(const Recording& r, void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes,
                  Args&&... args) {
  return launch_clusters(r, kernel, 1, grid, block, shared_bytes, static_cast<Args&&>(args)...);
}

// Assigns parts of the workspace, each aligned to 256 bytes; without a base it only measures.
class Arena {
 public:
  explicit Arena(void* base) : base_(static_cast<char*>(base)) {}
  template <class T>
  T* take(uint64_t count) {
    T* p = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += (count * sizeof(T) + 255) / 256 * 256;
    return p;
  }
  uint64_t used() const { return used_; }

 private:
  char* base_;
  uint64_t used_ = 0;
};

}  // namespace gpu

// Returns from the calling function if the status of an expression is not SWY_OK.
#define SWY_CUDA_TRY(expression)                                                    \
  do {                                                                              \
    if (const swy_status status_ = (expression); status_ != SWY_OK) return status_; \
  } while (false)
