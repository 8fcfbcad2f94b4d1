// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/quantize.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "plugins_api/check/failure.h"
#include "switchyard/weights.h"

namespace switchyard::check {
namespace {

double half_value(uint16_t h) {
  const int exponent = (h >> 10) & 31;
  const double m = exponent == 0 ? std::ldexp(h & 1023, -24) : std::ldexp(1024 + (h & 1023), exponent - 25);
  return (h & 0x8000) != 0 ? -m : m;
}

// ---- SWY_MXFP4, from its definition: a sign, two bits of exponent, one of fraction; a power of two per group

const std::array<double, 16> kE2m1 = [] {
  std::array<double, 16> values{};
  for (int q = 0; q < 16; ++q) {
    const int exponent = (q >> 1) & 3, fraction = q & 1;
    const double magnitude = exponent == 0 ? 0.5 * fraction : std::ldexp(1 + 0.5 * fraction, exponent - 1);
    values[static_cast<size_t>(q)] = (q & 8) != 0 ? -magnitude : magnitude;
  }
  return values;
}();

// The scale's byte for which the largest value is at most 6 times the scale, rounded up. Groups of zeros get the
// smallest scales there are.
uint8_t mxfp4_scale(const float* x, uint64_t n) {
  double largest = 0;
  for (uint64_t i = 0; i < n; ++i) largest = std::max(largest, std::fabs(static_cast<double>(x[i])));
  const double exponent = largest == 0 ? -127 : std::ceil(std::log2(largest / 6));
  return static_cast<uint8_t>(std::clamp(exponent + 127, 0.0, 254.0));
}

void encode_mxfp4(const float* x, uint64_t n, uint8_t* quants, uint8_t* scale, double* values) {
  *scale = mxfp4_scale(x, n);
  const double s = std::ldexp(1.0, *scale - 127);
  for (uint64_t i = 0; i < n; ++i) {
    uint32_t best = 0;
    double distance = std::fabs(x[i] - kE2m1[0] * s);
    for (uint32_t q = 1; q < 16; ++q) {
      const double other = std::fabs(x[i] - kE2m1[q] * s);
      if (other < distance) best = q;
      distance = std::min(distance, other);
    }
    quants[i / 2] = static_cast<uint8_t>(quants[i / 2] | (best << (i % 2 * 4)));
    values[i] = kE2m1[best] * s;
  }
}

// Where a group goes: its quants, scale and offset in the segment, and its values.
struct Places {
  uint8_t *quants, *scale, *offset;
  double* values;
};

int nearest(double x) { return static_cast<int>(x < 0 ? x - 0.5 : x + 0.5); }

void encode_group(const float* x, uint64_t n, swy_dtype dtype, const Places& to) {
  const auto [low, high] = std::minmax_element(x, x + n);
  const double largest = std::max(std::fabs(*low), std::fabs(*high));
  const double step = dtype == SWY_I8 ? largest / 127 : dtype == SWY_I4 ? largest / 7 : (*high - *low) / 15;
  const uint16_t scale = to_half(static_cast<float>(std::max(step, 1e-6)));
  const uint16_t offset = dtype == SWY_I4A ? to_half(*low) : 0;
  std::memcpy(to.scale, &scale, 2);
  if (dtype == SWY_I4A) std::memcpy(to.offset, &offset, 2);
  const double s = half_value(scale), o = half_value(offset);
  const double least = dtype == SWY_I8 ? -127 : dtype == SWY_I4 ? -8 : 0, most = dtype == SWY_I8 ? 127 : least + 15;
  for (uint64_t i = 0; i < n; ++i) {
    const int q = nearest(std::clamp((x[i] - o) / s, least, most));
    to.values[i] = q * s + o;
    if (dtype == SWY_I8) {
      to.quants[i] = static_cast<uint8_t>(q);
    } else {
      to.quants[i / 2] = static_cast<uint8_t>(to.quants[i / 2] | ((q - static_cast<int>(least)) << (i % 2 * 4)));
    }
  }
}

}  // namespace

uint16_t to_half(float x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const double a = std::fabs(static_cast<double>(x));
  if (a == 0) return sign;
  int exponent = 0;
  std::frexp(a, &exponent);                        // a in [2^(exponent - 1), 2^exponent)
  const int least = std::max(exponent - 11, -24);  // of the last place
  const double places = std::nearbyint(std::ldexp(a, -least));
  if (least == -24) return static_cast<uint16_t>(sign | static_cast<uint16_t>(places));
  return static_cast<uint16_t>(sign | (((least + 24) << 10) + static_cast<int>(places)));
}

void encode_weight(Weight& w, const std::vector<float>& values) {
  swy_weight_planes p;
  if (swy_weight_planes_of(&w.desc, &p) != 0) throw Failure("a case has a weight that weights.h cannot describe");
  const uint64_t in = w.desc.dims[w.desc.rank - 1];
  std::vector<std::byte> segment(p.total_bytes);
  std::vector<double> encoded(values.size());
  auto* base = reinterpret_cast<uint8_t*>(segment.data());
  for (uint64_t i = 0; p.groups == 0 && i < values.size(); ++i) {
    if (w.desc.dtype == SWY_F32) {
      std::memcpy(base + 4 * i, &values[i], 4);
      encoded[i] = values[i];
    } else {
      const uint16_t h = swy_f32_to_bf16(values[i]);
      std::memcpy(base + 2 * i, &h, 2);
      encoded[i] = swy_bf16_to_f32(h);
    }
  }
  for (uint64_t r = 0; r < p.rows; ++r) {
    for (uint64_t k = 0; k < p.groups; ++k) {
      const uint64_t begin = r * in + k * p.group_size, n = std::min(p.group_size, in - k * p.group_size);
      const uint64_t group = r * p.groups + k;
      uint8_t* quants = base + r * p.row_bytes + k * p.group_bytes;
      if (w.desc.dtype == SWY_MXFP4) {
        encode_mxfp4(values.data() + begin, n, quants, base + p.scales + group, &encoded[begin]);
      } else {
        encode_group(values.data() + begin, n, w.desc.dtype,
                     {quants, base + p.scales + group * 2, base + p.offsets + group * 2, &encoded[begin]});
      }
    }
  }
  w.segment = Shared(std::move(segment));
  w.values = Shared(std::move(encoded));
}

}  // namespace switchyard::check
