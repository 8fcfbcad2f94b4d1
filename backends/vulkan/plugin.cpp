// SPDX-License-Identifier: Apache-2.0
// The Vulkan backend: the table of functions and kernels that the host sees.
#include <cstring>

#include "kernels.h"
#include "options.h"
#include "profile.h"
#include "switchyard/extensions.h"

namespace gpu {
namespace {

constexpr double kProcessorPenalty = 1000;  // a driver on the processor is no match for a backend that is made for it
constexpr swy_sampling kLimits = {sizeof(swy_sampling), 0, 0, 0, kMostCandidates, 0};

struct Vulkan {
  using Device = swy_device;
  using Kernel = gpu::Kernel;

  static constexpr swy::KernelList<Kernel> kKernels[] = {
      embedding_kernels,        rms_norm_kernels,    linear_kernels,
      linear_tiles_kernels,     gated_delta_kernels, gated_delta_chunks_kernels,
      gated_delta_step_kernels, router_kernels,      moe_kernels,
      moe_resident_kernels,     moe_tiles_kernels,   mlp_kernels,
      attention_kernels,        lm_head_kernels,     add_kernels,
      sample_kernels,           cast_kernels,        gather_rows_kernels,
      head_split_kernels,       rope_kernels,        kv_append_kernels,
      causal_conv_kernels,      delta_gates_kernels};
  static constexpr const swy_option* kOptions[] = {&swy::kKvBf16, &kCooperative,   &kDot8,     &kImport,
                                                   &kKhrMatrices, &kPipelineCache, &kResident, &kReversed};

  static swy_plugin functions() {
    swy_plugin p{};
    p.device_count = device_count;
    p.device_info = device_info;
    p.device_open = device_open;
    p.device_close = device_close;
    p.buffer_alloc = buffer_alloc;
    p.buffer_import = buffer_import;
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
    const Operands operands{op, bindings};
    list.begins_operation = true;
    return kernel.record(Recording{list, op, operands, kernel.name, error});
  }

  static const void* extension(const swy_device& device, const char* name) {
    if (std::strcmp(name, SWY_EXT_PROFILE) == 0) return &kProfile;
    return device.exact && std::strcmp(name, SWY_EXT_SAMPLING) == 0 ? &kLimits : nullptr;
  }

  static double cost_factor(const swy_device& device) { return device.features.cpu ? kProcessorPenalty : 1; }
};

}  // namespace

std::vector<swy_kernel> make_kernels() { return swy::kernel_table<Vulkan>(); }

}  // namespace gpu

SWY_DEVICE_BACKEND("vulkan", "0.1.0", gpu::Vulkan)
