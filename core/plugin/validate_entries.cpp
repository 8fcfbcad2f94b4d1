// SPDX-License-Identifier: Apache-2.0
// The checked entries of the plugin's table: devices, memory, copies, packing, states.
#include "core/plugin/validate_call.h"

namespace switchyard {

// ---- devices

swy_status Validator::device_count(uint32_t* count, swy_error* error) {
  Call call(*this, "device_count", error);
  uint32_t n = UINT32_MAX;
  const swy_status s = call.run([&](swy_error* e) { return real_.device_count(&n, e); });
  if (s == SWY_OK) {
    call.rule(n != UINT32_MAX, "succeeded and did not set the count");
    call.rule(n != 0 || call.text()[0] != '\0', "counted no device and gave no reason");
    *count = n;
  }
  return call.report(s);
}

swy_status Validator::device_info(uint32_t index, swy_device_info* out, swy_error* error) {
  Call call(*this, "device_info", error);
  const uint32_t given = out->struct_size;
  const swy_status s = call.run([&](swy_error* e) { return real_.device_info(index, out, e); });
  if (s == SWY_OK) {
    call.filled(given, out->struct_size);
    call.rule(out->name != nullptr && out->arch != nullptr, "gave no name or no arch");
    const uint32_t a = out->buffer_alignment;
    call.rule(a != 0 && a <= 4096 && (a & (a - 1)) == 0,
              "buffer_alignment is {}, which is not a power of two up to 4096", a);
  }
  return call.report(s);
}

swy_status Validator::device_open(uint32_t index, const swy_setting* settings, uint32_t setting_count, swy_device** out,
                                  swy_error* error) {
  Call call(*this, "device_open", error);
  swy_device_info info{};
  info.struct_size = sizeof info;
  swy_device* made = nullptr;
  const swy_status s = call.run([&](swy_error* e) {
    const swy_status known = real_.device_info(index, &info, e);
    return known == SWY_OK ? real_.device_open(index, settings, setting_count, &made, e) : known;
  });
  if (s != SWY_OK) return call.report(s);
  DeviceState state;
  state.alignment = info.buffer_alignment == 0 ? 1 : info.buffer_alignment;
  const std::string wrong = made == nullptr ? "" : check_kernels(made, state);
  call.rule(wrong.empty(), "{}", wrong);
  return adopted(call, s, devices_, made, std::move(state), out);
}

void Validator::device_close(swy_device* device) {
  Call call(*this, "device_close", nullptr);
  call.serial(device);
  if (!call.ok()) return;
  {
    const std::lock_guard lock(mutex_);
    size_t buffers = 0, lists = 0, timelines = 0;
    for (const auto& [handle, b] : buffers_) buffers += b.device == device;
    for (const auto& [handle, l] : lists_) lists += l.device == device;
    for (const auto& [handle, d] : timelines_) timelines += d == device;
    call.rule(buffers + lists + timelines == 0, "{} buffers, {} lists and {} timelines are still alive", buffers, lists,
              timelines);
    // The device stays open: objects that are alive still refer to it.
    if (!call.ok()) return;
    devices_.erase(device);
  }
  real_.device_close(device);
}

// ---- memory

swy_status Validator::buffer_alloc(swy_device* device, swy_memory_type type, uint64_t bytes, swy_buffer** out,
                                   swy_error* error) {
  Call call(*this, "buffer_alloc", error);
  call.known(device);
  swy_buffer* made = nullptr;
  const swy_status s = call.run([&](swy_error* e) { return real_.buffer_alloc(device, type, bytes, &made, e); });
  return adopted(call, s, buffers_, made, {device, bytes}, out);
}

swy_status Validator::buffer_import(swy_device* device, const void* memory, uint64_t bytes, swy_buffer** out,
                                    swy_error* error) {
  Call call(*this, "buffer_import", error);
  call.known(device);
  swy_buffer* made = nullptr;
  const swy_status s = call.run([&](swy_error* e) { return real_.buffer_import(device, memory, bytes, &made, e); });
  return adopted(call, s, buffers_, made, {device, bytes}, out);
}

void Validator::buffer_free(swy_device* device, swy_buffer* buffer) {
  Call call(*this, "buffer_free", nullptr);
  call.known(device, buffer);
  if (!call.ok()) return;
  {
    const std::lock_guard lock(mutex_);
    buffers_.erase(buffer);
  }
  real_.buffer_free(device, buffer);
}

void* Validator::buffer_map(swy_device* device, swy_buffer* buffer) {
  Call call(*this, "buffer_map", nullptr);
  call.known(device, buffer);
  call.allocates_nothing();
  return call.ok() ? call.guarded([&] { return real_.buffer_map(device, buffer); }) : nullptr;
}

// ---- copies

swy_status Validator::write(swy_device* device, swy_buffer* to, uint64_t offset, const void* from, uint64_t bytes,
                            const swy_submit* submit, swy_error* error) {
  Call call(*this, "write", error);
  call.serial(device);
  call.known(device, to);
  call.inside(device, {to, offset, bytes}, "range", 0);
  call.allocates_nothing();
  return call.report(call.run([&](swy_error* e) { return real_.write(device, to, offset, from, bytes, submit, e); }));
}

swy_status Validator::read(swy_device* device, void* to, swy_buffer* from, uint64_t offset, uint64_t bytes,
                           const swy_submit* submit, swy_error* error) {
  Call call(*this, "read", error);
  call.serial(device);
  call.known(device, from);
  call.inside(device, {from, offset, bytes}, "range", 0);
  call.allocates_nothing();
  return call.report(call.run([&](swy_error* e) { return real_.read(device, to, from, offset, bytes, submit, e); }));
}

swy_status Validator::fill_zero(swy_device* device, swy_buffer* buffer, uint64_t offset, uint64_t bytes,
                                swy_error* error) {
  Call call(*this, "fill_zero", error);
  call.serial(device);
  call.known(device, buffer);
  call.inside(device, {buffer, offset, bytes}, "range", 0);
  call.allocates_nothing();
  return call.report(call.run([&](swy_error* e) { return real_.fill_zero(device, buffer, offset, bytes, e); }));
}

// ---- packing

swy_status Validator::packed_bytes(const swy_tensor* tensor, uint32_t layout, uint64_t* bytes, swy_error* error) {
  Call call(*this, "packed_bytes", error);
  uint64_t n = UINT64_MAX;
  const swy_status s = call.run([&](swy_error* e) { return real_.packed_bytes(tensor, layout, &n, e); });
  if (s == SWY_OK) {
    call.rule(n != UINT64_MAX, "succeeded and did not set the size");
    *bytes = n;
  }
  return call.report(s);
}

swy_status Validator::pack(const swy_tensor* tensor, uint32_t layout, const void* canonical, void* packed,
                           swy_error* error) {
  Call call(*this, "pack", error);
  return call.report(call.run([&](swy_error* e) { return real_.pack(tensor, layout, canonical, packed, e); }));
}

// ---- states

swy_status Validator::state_layout(swy_device* device, const swy_op* op, uint32_t state_index, const swy_bucket* pool,
                                   swy_state_layout* out, swy_error* error) {
  Call call(*this, "state_layout", error);
  call.known(device);
  const uint32_t given = out->struct_size;
  const swy_status s =
      call.run([&](swy_error* e) { return real_.state_layout(device, op, state_index, pool, out, e); });
  if (s == SWY_OK) {
    call.filled(given, out->struct_size);
    call.rule(out->unit_bytes != 0, "a unit of state {} has no bytes", state_index);
  }
  return call.report(s);
}

swy_status Validator::state_export(swy_device* device, const swy_tensor* state, uint32_t page_size,
                                   const swy_binding* unit, void* canonical, uint64_t bytes, swy_error* error) {
  Call call(*this, "state_export", error);
  call.serial(device);
  call.inside(device, *unit, "unit", 0);
  return call.report(
      call.run([&](swy_error* e) { return real_.state_export(device, state, page_size, unit, canonical, bytes, e); }));
}

swy_status Validator::state_import(swy_device* device, const swy_tensor* state, uint32_t page_size,
                                   const swy_binding* unit, const void* canonical, uint64_t bytes, swy_error* error) {
  Call call(*this, "state_import", error);
  call.serial(device);
  call.inside(device, *unit, "unit", 0);
  return call.report(
      call.run([&](swy_error* e) { return real_.state_import(device, state, page_size, unit, canonical, bytes, e); }));
}

}  // namespace switchyard
