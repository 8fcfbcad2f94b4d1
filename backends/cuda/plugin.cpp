// SPDX-License-Identifier: Apache-2.0
// The CUDA backend: the table of functions and kernels that the host sees.
#include <cstring>

#include "host/ahead.h"
#include "host/kernels.h"
#include "host/options.h"
#include "range.h"
#include "switchyard/extensions.h"
#include "switchyard/sdk/device_backend.hpp"

namespace gpu {
namespace {

constexpr swy_cancel kCancel = {sizeof(swy_cancel), 0, cancel};
constexpr swy_sampling kLimits = {sizeof(swy_sampling), 0, 0, 0, kMostCandidates, 0};

struct Cuda {
  using Device = swy_device;
  using Kernel = gpu::Kernel;

  static constexpr swy::KernelList<Kernel> kKernels[] = {embedding_kernels,
                                                         rms_norm_kernels,
                                                         head_split_kernels,
                                                         linear_kernels,
                                                         linear_boxes_kernels,
                                                         linear_bytes_kernels,
                                                         linear_few_kernels,
                                                         linear_grouped_kernels,
                                                         linear_strips_kernels,
                                                         linear_tiles_kernels,
                                                         mlp_kernels,
                                                         attention_kernels,
                                                         attention_tiles_kernels,
                                                         attention_decode_kernels,
                                                         attention_prompt_kernels,
                                                         attention_wgmma_kernels,
                                                         rope_kernels,
                                                         kv_append_kernels,
                                                         gated_delta_kernels,
                                                         gated_delta_batch_kernels,
                                                         gated_delta_step_kernels,
                                                         gated_delta_chunks_kernels,
                                                         causal_conv_kernels,
                                                         delta_gates_kernels,
                                                         router_kernels,
                                                         moe_kernels,
                                                         moe_boxes_kernels,
                                                         moe_bytes_kernels,
                                                         moe_grouped_kernels,
                                                         moe_strips_kernels,
                                                         moe_tiles_kernels,
                                                         add_kernels,
                                                         lm_head_kernels,
                                                         lm_head_boxes_kernels,
                                                         lm_head_few_kernels,
                                                         cast_kernels,
                                                         sample_kernels,
                                                         candidates_kernels};
  static constexpr const swy_option* kOptions[] = {&swy::kKvBf16, &gpu::kKvI8, &gpu::kDeltaI16, &gpu::kBytes,
                                                   &gpu::kCard};

  static swy_plugin functions() {
    swy_plugin p{};
    p.device_count = device_count;
    p.device_info = device_info;
    p.device_open = device_open;
    p.device_close = device_close;
    p.buffer_alloc = buffer_alloc;
    p.buffer_free = buffer_free;
    p.buffer_map = buffer_map;
    p.write = write;
    p.read = read;
    p.fill_zero = fill_zero;
    p.list_begin = list_begin;
    p.list_finalize = list_finalize;
    p.list_submit = list_submit;
    p.list_free = list_free;
    p.timeline_create = timeline_create;
    p.timeline_free = timeline_free;
    p.timeline_value = timeline_value;
    p.timeline_wait = timeline_wait;
    return p;
  }

  static swy_status record(swy_list& list, const Kernel& kernel, const swy_op& op, const swy_bindings& bindings,
                           swy_error* error) {
    SWY_CUDA_TRY(use(*list.device, error));
    const Operands operands{op, bindings};
    list.kernel = kernel.name;
    list.begins = true;
    return kernel.record(Recording{list, op, operands, error});
  }

  static const void* extension(const swy_device&, const char* name) {
    if (std::strcmp(name, SWY_EXT_RANGE) == 0) return &ranges();
    if (std::strcmp(name, SWY_EXT_PROFILE) == 0) return &kProfile;
    if (std::strcmp(name, SWY_EXT_CANCEL) == 0) return &kCancel;
    if (std::strcmp(name, SWY_EXT_AHEAD) == 0) return &kAhead;
    return std::strcmp(name, SWY_EXT_SAMPLING) == 0 ? &kLimits : nullptr;
  }
};

}  // namespace

std::vector<swy_kernel> make_kernels(const swy_device& device) {
  std::vector<swy_kernel> kernels = swy::kernel_table<Cuda>();
  for (swy_kernel& k : kernels) {  // how exact results are depends on the states, too
    const bool attends = k.op == SWY_OP_ATTENTION || k.op == SWY_OP_ATTEND || k.op == SWY_OP_KV_APPEND;
    if (attends && device.kv_i8) k.activations = SWY_I8;
    const bool delta = k.op == SWY_OP_GATED_DELTA || k.op == SWY_OP_DELTA_RULE;
    if (delta && device.delta_i16 && k.activations == SWY_F32) k.activations = SWY_F16;
  }
  return kernels;
}

}  // namespace gpu

SWY_DEVICE_BACKEND("cuda", "0.1.0", gpu::Cuda)
