// States of the device: the SDK knows how they lie (sdk/device_states.hpp); this copies them.
#include "switchyard/sdk/device_states.hpp"

#include "device.h"

namespace gpu {

swy_status state_layout(swy_device* device, const swy_op* op, uint32_t index, const swy_bucket* pool,
                        swy_state_layout* out, swy_error* error) {
  if (index >= op->state_count) {
    return swy::fail(error, SWY_INVALID_ARGUMENT, SWY_REASON_NONE, "the operation has no state %u", index);
  }
  const swy::DeviceState state(*op->states[index], pool->page_size, device->kv_bf16);
  out->layout = state.layout();
  out->unit_bytes = state.unit_bytes();
  return SWY_OK;
}

swy_status state_export(swy_device* device, const swy_tensor* state, uint32_t page_size, const swy_binding* unit,
                        void* canonical, uint64_t bytes, swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    const swy::DeviceState form(*state, page_size, device->kv_bf16);
    if (const swy_status s = form.check(*unit, bytes, error); s != SWY_OK) return s;
    std::vector<char> raw(form.unit_bytes());
    if (const swy_status s = read(device, raw.data(), unit->buffer, unit->offset, raw.size(), nullptr, error);
        s != SWY_OK) {
      return s;
    }
    form.to_canonical(raw, canonical);
    return SWY_OK;
  });
}

swy_status state_import(swy_device* device, const swy_tensor* state, uint32_t page_size, const swy_binding* unit,
                        const void* canonical, uint64_t bytes, swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    const swy::DeviceState form(*state, page_size, device->kv_bf16);
    if (const swy_status s = form.check(*unit, bytes, error); s != SWY_OK) return s;
    const std::vector<char> raw = form.from_canonical(canonical);
    return write(device, unit->buffer, unit->offset, raw.data(), raw.size(), nullptr, error);
  });
}

}  // namespace gpu
