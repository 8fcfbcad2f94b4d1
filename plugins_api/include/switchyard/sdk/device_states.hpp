// SPDX-License-Identifier: Apache-2.0
// C++ SDK: states in the memory of a device that is not the host's, and their way from and to the canonical form.
//
//   KV      pages of tokens; per page [kv_heads][k, v][page_size] rows of head_dim elements
//   delta   [value_heads][value_dim] rows of key_dim elements, so that one column of the rule is contiguous
//   others  canonical
//
// Elements are fp32, or the device has chosen a shorter form (StateForms):
//
//   KV in bf16
//   KV in 8 bits      signed bytes, then an fp32 scale per row, then zeros up to a whole number of rows, so that the
//                     pool is a matrix of rows of head_dim bytes. An element is byte * scale; the row's largest
//                     magnitude is 127 * scale
//   delta in 16 bits  unsigned 16-bit integers, then an fp32 scale per row, then zeros up to a multiple of 16 bytes. An
//                     element is (integer - 32,768) * scale; the scale is the least power of two with which the row
//                     fits
//
// Rounding is to nearest, ties to even. A row whose largest magnitude is below 1e-30 is a row of zeros (scale 0). So a
// unit of zero bytes is a state of zeros in every form. A row with a NaN or an infinity becomes NaNs. So does a row of
// delta in 16 bits whose largest magnitude is above 32,767 * 2^104 (nearly 2^119): with a larger scale, a device that
// computes (2^23 + integer) * scale would overflow. States stay far below that: since keys have unit length, they are
// about as large as the values.
//
// Host code only: it brings a unit (a slot, or a page) from one form to the other; the backend copies it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "switchyard/plugin.h"
#include "switchyard/sdk/error.hpp"
#include "switchyard/weights.h"

#pragma GCC visibility push(hidden)  // so that two plugins with this code share none of it

namespace swy {

// Layout ids.
enum : uint32_t {
  kStateCanonical = 0,
  kStateKvBf16 = 1,
  kStateKvF32 = 2,
  kStateDeltaByColumn = 3,
  kStateKvI8 = 4,
  kStateDeltaI16 = 5
};

// What a device keeps in fewer than 32 bits an element.
struct StateForms {
  bool kv_bf16 = false;
  bool kv_i8 = false;  // kv_bf16 does not count then
  bool delta_i16 = false;
};

// One state, as a device keeps it. [thread-safe]
class DeviceState {
 public:
  DeviceState(const swy_tensor& tensor, uint32_t page_size, const StateForms& forms)
      : t_(tensor), page_size_(page_size), layout_(layout_of(tensor, forms)) {
    uint64_t units = t_.state == SWY_STATE_PAGED ? page_size_ : 1;
    for (uint32_t i = 0; i < t_.rank; ++i) units *= t_.dims[i];
    width_ = is_kv(t_) ? t_.dims[2] : is_delta(t_) ? t_.dims[1] : units;
    rows_ = units / std::max<uint64_t>(width_, 1);
  }

  uint32_t layout() const { return layout_; }
  uint64_t canonical_bytes() const { return rows_ * width_ * 4; }
  uint64_t unit_bytes() const {
    const uint64_t elements = rows_ * width_;
    switch (layout_) {
      case kStateKvBf16:
        return elements * 2;
      case kStateKvI8:
        return up(elements + rows_ * 4, std::max<uint64_t>(width_, 1));
      case kStateDeltaI16:
        return up(elements * 2 + rows_ * 4, 16);
      default:
        return elements * 4;
    }
  }

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
    std::vector<uint32_t> row(width_);
    for_each_row([&](uint64_t number, uint64_t first, uint64_t stride) {
      take_row(unit.data(), number, row.data());
      for (uint64_t i = 0; i < width_; ++i) to[first + i * stride] = row[i];
    });
  }
  std::vector<char> from_canonical(const void* canonical) const {
    const auto* from = static_cast<const uint32_t*>(canonical);
    std::vector<char> unit(unit_bytes());
    std::vector<uint32_t> row(width_);
    for_each_row([&](uint64_t number, uint64_t first, uint64_t stride) {
      for (uint64_t i = 0; i < width_; ++i) row[i] = from[first + i * stride];
      put_row(row.data(), number, unit.data());
    });
    return unit;
  }

 private:
  static constexpr float kLeast = 1e-30f;  // rows below it are zeros

  static bool is_kv(const swy_tensor& t) { return t.state == SWY_STATE_PAGED && t.rank == 3; }
  static bool is_delta(const swy_tensor& t) { return t.state == SWY_STATE_SLOTTED && t.rank == 3; }
  static uint32_t layout_of(const swy_tensor& t, const StateForms& forms) {
    if (is_kv(t)) return forms.kv_i8 ? kStateKvI8 : forms.kv_bf16 ? kStateKvBf16 : kStateKvF32;
    if (is_delta(t)) return forms.delta_i16 ? kStateDeltaI16 : kStateDeltaByColumn;
    return kStateCanonical;
  }
  static uint64_t up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

  // Calls body(row of the device's unit, its first element in the canonical unit, the distance of its elements there).
  template <class Body>
  void for_each_row(Body body) const {
    for (uint64_t r = 0; r < rows_; ++r) {
      if (is_kv(t_)) {
        const uint64_t token = r % page_size_, which = r / page_size_ % 2, head = r / page_size_ / 2;
        body(r, ((token * 2 + which) * t_.dims[1] + head) * width_, 1);
      } else if (is_delta(t_)) {
        const uint64_t values = t_.dims[2];
        body(r, r / values * width_ * values + r % values, values);
      } else {
        body(r, r * width_, 1);
      }
    }
  }

  // ---- a row, whose elements are bits of fp32

  // Where a row's scale is in the unit.
  uint64_t scale_at(uint64_t row) const { return rows_ * width_ * (layout_ == kStateKvI8 ? 1 : 2) + row * 4; }
  static float value(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
  }
  static uint32_t bits(float x) {
    uint32_t b;
    std::memcpy(&b, &x, sizeof b);
    return b;
  }
  // 0 for a row of zeros, NaN for one that is not finite.
  float largest(const uint32_t* row) const {
    float most = 0;
    for (uint64_t i = 0; i < width_; ++i) {
      const float x = std::fabs(value(row[i]));
      if (!std::isfinite(x)) return std::nanf("");
      most = std::max(most, x);
    }
    return most < kLeast ? 0 : most;
  }
  static float rounded(uint32_t x, float times) { return times > 0 ? std::nearbyint(value(x) * times) : 0; }
  // Of a row in 16 bits with this largest magnitude: the least power of two with which it fits; 0 for zeros.
  static float scale_of_shorts(float most) {
    if (!(most > 0)) return most;
    const float scale = power_up(most) / 32768;
    const float fitting = most > 32767 * scale ? 2 * scale : scale;
    return fitting > 0x1p104f ? std::nanf("") : fitting;
  }
  // The least power of two that is not below x.
  static float power_up(float x) { return value((bits(x) + 0x7fffffu) & 0xff800000u); }

  void take_row(const char* unit, uint64_t number, uint32_t* to) const {
    const uint64_t at = number * width_;
    float scale = 0;
    switch (layout_) {
      case kStateKvBf16:
        for (uint64_t i = 0; i < width_; ++i) {
          to[i] = uint32_t{reinterpret_cast<const uint16_t*>(unit)[at + i]} << 16;
        }
        return;
      case kStateKvI8:
        std::memcpy(&scale, unit + scale_at(number), sizeof scale);
        for (uint64_t i = 0; i < width_; ++i) {
          to[i] = bits(static_cast<float>(reinterpret_cast<const int8_t*>(unit)[at + i]) * scale);
        }
        return;
      case kStateDeltaI16:
        std::memcpy(&scale, unit + scale_at(number), sizeof scale);
        for (uint64_t i = 0; i < width_; ++i) {
          to[i] = bits((static_cast<float>(reinterpret_cast<const uint16_t*>(unit)[at + i]) - 32768.0f) * scale);
        }
        return;
      default:
        std::memcpy(to, unit + at * 4, width_ * 4);
    }
  }
  void put_row(const uint32_t* from, uint64_t number, char* unit) const {
    const uint64_t at = number * width_;
    switch (layout_) {
      case kStateKvBf16:
        for (uint64_t i = 0; i < width_; ++i) {
          reinterpret_cast<uint16_t*>(unit)[at + i] = swy_f32_to_bf16(value(from[i]));
        }
        return;
      case kStateKvI8: {
        const float most = largest(from), scale = most / 127, times = most > 0 ? 127 / most : 0;
        for (uint64_t i = 0; i < width_; ++i) {
          reinterpret_cast<int8_t*>(unit)[at + i] = static_cast<int8_t>(rounded(from[i], times));
        }
        std::memcpy(unit + scale_at(number), &scale, sizeof scale);
        return;
      }
      case kStateDeltaI16: {
        const float scale = scale_of_shorts(largest(from)), times = scale > 0 ? 1 / scale : 0;
        for (uint64_t i = 0; i < width_; ++i) {
          reinterpret_cast<uint16_t*>(unit)[at + i] = static_cast<uint16_t>(32768 + rounded(from[i], times));
        }
        std::memcpy(unit + scale_at(number), &scale, sizeof scale);
        return;
      }
      default:
        std::memcpy(unit + at * 4, from, width_ * 4);
    }
  }

  const swy_tensor& t_;
  uint32_t page_size_, layout_;
  uint64_t rows_ = 0, width_ = 0;  // of the device's unit
};

}  // namespace swy

#pragma GCC visibility pop
