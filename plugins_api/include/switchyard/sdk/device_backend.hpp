// SPDX-License-Identifier: Apache-2.0
// C++ SDK: the table of functions of a backend whose device has memory of its own, a GPU. What is left to write are the
// device (memory, copies, lists, timelines) and its kernels (sdk/device_kernel.hpp). Weights are read in their
// canonical form, states lie as sdk/device_states.hpp says.
//
//   struct Mine {  // names it all; nothing is made of it
//     using Device = swy_device;  // has `std::vector<swy_kernel> kernels`, which device_open sets to
//                                 // swy::kernel_table<Mine>(). Optional: `bool kv_bf16`, `bool kv_i8` and
//                                 // `bool delta_i16`, which states have a shorter form (swy::StateForms)
//     using Kernel = swy::DeviceKernel<Recording>;
//     static constexpr swy::KernelList<Kernel> kKernels[] = {add_kernels, linear_kernels};  // a function per file
//     static constexpr const swy_option* kOptions[] = {&swy::kKvBf16};  // optional
//     // The functions of swy_plugin that are the device's: device_*, buffer_*, write, read, fill_zero, list_*,
//     // timeline_*. All else may be left out.
//     static swy_plugin functions();
//     // Makes a Recording and calls the kernel's `record`. It may throw.
//     static swy_status record(swy_list& list, const Kernel& kernel, const swy_op& op, const swy_bindings& bindings,
//                              swy_error* error);
//     static const void* extension(const swy_device& device, const char* name);  // NULL: none of that name
//     // Optional: what estimates of this device's kernels are multiplied by.
//     static double cost_factor(const swy_device& device);
//   };
//   SWY_DEVICE_BACKEND("mine", "1.0", Mine)
//
// swy::the_host is the host, for device_open to keep: it logs, and has extensions.
#pragma once

#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "switchyard/sdk/device_kernel.hpp"
#include "switchyard/sdk/device_states.hpp"
#include "switchyard/sdk/error.hpp"
#include "switchyard/sdk/negotiate.hpp"
#include "switchyard/sdk/sized.hpp"

#pragma GCC visibility push(hidden)  // so that two plugins with this code share none of it

namespace swy {

template <class Kernel>
using KernelList = std::span<const Kernel> (*)();

inline constexpr swy_option kKvBf16 = {sizeof(swy_option), SWY_OPTION_BOOL, "kv_bf16", "1",
                                       "keep keys and values in bf16 instead of fp32: half the memory"};

// The user's value of an option that is on or off; its default, if none was given.
inline bool is_on(const swy_option& option, const swy_setting* settings, uint32_t count) {
  std::string_view value = option.default_value;
  for (uint32_t i = 0; i < count; ++i) {
    if (std::string_view(settings[i].name) == option.name) value = settings[i].value;
  }
  return value == "1" || value == "true";
}

// Gives the host as much of `info` as it knows.
inline void give_info(swy_device_info info, swy_device_info* out) {
  info.struct_size = out->struct_size < sizeof info ? out->struct_size : static_cast<uint32_t>(sizeof info);
  std::memcpy(out, &info, info.struct_size);
}

// What device_backend.hpp makes of a Backend.
template <class Backend>
struct DeviceTable {
  using Device = typename Backend::Device;
  using Kernel = typename Backend::Kernel;

  static const swy_plugin& get() {
    static const swy_plugin all = make();
    return all;
  }
  static std::vector<swy_kernel> kernels() {
    std::vector<swy_kernel> all;
    for (const KernelList<Kernel> list : Backend::kKernels) {
      for (const Kernel& k : list()) all.push_back(describe(k));
    }
    return all;
  }

 private:
  static inline decltype(swy_plugin::list_begin) own_list_begin = nullptr;

  static swy_kernel describe(const Kernel& k) {
    swy_kernel out{};
    out.struct_size = sizeof out;
    out.flags = k.flags;
    out.name = k.name;
    out.op = k.op;
    out.op_revision = k.op_revision;
    out.input_dtypes = k.input_dtypes;
    out.output_dtypes = k.output_dtypes;
    out.weight_dtypes = k.weight_dtypes;
    out.activations = k.activations;
    out.user = &k;
    out.supports = supports;
    out.cost = cost;
    out.prepare = prepare;
    out.record = record;
    out.op_name = k.op_name;
    out.encodings = k.encodings;
    return out;
  }

  static swy_plugin make() {
    swy_plugin p = Backend::functions();
    p.struct_size = sizeof p;
    own_list_begin = p.list_begin;
    p.list_begin = list_begin;
    if constexpr (requires { Backend::kOptions; }) {
      p.option_count = static_cast<uint32_t>(std::size(Backend::kOptions));
      p.options = Backend::kOptions;
    }
    p.kernel_count = [](swy_device* d) { return static_cast<uint32_t>(own(d).kernels.size()); };
    p.kernel_at = [](swy_device* d, uint32_t i) -> const swy_kernel* {
      return i < own(d).kernels.size() ? &own(d).kernels[i] : nullptr;
    };
    p.packed_bytes = [](const swy_tensor*, uint32_t layout, uint64_t*, swy_error* e) { return no_layout(layout, e); };
    p.pack = [](const swy_tensor*, uint32_t layout, const void*, void*, swy_error* e) { return no_layout(layout, e); };
    p.layout_name = [](uint32_t) -> const char* { return nullptr; };
    p.state_layout = state_layout;
    p.state_export = state_export;
    p.state_import = state_import;
    p.get_extension = [](swy_device* d, const char* name) { return Backend::extension(own(d), name); };
    return p;
  }

  static const Device& own(const swy_device* device) { return *static_cast<const Device*>(device); }
  static StateForms forms(const swy_device* device) {
    StateForms f;
    if constexpr (requires { own(device).kv_bf16; }) f.kv_bf16 = own(device).kv_bf16;
    if constexpr (requires { own(device).kv_i8; }) f.kv_i8 = own(device).kv_i8;
    if constexpr (requires { own(device).delta_i16; }) f.delta_i16 = own(device).delta_i16;
    return f;
  }
  static const Kernel& kernel_of(const swy_kernel* k) { return *static_cast<const Kernel*>(k->user); }

  static swy_status no_layout(uint32_t layout, swy_error* error) {
    return fail(error, SWY_UNSUPPORTED, SWY_REASON_LAYOUT, "no packed layout %u", layout);
  }

  // ---- kernels

  static swy_status supports(swy_device* device, const swy_kernel* self, const swy_op* op, const swy_bucket* bucket,
                             swy_error* error) {
    const auto f = kernel_of(self).supports;
    if (f == nullptr) return SWY_OK;
    return asked(op, bucket, error, [&](const swy_op& o, const swy_bucket& b) { return f(*device, o, b, error); });
  }
  static swy_status cost(swy_device* device, const swy_kernel* self, const swy_op* op, const swy_bucket* bucket,
                         double* microseconds, swy_error* error) {
    return asked(op, bucket, error, [&](const swy_op& o, const swy_bucket& b) -> swy_status {
      if constexpr (requires { kernel_of(self).cost(*device, o, b); }) {
        *microseconds = kernel_of(self).cost(*device, o, b);
      } else {
        *microseconds = kernel_of(self).cost(o, b);
      }
      if constexpr (requires { Backend::cost_factor(*device); }) *microseconds *= Backend::cost_factor(*device);
      return SWY_OK;
    });
  }
  static swy_status prepare(swy_device* device, const swy_kernel* self, const swy_op* op, const swy_bucket* bucket,
                            swy_prepared* out, swy_error* error) {
    return asked(op, bucket, error, [&](const swy_op& o, const swy_bucket& b) -> swy_status {
      const auto f = kernel_of(self).workspace;
      out->workspace_bytes = f == nullptr ? 0 : f(*device, o, b);
      return SWY_OK;
    });
  }
  static swy_status record(swy_list* list, const swy_kernel* self, const swy_op* op, const swy_bindings* bindings,
                           swy_error* error) {
    return guard(error, [&] {
      const WholeOp o(*op);
      const Whole<swy_bindings> b(*bindings);
      return Backend::record(*list, kernel_of(self), *o, *b, error);
    });
  }
  // Calls body(op, bucket) with the host's descriptions as this plugin knows them.
  template <class Body>
  static swy_status asked(const swy_op* op, const swy_bucket* bucket, swy_error* error, Body body) {
    return guard(error, [&]() -> swy_status {
      const WholeOp o(*op);
      const Whole<swy_bucket> b(*bucket);
      return body(*o, *b);
    });
  }
  static swy_status list_begin(swy_device* device, const swy_list_info* info, swy_list** out, swy_error* error) {
    const Whole<swy_bucket> bucket(*info->bucket);
    swy_list_info whole = sized_copy(*info);
    whole.bucket = &*bucket;
    return own_list_begin(device, &whole, out, error);
  }

  // ---- states

  static swy_status state_layout(swy_device* device, const swy_op* op, uint32_t index, const swy_bucket* pool,
                                 swy_state_layout* out, swy_error* error) {
    if (index >= op->state_count) {
      return fail(error, SWY_INVALID_ARGUMENT, SWY_REASON_NONE, "the operation has no state %u", index);
    }
    const Whole<swy_tensor> tensor(*op->states[index]);
    const DeviceState state(*tensor, pool->page_size, forms(device));
    out->layout = state.layout();
    out->unit_bytes = state.unit_bytes();
    return SWY_OK;
  }
  static swy_status state_export(swy_device* device, const swy_tensor* state, uint32_t page_size,
                                 const swy_binding* unit, void* canonical, uint64_t bytes, swy_error* error) {
    return guard(error, [&] {
      const Whole<swy_tensor> tensor(*state);
      const DeviceState form(*tensor, page_size, forms(device));
      if (const swy_status s = form.check(*unit, bytes, error); s != SWY_OK) return s;
      std::vector<char> raw(form.unit_bytes());
      const swy_status s = get().read(device, raw.data(), unit->buffer, unit->offset, raw.size(), nullptr, error);
      if (s == SWY_OK) form.to_canonical(raw, canonical);
      return s;
    });
  }
  static swy_status state_import(swy_device* device, const swy_tensor* state, uint32_t page_size,
                                 const swy_binding* unit, const void* canonical, uint64_t bytes, swy_error* error) {
    return guard(error, [&] {
      const Whole<swy_tensor> tensor(*state);
      const DeviceState form(*tensor, page_size, forms(device));
      if (const swy_status s = form.check(*unit, bytes, error); s != SWY_OK) return s;
      const std::vector<char> raw = form.from_canonical(canonical);
      return get().write(device, unit->buffer, unit->offset, raw.data(), raw.size(), nullptr, error);
    });
  }
};

// The kernels of a backend as the host sees them.
template <class Backend>
std::vector<swy_kernel> kernel_table() {
  return DeviceTable<Backend>::kernels();
}

}  // namespace swy

#pragma GCC visibility pop

#define SWY_DEVICE_BACKEND(id_, version_, backend_)                                                                  \
  SWY_PLUGIN_NOTE(id_, version_, "");                                                                                \
  extern "C" SWY_EXPORT swy_status switchyard_plugin_negotiate(const swy_negotiate_in* in, swy_negotiate_out* out) { \
    const swy_status s = swy::check_negotiation(in, out);                                                            \
    return s == SWY_OK ? swy::agree(in, out, id_, version_, swy::DeviceTable<backend_>::get()) : s;                  \
  }
