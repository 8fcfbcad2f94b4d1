// The Vulkan backend: the table of functions and kernels that the host sees.
#include "switchyard/plugin.h"

#include <cstring>

#include "kernels.h"
#include "profile.h"
#include "switchyard/extensions.h"
#include "switchyard/sdk/error.hpp"

namespace gpu {
namespace {

constexpr double kProcessorPenalty = 1000;  // a driver on the processor is no match for a backend that is made for it

const Kernel& kernel_of(const swy_kernel* k) { return *static_cast<const Kernel*>(k->user); }

swy_status supports(swy_device* device, const swy_kernel* self, const swy_op* op, const swy_bucket* bucket,
                    swy_error* error) {
  const auto f = kernel_of(self).supports;
  return f == nullptr ? SWY_OK : f(*device, *op, *bucket, error);
}
swy_status cost(swy_device* device, const swy_kernel* self, const swy_op* op, const swy_bucket* bucket,
                double* microseconds, swy_error*) {
  *microseconds = kernel_of(self).cost(*op, *bucket) * (device->features.cpu ? kProcessorPenalty : 1);
  return SWY_OK;
}
swy_status prepare(swy_device* device, const swy_kernel* self, const swy_op* op, const swy_bucket* bucket,
                   swy_prepared* out, swy_error*) {
  const auto f = kernel_of(self).workspace;
  out->workspace_bytes = f == nullptr ? 0 : f(*device, *op, *bucket);
  return SWY_OK;
}
swy_status record(swy_list* list, const swy_kernel* self, const swy_op* op, const swy_bindings* bindings,
                  swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    const Operands operands{*op, *bindings};
    list->begins_operation = true;
    return kernel_of(self).record(Recording{*list, *op, operands, self->name, error});
  });
}

// Weights are used as they are.
swy_status packed_bytes(const swy_tensor*, uint32_t layout, uint64_t*, swy_error* error) {
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_LAYOUT, "no packed layout %u", layout);
}
swy_status pack(const swy_tensor*, uint32_t layout, const void*, void*, swy_error* error) {
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_LAYOUT, "no packed layout %u", layout);
}

constexpr swy_option kKv = {sizeof(swy_option), SWY_OPTION_BOOL, "kv_bf16", "1",
                            "keep keys and values in bf16 instead of fp32: half the memory"};
constexpr swy_option kCooperative = {sizeof(swy_option), SWY_OPTION_BOOL, "cooperative", "1",
                                     "multiply prompts with matrix instructions where the device has them"};
constexpr swy_option kDot8 = {sizeof(swy_option), SWY_OPTION_BOOL, "dot8", "1",
                              "multiply few rows by products of bytes where the device has them"};
constexpr swy_option kImport = {sizeof(swy_option), SWY_OPTION_BOOL, "import", "1",
                                "read weights where the file is mapped, on devices that share the host's memory"};
constexpr swy_option kPipelineCache = {sizeof(swy_option), SWY_OPTION_BOOL, "pipeline_cache", "1",
                                       "keep compiled pipelines in the user's folder for caches"};
constexpr swy_option kReversed = {sizeof(swy_option), SWY_OPTION_BOOL, "reversed", "0",
                                  "run launches that do not wait for each other last to first: a test of the barriers"};
constexpr swy_sampling kLimits = {sizeof(swy_sampling), 0, 0, 0, kMostCandidates, 0};

constexpr const swy_option* kOptions[] = {&kKv, &kCooperative, &kDot8, &kImport, &kPipelineCache, &kReversed};

const swy_plugin& table() {
  static const swy_plugin plugin = [] {
    swy_plugin p{};
    p.struct_size = sizeof p;
    p.option_count = sizeof kOptions / sizeof kOptions[0];
    p.options = kOptions;
    p.device_count = device_count;
    p.device_info = device_info;
    p.device_open = device_open;
    p.device_close = device_close;
    p.kernel_count = [](swy_device* d) { return static_cast<uint32_t>(d->kernels.size()); };
    p.kernel_at = [](swy_device* d, uint32_t i) -> const swy_kernel* {
      return i < d->kernels.size() ? &d->kernels[i] : nullptr;
    };
    p.buffer_alloc = buffer_alloc;
    p.buffer_import = buffer_import;
    p.buffer_free = buffer_free;
    p.buffer_map = buffer_map;
    p.write = write;
    p.read = read;
    p.fill_zero = fill_zero;
    p.packed_bytes = packed_bytes;
    p.pack = pack;
    p.layout_name = [](uint32_t) -> const char* { return nullptr; };
    p.state_layout = state_layout;
    p.state_export = state_export;
    p.state_import = state_import;
    p.list_begin = list_begin;
    p.list_finalize = list_finalize;
    p.list_submit = list_submit;
    p.list_free = list_free;
    p.timeline_create = timeline_create;
    p.timeline_free = timeline_free;
    p.timeline_value = timeline_value;
    p.timeline_wait = timeline_wait;
    p.get_extension = [](swy_device* d, const char* name) -> const void* {
      if (std::strcmp(name, SWY_EXT_PROFILE) == 0) return &kProfile;
      return d->exact && std::strcmp(name, SWY_EXT_SAMPLING) == 0 ? &kLimits : nullptr;
    };
    return p;
  }();
  return plugin;
}

}  // namespace

std::vector<swy_kernel> make_kernels() {
  std::vector<swy_kernel> all;
  for (const auto list :
       {embedding_kernels(), rms_norm_kernels(), linear_kernels(), linear_tiles_kernels(), gated_delta_kernels(),
        gated_delta_step_kernels(), router_kernels(), moe_kernels(), moe_tiles_kernels(), attention_kernels(),
        lm_head_kernels(), add_kernels(), sample_kernels(), cast_kernels()}) {
    for (const Kernel& k : list) {
      swy_kernel out{};
      out.struct_size = sizeof out;
      out.flags = k.flags;
      out.name = k.name;
      out.op = k.op;
      out.op_revision = 1;
      out.input_dtypes = k.input_dtypes;
      out.output_dtypes = k.output_dtypes;
      out.activations = k.activations;
      out.user = &k;
      out.supports = supports;
      out.cost = cost;
      out.prepare = prepare;
      out.record = record;
      all.push_back(out);
    }
  }
  return all;
}

}  // namespace gpu

SWY_PLUGIN_NOTE("vulkan", "0.1.0", "");

extern "C" SWY_EXPORT swy_status switchyard_plugin_negotiate(const swy_negotiate_in* in, swy_negotiate_out* out) {
  if (in == nullptr || out == nullptr || in->struct_size < sizeof(swy_negotiate_in) ||
      out->struct_size < sizeof(swy_negotiate_out) || in->magic != SWY_NEGOTIATE_MAGIC) {
    return SWY_INVALID_ARGUMENT;
  }
  if (in->abi_min > SWY_ABI_VERSION || in->abi_max < SWY_ABI_VERSION) {
    return swy::fail(out->error, SWY_ABI_MISMATCH, SWY_REASON_NONE,
                     "this plugin speaks ABI %u, the host speaks %u to %u", SWY_ABI_VERSION, in->abi_min, in->abi_max);
  }
  out->abi = SWY_ABI_VERSION;
  out->id = "vulkan";
  out->version = gpu::kVersion;
  out->plugin = &gpu::table();
  return SWY_OK;
}
