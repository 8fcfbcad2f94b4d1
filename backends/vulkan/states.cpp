// How states lie in device memory, and their way from and to the canonical form.
//
//   KV      pages of tokens; per page [kv_heads][k, v][page_size][head_dim], in bf16 or fp32 (option kv_bf16)
//   delta   [value_heads][value_dim][key_dim] fp32, so that one column of the rule is contiguous
//   others  canonical
#include <cstring>
#include <vector>

#include "device.h"
#include "kernels.h"
#include "switchyard/sdk/error.hpp"
#include "switchyard/weights.h"

namespace gpu {
namespace {

uint64_t elements(const swy_tensor& t) {
  uint64_t n = 1;
  for (uint32_t i = 0; i < t.rank; ++i) n *= t.dims[i];
  return n;
}
uint64_t canonical_bytes(const swy_tensor& t, uint32_t page_size) {
  return elements(t) * 4 * (t.state == SWY_STATE_PAGED ? page_size : 1);
}
bool is_kv(const swy_tensor& t) { return t.state == SWY_STATE_PAGED && t.rank == 3; }
bool is_delta(const swy_tensor& t) { return t.state == SWY_STATE_SLOTTED && t.rank == 3; }

// Calls body(index in the canonical unit, index in the device's unit) for every element.
template <class Body>
void for_each_element(const swy_tensor& t, uint32_t page_size, Body body) {
  if (is_kv(t)) {
    const uint64_t heads = t.dims[1], dim = t.dims[2];
    for (uint64_t token = 0; token < page_size; ++token) {
      for (uint64_t which = 0; which < 2; ++which) {
        for (uint64_t h = 0; h < heads; ++h) {
          const uint64_t from = ((token * 2 + which) * heads + h) * dim;
          const uint64_t to = ((h * 2 + which) * page_size + token) * dim;
          for (uint64_t i = 0; i < dim; ++i) body(from + i, to + i);
        }
      }
    }
  } else if (is_delta(t)) {
    const uint64_t keys = t.dims[1], values = t.dims[2];
    for (uint64_t h = 0; h < t.dims[0]; ++h) {
      for (uint64_t k = 0; k < keys; ++k) {
        for (uint64_t v = 0; v < values; ++v) body((h * keys + k) * values + v, (h * values + v) * keys + k);
      }
    }
  } else {
    for (uint64_t i = 0; i < elements(t); ++i) body(i, i);
  }
}

uint64_t unit_bytes(const swy_device& d, const swy_tensor& t, uint32_t page_size) {
  return canonical_bytes(t, page_size) / (is_kv(t) && d.kv_bf16 ? 2 : 1);
}

swy_status check_unit(const swy_device& d, const swy_tensor& state, uint32_t page_size, const swy_binding& unit,
                      uint64_t bytes, swy_error* error) {
  if (state.dtype != SWY_F32 && state.dtype != SWY_I32) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_DTYPE, "states are f32 or i32, not of type %u", state.dtype);
  }
  if (bytes == canonical_bytes(state, page_size) && unit.bytes >= unit_bytes(d, state, page_size)) return SWY_OK;
  return swy::fail(error, SWY_INVALID_ARGUMENT, SWY_REASON_SHAPE, "a unit of this state has %llu bytes, not %llu",
                   static_cast<unsigned long long>(canonical_bytes(state, page_size)),
                   static_cast<unsigned long long>(bytes));
}

}  // namespace

swy_status state_layout(swy_device* device, const swy_op* op, uint32_t index, const swy_bucket* pool,
                        swy_state_layout* out, swy_error* error) {
  if (index >= op->state_count) {
    return swy::fail(error, SWY_INVALID_ARGUMENT, SWY_REASON_NONE, "the operation has no state %u", index);
  }
  const swy_tensor& t = *op->states[index];
  out->layout = is_kv(t) ? (device->kv_bf16 ? kKvBf16 : kKvF32) : is_delta(t) ? kDeltaByColumn : 0;
  out->unit_bytes = unit_bytes(*device, t, pool->page_size);
  return SWY_OK;
}

swy_status state_export(swy_device* device, const swy_tensor* state, uint32_t page_size, const swy_binding* unit,
                        void* canonical, uint64_t bytes, swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    if (const swy_status s = check_unit(*device, *state, page_size, *unit, bytes, error); s != SWY_OK) return s;
    std::vector<char> raw(unit_bytes(*device, *state, page_size));
    if (const swy_status s = read(device, raw.data(), unit->buffer, unit->offset, raw.size(), nullptr, error);
        s != SWY_OK) {
      return s;
    }
    auto* to = static_cast<uint32_t*>(canonical);
    if (is_kv(*state) && device->kv_bf16) {
      const auto* from = reinterpret_cast<const uint16_t*>(raw.data());
      for_each_element(*state, page_size, [&](uint64_t c, uint64_t d) { to[c] = uint32_t{from[d]} << 16; });
    } else {
      const auto* from = reinterpret_cast<const uint32_t*>(raw.data());
      for_each_element(*state, page_size, [&](uint64_t c, uint64_t d) { to[c] = from[d]; });
    }
    return SWY_OK;
  });
}

swy_status state_import(swy_device* device, const swy_tensor* state, uint32_t page_size, const swy_binding* unit,
                        const void* canonical, uint64_t bytes, swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    if (const swy_status s = check_unit(*device, *state, page_size, *unit, bytes, error); s != SWY_OK) return s;
    std::vector<char> raw(unit_bytes(*device, *state, page_size));
    if (is_kv(*state) && device->kv_bf16) {
      const auto* from = static_cast<const float*>(canonical);
      auto* to = reinterpret_cast<uint16_t*>(raw.data());
      for_each_element(*state, page_size, [&](uint64_t c, uint64_t d) { to[d] = swy_f32_to_bf16(from[c]); });
    } else {
      const auto* from = static_cast<const uint32_t*>(canonical);
      auto* to = reinterpret_cast<uint32_t*>(raw.data());
      for_each_element(*state, page_size, [&](uint64_t c, uint64_t d) { to[d] = from[c]; });
    }
    return write(device, unit->buffer, unit->offset, raw.data(), raw.size(), nullptr, error);
  });
}

}  // namespace gpu
