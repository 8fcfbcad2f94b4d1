// SPDX-License-Identifier: Apache-2.0
// C++ SDK: states in the memory of a device that is not the host's, and their way from and to the canonical form.
//
//   KV      pages of tokens; per page [kv_heads][k, v][page_size][head_dim], in bf16 or fp32
//   delta   [value_heads][value_dim][key_dim] fp32, so that one column of the rule is contiguous
//   others  canonical
//
// Host code only: it brings a unit (a slot, or a page) from one form to the other; the backend copies it.
#pragma once

#include <cstdint>
#include <vector>

#include "switchyard/plugin.h"
#include "switchyard/sdk/error.hpp"
#include "switchyard/weights.h"

#pragma GCC visibility push(hidden)  // so that two plugins with this code share none of it

namespace swy {

// Layout ids.
enum : uint32_t { kStateCanonical = 0, kStateKvBf16 = 1, kStateKvF32 = 2, kStateDeltaByColumn = 3 };

// One state, as a device keeps it. [thread-safe]
class DeviceState {
 public:
  DeviceState(const swy_tensor& tensor, uint32_t page_size, bool kv_bf16)
      : t_(tensor), page_size_(page_size), bf16_(kv_bf16 && is_kv()) {}

  uint32_t layout() const {
    return is_kv() ? (bf16_ ? kStateKvBf16 : kStateKvF32) : is_delta() ? kStateDeltaByColumn : kStateCanonical;
  }
  uint64_t canonical_bytes() const { return elements() * 4 * (t_.state == SWY_STATE_PAGED ? page_size_ : 1); }
  uint64_t unit_bytes() const { return canonical_bytes() / (bf16_ ? 2 : 1); }

  // Whether `unit` and `bytes` of canonical form are what this state has.
  swy_status check(const swy_binding& unit, uint64_t bytes, swy_error* error) const {
    if (t_.dtype != SWY_F32 && t_.dtype != SWY_I32) {
      return fail(error, SWY_UNSUPPORTED, SWY_REASON_DTYPE, "states are f32 or i32, not of type %u", t_.dtype);
    }
    if (bytes == canonical_bytes() && unit.bytes >= unit_bytes()) return SWY_OK;
    return fail(error, SWY_INVALID_ARGUMENT, SWY_REASON_SHAPE, "a unit of this state has %llu bytes, not %llu",
                static_cast<unsigned long long>(canonical_bytes()), static_cast<unsigned long long>(bytes));
  }

  // unit_bytes of the device's form to canonical_bytes.
  void to_canonical(const std::vector<char>& unit, void* canonical) const {
    auto* to = static_cast<uint32_t*>(canonical);
    if (bf16_) {
      const auto* from = reinterpret_cast<const uint16_t*>(unit.data());
      for_each_element([&](uint64_t c, uint64_t d) { to[c] = uint32_t{from[d]} << 16; });
    } else {
      const auto* from = reinterpret_cast<const uint32_t*>(unit.data());
      for_each_element([&](uint64_t c, uint64_t d) { to[c] = from[d]; });
    }
  }
  std::vector<char> from_canonical(const void* canonical) const {
    std::vector<char> unit(unit_bytes());
    if (bf16_) {
      const auto* from = static_cast<const float*>(canonical);
      auto* to = reinterpret_cast<uint16_t*>(unit.data());
      for_each_element([&](uint64_t c, uint64_t d) { to[d] = swy_f32_to_bf16(from[c]); });
    } else {
      const auto* from = static_cast<const uint32_t*>(canonical);
      auto* to = reinterpret_cast<uint32_t*>(unit.data());
      for_each_element([&](uint64_t c, uint64_t d) { to[d] = from[c]; });
    }
    return unit;
  }

 private:
  bool is_kv() const { return t_.state == SWY_STATE_PAGED && t_.rank == 3; }
  bool is_delta() const { return t_.state == SWY_STATE_SLOTTED && t_.rank == 3; }
  uint64_t elements() const {
    uint64_t n = 1;
    for (uint32_t i = 0; i < t_.rank; ++i) n *= t_.dims[i];
    return n;
  }

  // Calls body(index in the canonical unit, index in the device's unit) for every element.
  template <class Body>
  void for_each_element(Body body) const {
    if (is_kv()) {
      const uint64_t heads = t_.dims[1], dim = t_.dims[2];
      for (uint64_t token = 0; token < page_size_; ++token) {
        for (uint64_t which = 0; which < 2; ++which) {
          for (uint64_t h = 0; h < heads; ++h) {
            const uint64_t from = ((token * 2 + which) * heads + h) * dim;
            const uint64_t to = ((h * 2 + which) * page_size_ + token) * dim;
            for (uint64_t i = 0; i < dim; ++i) body(from + i, to + i);
          }
        }
      }
    } else if (is_delta()) {
      const uint64_t keys = t_.dims[1], values = t_.dims[2];
      for (uint64_t h = 0; h < t_.dims[0]; ++h) {
        for (uint64_t k = 0; k < keys; ++k) {
          for (uint64_t v = 0; v < values; ++v) body((h * keys + k) * values + v, (h * values + v) * keys + k);
        }
      }
    } else {
      for (uint64_t i = 0; i < elements(); ++i) body(i, i);
    }
  }

  const swy_tensor& t_;
  uint32_t page_size_;
  bool bf16_;
};

}  // namespace swy

#pragma GCC visibility pop
