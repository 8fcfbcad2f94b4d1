// SPDX-License-Identifier: Apache-2.0
// C++ SDK: a complete backend in host memory. Describe it in a HostBackend and export it with SWY_HOST_BACKEND; only
// the kernels are left to write.
//
//   static const swy::HostKernel kKernels[] = {...};
//   static swy::HostBackend backend{"mine", "1.0", kKernels, std::size(kKernels)};
//   SWY_HOST_BACKEND("mine", "1.0", "", backend)
//
// The device is synchronous. Weights and states are canonical and imported without a copy, unless the backend has
// functions for its own layout. A list runs as one call of the host's executor, with a barrier between operations.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "switchyard/sdk/error.hpp"
#include "switchyard/sdk/kernel.hpp"
#include "switchyard/sdk/negotiate.hpp"
#include "switchyard/sdk/own_encoding.hpp"
#include "switchyard/sdk/sized.hpp"
#include "switchyard/sdk/team.hpp"
#include "switchyard/weights.h"

struct swy_device {};
struct swy_buffer {};
struct swy_list {};

#pragma GCC visibility push(hidden)  // so that two plugins with this code share none of it

namespace swy {

struct HostBackend {
  const char* id;
  const char* version;
  const HostKernel* kernels;
  size_t kernel_count;
  const char* device_name = "host memory";
  uint32_t sampling = SWY_SAMPLING_LOGITS;
  uint32_t sampling_steps = 0;
  const void* (*get_extension)(const char* name) = nullptr;

  // Options, and what applies their values when the device is opened.
  const swy_option* const* options = nullptr;
  uint32_t option_count = 0;
  swy_status (*configure)(const swy_setting* settings, uint32_t count, swy_error* error) = nullptr;

  // Packed layouts of weights, as swy_plugin has them.
  swy_status (*packed_bytes)(const swy_tensor* tensor, uint32_t layout, uint64_t* bytes, swy_error* error) = nullptr;
  swy_status (*pack)(const swy_tensor* tensor, uint32_t layout, const void* canonical, void* packed,
                     swy_error* error) = nullptr;
  const char* (*layout_name)(uint32_t layout) = nullptr;

  // A layout of a state other than the canonical one: 0 when the state is stored as it is. One unit has the same size
  // in both; `to_canonical` and `from_canonical` convert one.
  uint32_t (*state_layout)(const swy_tensor& state) = nullptr;
  void (*to_canonical)(const swy_tensor& state, uint32_t page_size, const void* unit, void* canonical) = nullptr;
  void (*from_canonical)(const swy_tensor& state, uint32_t page_size, const void* canonical, void* unit) = nullptr;

  const swy_host* host = nullptr;  // the one that negotiated last; a device keeps the one that it was opened with
};

inline HostBackend* the_backend = nullptr;

namespace detail {

// What a device, and all that is made on it, uses of the host.
struct Services {
  const swy_host* host = nullptr;
  const swy_doing* doing = nullptr;
  uint32_t width = 1;  // of teams
};

struct Device : swy_device {
  std::vector<swy_kernel> kernels;
  Services services;
};

struct Buffer : swy_buffer {
  const swy_host* host = nullptr;  // that gave the memory
  char* data = nullptr;
  uint64_t bytes = 0;
  bool owned = false;
};

// A recorded operation: deep copies of the descriptions, operands resolved to addresses.
struct Recorded {
  const HostKernel* kernel = nullptr;
  swy_op op{};
  std::vector<uint64_t> attrs;  // aligned storage
  std::vector<swy_tensor> tensors;
  std::vector<const swy_tensor*> lists;
  std::vector<std::unique_ptr<const OwnEncoding>> encodings;
  std::vector<void*> addresses;
  void* workspace = nullptr;
  bool serial = false;
};

struct List : swy_list {
  Services services;
  const swy_step* step = nullptr;
  int32_t* tokens = nullptr;
  swy_bucket bucket{};
  std::vector<Recorded> ops;
  alignas(64) std::atomic<uint32_t> finished{0};  // members that are done with an operation that a serial one follows
};

inline const HostKernel& kernel_of(const swy_kernel* k) { return *static_cast<const HostKernel*>(k->user); }
inline char* address(const swy_binding& b) {
  return b.buffer == nullptr ? nullptr : static_cast<Buffer*>(b.buffer)->data + b.offset;
}

inline const Services& services_of(const swy_device* device) { return static_cast<const Device*>(device)->services; }

// ---- memory

// Zero-filled.
inline void* host_alloc(const swy_host* h, uint64_t bytes) {
  if (h != nullptr && h->alloc != nullptr) return h->alloc(h->ctx, bytes, 64);
  void* p = ::operator new(bytes, std::align_val_t(64), std::nothrow);
  if (p != nullptr) std::memset(p, 0, bytes);
  return p;
}
inline void host_free(const swy_host* h, void* p, uint64_t bytes) {
  if (h != nullptr && h->alloc != nullptr) {
    h->free(h->ctx, p, bytes, 64);
  } else {
    ::operator delete(p, std::align_val_t(64));
  }
}

inline swy_status buffer_alloc(swy_device* device, swy_memory_type, uint64_t bytes, swy_buffer** out,
                               swy_error* error) {
  return guard(error, [&] {
    auto buffer = std::make_unique<Buffer>();
    buffer->host = services_of(device).host;
    buffer->bytes = bytes;
    buffer->owned = true;
    const uint64_t size = bytes == 0 ? 64 : bytes;
    buffer->data = static_cast<char*>(host_alloc(buffer->host, size));
    if (buffer->data == nullptr) {
      return fail(error, SWY_OUT_OF_HOST_MEMORY, SWY_REASON_NONE, "no memory for %llu bytes",
                  static_cast<unsigned long long>(bytes));
    }
    *out = buffer.release();
    return static_cast<swy_status>(SWY_OK);
  });
}

inline swy_status buffer_import(swy_device*, const void* memory, uint64_t bytes, swy_buffer** out, swy_error* error) {
  return guard(error, [&] {
    auto buffer = std::make_unique<Buffer>();
    buffer->data = static_cast<char*>(const_cast<void*>(memory));  // kernels only read weights
    buffer->bytes = bytes;
    *out = buffer.release();
    return static_cast<swy_status>(SWY_OK);
  });
}

inline void buffer_free(swy_device*, swy_buffer* buffer) {
  auto* b = static_cast<Buffer*>(buffer);
  if (b->owned) host_free(b->host, b->data, b->bytes == 0 ? 64 : b->bytes);
  delete b;
}

inline void* buffer_map(swy_device*, swy_buffer* buffer) { return static_cast<Buffer*>(buffer)->data; }

inline swy_status check_range(const Buffer& b, uint64_t offset, uint64_t bytes, swy_error* error) {
  if (offset <= b.bytes && bytes <= b.bytes - offset) return SWY_OK;
  return fail(error, SWY_INVALID_ARGUMENT, SWY_REASON_NONE, "bytes %llu+%llu are outside a buffer of %llu",
              static_cast<unsigned long long>(offset), static_cast<unsigned long long>(bytes),
              static_cast<unsigned long long>(b.bytes));
}

inline swy_status write(swy_device*, swy_buffer* to, uint64_t offset, const void* from, uint64_t bytes,
                        const swy_submit*, swy_error* error) {
  auto& b = *static_cast<Buffer*>(to);
  if (const swy_status s = check_range(b, offset, bytes, error); s != SWY_OK) return s;
  if (bytes != 0) std::memcpy(b.data + offset, from, bytes);
  return SWY_OK;
}
inline swy_status read(swy_device*, void* to, swy_buffer* from, uint64_t offset, uint64_t bytes, const swy_submit*,
                       swy_error* error) {
  const auto& b = *static_cast<Buffer*>(from);
  if (const swy_status s = check_range(b, offset, bytes, error); s != SWY_OK) return s;
  if (bytes != 0) std::memcpy(to, b.data + offset, bytes);
  return SWY_OK;
}
inline swy_status fill_zero(swy_device*, swy_buffer* buffer, uint64_t offset, uint64_t bytes, swy_error* error) {
  auto& b = *static_cast<Buffer*>(buffer);
  if (const swy_status s = check_range(b, offset, bytes, error); s != SWY_OK) return s;
  std::memset(b.data + offset, 0, bytes);
  return SWY_OK;
}

// ---- states

inline uint64_t state_unit_bytes(const swy_tensor& state, uint32_t page_size) {
  uint64_t bytes = state.dtype == SWY_BF16 ? 2 : 4;
  for (uint32_t i = 0; i < state.rank; ++i) bytes *= state.dims[i];
  return state.state == SWY_STATE_PAGED ? bytes * page_size : bytes;
}
inline uint32_t layout_of(const swy_tensor& state) {
  return the_backend->state_layout == nullptr ? 0 : the_backend->state_layout(state);
}
inline swy_status state_layout(swy_device*, const swy_op* op, uint32_t index, const swy_bucket* pool,
                               swy_state_layout* out, swy_error* error) {
  if (index >= op->state_count) {
    return fail(error, SWY_INVALID_ARGUMENT, SWY_REASON_NONE, "the operation has no state %u", index);
  }
  const Whole<swy_tensor> state(*op->states[index]);
  out->layout = layout_of(*state);
  out->unit_bytes = state_unit_bytes(*state, pool->page_size);
  return SWY_OK;
}
inline swy_status state_export(swy_device*, const swy_tensor* theirs, uint32_t page_size, const swy_binding* unit,
                               void* canonical, uint64_t bytes, swy_error* error) {
  const Whole<swy_tensor> state(*theirs);
  if (bytes != state_unit_bytes(*state, page_size) || bytes > unit->bytes) {
    return fail(error, SWY_INVALID_ARGUMENT, SWY_REASON_SHAPE, "a unit of this state has %llu bytes, not %llu",
                static_cast<unsigned long long>(state_unit_bytes(*state, page_size)),
                static_cast<unsigned long long>(bytes));
  }
  if (layout_of(*state) != 0) {
    the_backend->to_canonical(*state, page_size, address(*unit), canonical);
  } else {
    std::memcpy(canonical, address(*unit), bytes);
  }
  return SWY_OK;
}
inline swy_status state_import(swy_device*, const swy_tensor* theirs, uint32_t page_size, const swy_binding* unit,
                               const void* canonical, uint64_t bytes, swy_error* error) {
  const Whole<swy_tensor> state(*theirs);
  if (bytes != state_unit_bytes(*state, page_size) || bytes > unit->bytes) {
    return fail(error, SWY_INVALID_ARGUMENT, SWY_REASON_SHAPE, "a unit of this state has %llu bytes, not %llu",
                static_cast<unsigned long long>(state_unit_bytes(*state, page_size)),
                static_cast<unsigned long long>(bytes));
  }
  if (layout_of(*state) != 0) {
    the_backend->from_canonical(*state, page_size, canonical, address(*unit));
  } else {
    std::memcpy(address(*unit), canonical, bytes);
  }
  return SWY_OK;
}

// ---- lists

inline swy_status list_begin(swy_device* device, const swy_list_info* info, swy_list** out, swy_error* error) {
  return guard(error, [&] {
    auto list = std::make_unique<List>();
    list->services = services_of(device);
    list->step = reinterpret_cast<const swy_step*>(address(info->step));
    list->tokens = reinterpret_cast<int32_t*>(address(info->tokens));
    list->bucket = sized_copy(*info->bucket);
    *out = list.release();
    return static_cast<swy_status>(SWY_OK);
  });
}

inline swy_status record(swy_list* list, const swy_kernel* self, const swy_op* op, const swy_bindings* bindings,
                         swy_error* error) {
  return guard(error, [&] {
    Recorded r;
    r.kernel = &kernel_of(self);
    auto& l = *static_cast<List*>(list);
    team_width = l.services.width;
    const WholeOp whole(*op);
    op = &*whole;
    r.op = *op;
    r.attrs.resize((std::max(op->attrs_size, attrs_bytes(op->id)) + 7) / 8);
    if (op->attrs_size != 0) std::memcpy(r.attrs.data(), op->attrs, op->attrs_size);
    const struct {
      const swy_tensor* const* tensors;
      const swy_binding* bindings;
      uint32_t count;
    } kinds[] = {{op->inputs, bindings->inputs, op->input_count},
                 {op->weights, bindings->weights, op->weight_count},
                 {op->states, bindings->states, op->state_count},
                 {op->outputs, bindings->outputs, op->output_count}};
    for (const auto& kind : kinds) {
      for (uint32_t i = 0; i < kind.count; ++i) {
        r.tensors.push_back(*kind.tensors[i]);
        if (const swy_encoding*& e = r.tensors.back().encoding; e != nullptr) {
          e = r.encodings.emplace_back(std::make_unique<OwnEncoding>(*e))->get();
        }
        r.addresses.push_back(address(kind.bindings[i]));
      }
    }
    r.workspace = address(bindings->workspace);
    r.serial = r.kernel->serial != nullptr && r.kernel->serial(*op, l.bucket);
    l.ops.push_back(std::move(r));
    return static_cast<swy_status>(SWY_OK);
  });
}

// Pointers inside a Recorded are set once it has its final place.
inline swy_status list_finalize(swy_list* list, swy_error* error) {
  return guard(error, [&] {
    for (Recorded& r : static_cast<List*>(list)->ops) {
      for (const swy_tensor& t : r.tensors) r.lists.push_back(&t);
      const swy_tensor* const* at = r.lists.data();
      r.op.attrs = r.attrs.empty() ? nullptr : r.attrs.data();
      r.op.name = r.kernel->op_name;
      r.op.inputs = at;
      r.op.weights = at += r.op.input_count;
      r.op.states = at += r.op.weight_count;
      r.op.outputs = at += r.op.state_count;
    }
    return static_cast<swy_status>(SWY_OK);
  });
}

inline void run_op(const List& list, const Recorded& r, const swy_team* team) {
  void* const* at = r.addresses.data();
  const Call call{&r.op,
                  list.step,
                  list.tokens,
                  list.bucket.flags,
                  team,
                  at,
                  at + r.op.input_count,
                  at + r.op.input_count + r.op.weight_count,
                  at + r.op.input_count + r.op.weight_count + r.op.state_count,
                  r.workspace};
  r.kernel->run(call);
}

inline uint64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

inline void run_list(void* arg, const swy_team* team) {
  List& list = *static_cast<List*>(arg);
  const swy_host* host = list.services.host;
  team_width = list.services.width;
  const char* unread = nullptr;
  const char** doing = list.services.doing == nullptr ? &unread : list.services.doing->place(list.services.doing->ctx);
  const auto run = [&](const Recorded& r, const swy_team* members) {
    __atomic_store_n(doing, r.kernel->name, __ATOMIC_RELAXED);
    run_op(list, r, members);
  };
  const bool traced = team->rank == 0 && host != nullptr && host->trace != nullptr;
  const size_t n = list.ops.size();
  for (size_t i = 0; i < n;) {
    const uint64_t begin = traced ? now_ns() : 0;
    run(list.ops[i], team);
    size_t next = i + 1;
    while (next < n && list.ops[next].serial) ++next;
    if (next > i + 1 && list.finished.fetch_add(1, std::memory_order_acq_rel) + 1 == team->size) {
      list.finished.store(0, std::memory_order_relaxed);
      for (size_t s = i + 1; s < next; ++s) run(list.ops[s], &kAlone);
    }
    team->barrier(team);
    if (traced) host->trace(host->ctx, list.ops[i].kernel->name, begin, now_ns());
    i = next;
  }
}

inline swy_status list_submit(swy_list* list, const swy_submit*, swy_error*) {
  const swy_host* h = static_cast<List*>(list)->services.host;
  if (h != nullptr && h->executor != nullptr) {
    h->executor->run(h->executor->ctx, run_list, static_cast<List*>(list));
  } else {
    run_list(static_cast<List*>(list), &kAlone);
  }
  return SWY_OK;
}
inline void list_free(swy_list* list) { delete static_cast<List*>(list); }

// ---- kernels

// Calls body(op, bucket) with the host's descriptions as this plugin knows them.
template <class Body>
swy_status asked(const swy_device* device, const swy_op* op, const swy_bucket* bucket, swy_error* error, Body body) {
  team_width = services_of(device).width;
  return guard(error, [&]() -> swy_status {
    const WholeOp whole(*op);
    const Whole<swy_bucket> size(*bucket);
    return body(*whole, *size);
  });
}
inline swy_status supports(swy_device* device, const swy_kernel* self, const swy_op* op, const swy_bucket* bucket,
                           swy_error* error) {
  for (uint32_t i = 0; i < op->state_count; ++i) {  // what kernels of hosts read and write
    const swy_dtype d = op->states[i]->dtype;
    if (d == SWY_F32 || d == SWY_I32) continue;
    return fail(error, SWY_UNSUPPORTED, SWY_REASON_DTYPE, "state %u is of type %u; states are f32 or i32", i, d);
  }
  const auto f = kernel_of(self).supports;
  if (f == nullptr) return SWY_OK;
  return asked(device, op, bucket, error, [&](const swy_op& o, const swy_bucket& b) { return f(o, b, error); });
}
inline swy_status cost(swy_device* device, const swy_kernel* self, const swy_op* op, const swy_bucket* bucket,
                       double* microseconds, swy_error* error) {
  return asked(device, op, bucket, error, [&](const swy_op& o, const swy_bucket& b) -> swy_status {
    *microseconds = kernel_of(self).cost(o, b);
    return SWY_OK;
  });
}
inline swy_status prepare(swy_device* device, const swy_kernel* self, const swy_op* op, const swy_bucket* bucket,
                          swy_prepared* out, swy_error* error) {
  return asked(device, op, bucket, error, [&](const swy_op& o, const swy_bucket& b) -> swy_status {
    const HostKernel& k = kernel_of(self);
    out->workspace_bytes = k.workspace == nullptr ? 0 : k.workspace(o, b);
    for (uint32_t i = 0; k.layout != nullptr && i < o.weight_count; ++i) out->weight_layouts[i] = k.layout(o, i);
    return SWY_OK;
  });
}

// ---- devices

// A line of Linux's memory report, in bytes; 0: not known.
inline uint64_t memory_of(const char* line) {
  std::FILE* f = std::fopen("/proc/meminfo", "r");
  if (f == nullptr) return 0;
  char name[64];
  unsigned long long kib = 0, found = 0;
  while (found == 0 && std::fscanf(f, "%63s %llu%*[^\n]", name, &kib) == 2) {
    if (std::strcmp(name, line) == 0) found = kib;
  }
  std::fclose(f);
  return found * 1024;
}

inline swy_status device_count(uint32_t* count, swy_error*) {
  *count = 1;
  return SWY_OK;
}
inline swy_status device_info(uint32_t index, swy_device_info* out, swy_error* error) {
  if (index != 0) return fail(error, SWY_INVALID_ARGUMENT, SWY_REASON_NONE, "there is no device %u", index);
  swy_device_info info{};
  info.struct_size = out->struct_size < sizeof info ? out->struct_size : static_cast<uint32_t>(sizeof info);
  info.type = SWY_DEVICE_CPU;
  info.name = the_backend->device_name;
  info.arch = "host";
  info.memory_bytes = memory_of("MemTotal:");
  info.memory_free_bytes = memory_of("MemAvailable:");
  info.buffer_alignment = 64;
  info.flags = SWY_DEVICE_SYNCHRONOUS | SWY_DEVICE_HOST_MEMORY;
  info.sampling = the_backend->sampling;
  info.sampling_steps = the_backend->sampling_steps;
  std::memcpy(out, &info, info.struct_size);
  return SWY_OK;
}
inline swy_status device_open(uint32_t index, const swy_setting* settings, uint32_t setting_count, swy_device** out,
                              swy_error* error) {
  if (index != 0) return fail(error, SWY_INVALID_ARGUMENT, SWY_REASON_NONE, "there is no device %u", index);
  Services services{.host = the_backend->host};
  if (const swy_host* h = services.host; h != nullptr) {
    services.doing = host_extension<swy_doing>(h, SWY_EXT_DOING);
    if (h->executor != nullptr) services.width = h->executor->width(h->executor->ctx);
  }
  team_width = services.width;
  if (the_backend->configure != nullptr) {
    if (const swy_status s = the_backend->configure(settings, setting_count, error); s != SWY_OK) return s;
  }
  return guard(error, [&] {
    auto device = std::make_unique<Device>();
    device->services = services;
    for (size_t i = 0; i < the_backend->kernel_count; ++i) {
      const HostKernel& k = the_backend->kernels[i];
      swy_kernel out_kernel{};
      out_kernel.struct_size = sizeof out_kernel;
      out_kernel.flags = k.flags;
      out_kernel.name = k.name;
      out_kernel.op = k.op;
      out_kernel.op_revision = k.op_revision;
      out_kernel.input_dtypes = k.input_dtypes;
      out_kernel.output_dtypes = k.output_dtypes;
      out_kernel.weight_dtypes = k.weight_dtypes;
      out_kernel.activations = k.activations;
      out_kernel.user = &k;
      out_kernel.supports = supports;
      out_kernel.cost = cost;
      out_kernel.prepare = prepare;
      out_kernel.record = record;
      out_kernel.op_name = k.op_name;
      out_kernel.encodings = k.encodings;
      device->kernels.push_back(out_kernel);
    }
    *out = device.release();
    return static_cast<swy_status>(SWY_OK);
  });
}
inline void device_close(swy_device* device) { delete static_cast<Device*>(device); }
inline uint32_t kernel_count(swy_device* device) {
  return static_cast<uint32_t>(static_cast<Device*>(device)->kernels.size());
}
inline const swy_kernel* kernel_at(swy_device* device, uint32_t index) {
  const auto& kernels = static_cast<Device*>(device)->kernels;
  return index < kernels.size() ? &kernels[index] : nullptr;
}
inline const void* get_extension(swy_device*, const char* name) {
  return the_backend->get_extension == nullptr ? nullptr : the_backend->get_extension(name);
}

inline swy_status packed_bytes(const swy_tensor* theirs, uint32_t layout, uint64_t* bytes, swy_error* error) {
  const Whole<swy_tensor> tensor(*theirs);
  if (the_backend->packed_bytes != nullptr) return the_backend->packed_bytes(&*tensor, layout, bytes, error);
  return fail(error, SWY_UNSUPPORTED, SWY_REASON_LAYOUT, "no packed layout %u", layout);
}
inline swy_status pack(const swy_tensor* theirs, uint32_t layout, const void* canonical, void* packed,
                       swy_error* error) {
  const Whole<swy_tensor> tensor(*theirs);
  if (the_backend->pack != nullptr) return the_backend->pack(&*tensor, layout, canonical, packed, error);
  return fail(error, SWY_UNSUPPORTED, SWY_REASON_LAYOUT, "no packed layout %u", layout);
}
inline const char* layout_name(uint32_t layout) {
  return the_backend->layout_name == nullptr ? nullptr : the_backend->layout_name(layout);
}

inline const swy_plugin& table() {
  static const swy_plugin plugin = [] {
    swy_plugin p{};
    p.struct_size = sizeof p;
    p.option_count = the_backend->option_count;
    p.options = the_backend->options;
    p.device_count = device_count;
    p.device_info = device_info;
    p.device_open = device_open;
    p.device_close = device_close;
    p.kernel_count = kernel_count;
    p.kernel_at = kernel_at;
    p.buffer_alloc = buffer_alloc;
    p.buffer_import = buffer_import;
    p.buffer_free = buffer_free;
    p.buffer_map = buffer_map;
    p.write = write;
    p.read = read;
    p.fill_zero = fill_zero;
    p.packed_bytes = packed_bytes;
    p.pack = pack;
    p.layout_name = layout_name;
    p.state_layout = state_layout;
    p.state_export = state_export;
    p.state_import = state_import;
    p.list_begin = list_begin;
    p.list_finalize = list_finalize;
    p.list_submit = list_submit;
    p.list_free = list_free;
    p.get_extension = get_extension;
    return p;
  }();
  return plugin;
}

// What a kernel cannot do without.
inline swy_status check_kernels(const HostBackend& backend, swy_error* error) {
  for (size_t i = 0; i < backend.kernel_count; ++i) {
    const HostKernel& k = backend.kernels[i];
    if (k.name == nullptr) return fail(error, SWY_UNSUPPORTED, SWY_REASON_NONE, "kernel %zu has no name", i);
    const char* missing = k.cost == nullptr                              ? "cost"
                          : k.run == nullptr                             ? "run"
                          : k.op == 0                                    ? "op"
                          : k.op == SWY_OP_NAMED && k.op_name == nullptr ? "op_name"
                                                                         : nullptr;
    if (missing == nullptr) continue;
    return fail(error, SWY_UNSUPPORTED, SWY_REASON_NONE, "kernel %s has no %s; set HostKernel::%s", k.name, missing,
                missing);
  }
  return SWY_OK;
}

}  // namespace detail

// The body of switchyard_plugin_negotiate.
inline swy_status negotiate(HostBackend& backend, const swy_negotiate_in* in, swy_negotiate_out* out) noexcept {
  if (const swy_status s = check_negotiation(in, out); s != SWY_OK) return s;
  if (const swy_status s = detail::check_kernels(backend, out->error); s != SWY_OK) return s;
  backend.host = in->host;
  the_backend = &backend;
  return agree(in, out, backend.id, backend.version, detail::table());
}

}  // namespace swy

#pragma GCC visibility pop

#define SWY_HOST_BACKEND(id_, version_, cpu_, backend_)                                                              \
  SWY_PLUGIN_NOTE(id_, version_, cpu_);                                                                              \
  extern "C" SWY_EXPORT swy_status switchyard_plugin_negotiate(const swy_negotiate_in* in, swy_negotiate_out* out) { \
    return swy::negotiate(backend_, in, out);                                                                        \
  }
