// SPDX-License-Identifier: Apache-2.0
#include "core/program/quantize.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "switchyard/weights.h"

namespace switchyard {
namespace {

// Eight lanes, whatever the processor has: sums are formed in the same order everywhere, so the bits are the same too.
#pragma GCC diagnostic ignored "-Wpsabi"  // such vectors are not passed between files, so their ABI does not matter
using F8 = float __attribute__((vector_size(32)));
using I8 = int32_t __attribute__((vector_size(32)));
constexpr uint64_t kLanes = 8;

F8 all(float x) { return F8{} + x; }

F8 clamp(F8 x, float low, float high) {
  x = x < low ? all(low) : x;
  return x > high ? all(high) : x;
}

// To the nearest integer, ties to even. |x| must be below 2^22.
F8 nearest(F8 x) {
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23: at this size floats are integers
  return (x + kShift) - kShift;
}

double sum(F8 x) {
  x += __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3);
  x += __builtin_shufflevector(x, x, 2, 3, 0, 1, 6, 7, 4, 5);
  return static_cast<double>(x[0]) + static_cast<double>(x[1]);
}

// Calls f(weights, mask) for each eight weights of a group. The mask is 1 where there is a weight and 0 beyond the end.
template <class F>
void for_each_lanes(std::span<const float> w, const F& f) {
  uint64_t i = 0;
  for (; i + kLanes <= w.size(); i += kLanes) {
    F8 x;
    std::memcpy(&x, w.data() + i, sizeof x);
    f(x, all(1.0f));
  }
  if (i == w.size()) return;
  F8 x{};
  F8 mask{};
  for (uint64_t lane = 0; i + lane < w.size(); ++lane) {
    x[lane] = w[i + lane];
    mask[lane] = 1.0f;
  }
  f(x, mask);
}

// One group dequantizes as q * scale + offset with q in low..high. For the symmetric encodings the offset is 0.
struct Grid {
  float low;
  float high;
};
constexpr Grid kGridI8{-127, 127};
constexpr Grid kGridI4{-8, 7};
constexpr Grid kGridI4a{0, 15};

struct Fit {
  uint16_t scale = 0;  // fp16
  uint16_t offset = 0;
  double error = 0;  // sum of squares, with the rounded scale and offset
};

struct Line {
  float scale;
  float offset;
};

float inverse(float scale) { return scale == 0 ? 0.0f : 1.0f / scale; }

F8 quants(F8 w, const Line& line, float inverse_scale, const Grid& grid) {
  return nearest(clamp((w - line.offset) * inverse_scale, grid.low, grid.high));
}

// The line with the least squared error for the quants that `line` gives, through the origin or with an offset.
struct Sums {
  double q = 0, qq = 0, w = 0, wq = 0;
};

template <bool kAffine>
Sums sums_of(std::span<const float> group, const Line& line, const Grid& grid) {
  const float inv = inverse(line.scale);
  F8 q_sum{}, qq{}, w_sum{}, wq{};
  for_each_lanes(group, [&](F8 w, F8 mask) {
    const F8 q = quants(w, line, inv, grid);
    if constexpr (kAffine) {
      const F8 kept = q * mask;
      const F8 moved = (w - line.offset) * mask;  // near 0, so that a large offset costs no digits
      q_sum += kept;
      w_sum += moved;
      qq += kept * kept;
      wq += moved * kept;
    } else {
      qq += q * q;  // a missing weight is 0, and so is its quant
      wq += w * q;
    }
  });
  return {sum(q_sum), sum(qq), sum(w_sum), sum(wq)};
}

double error_of(std::span<const float> group, const Line& line, const Grid& grid) {
  const float inv = inverse(line.scale);
  F8 total{};
  for_each_lanes(group, [&](F8 w, F8 mask) {
    const F8 difference = (w - (quants(w, line, inv, grid) * line.scale + line.offset)) * mask;
    total += difference * difference;
  });
  return sum(total);
}

bool representable(uint16_t half) { return (half & 0x7c00u) != 0x7c00u; }

// Enters `line`, rounded to fp16, if it is better than the best so far.
void consider(std::span<const float> group, const Line& line, const Grid& grid, Fit& best) {
  const uint16_t scale = f32_to_f16(line.scale);
  const uint16_t offset = f32_to_f16(line.offset);
  if (!representable(scale) || !representable(offset)) return;
  const double error = error_of(group, {swy_f16_to_f32(scale), swy_f16_to_f32(offset)}, grid);
  if (error < best.error) best = {scale, offset, error};
}

// How far the grid's end lies from the group's extreme. Walked from the widest on until it no longer gains: with more
// weights in a group, it pays more to cut off the extremes.
constexpr std::array kReach = {1.0f, 0.95f, 0.9f, 0.85f, 0.8f, 0.74f, 0.68f, 0.62f, 0.56f, 0.5f};
constexpr int kPatience = 2;     // reaches without a gain before the walk ends
constexpr int kRefinements = 2;  // of the best line: quants of the line, then the line of the quants

// Quality of a symmetric line after refitting: the error is sum w^2 - gain.
double gain_of(const Sums& s) { return s.qq > 0 ? s.wq * s.wq / s.qq : 0; }

Fit fit_symmetric(std::span<const float> group, float extreme, const Grid& grid) {
  // The grid reaches one further down than up, so the sign of the scale decides which side gets the extra step.
  const float limit = -grid.low;
  const bool lopsided = grid.high != limit;
  Fit best{0, 0, error_of(group, {0, 0}, grid)};
  Line chosen{extreme / grid.high, 0};
  consider(group, chosen, grid, best);
  double gain = gain_of(sums_of<false>(group, chosen, grid));
  for (const float side : {-1.0f, 1.0f}) {
    int patience = kPatience;
    for (size_t i = 0; i < kReach.size() && patience > 0; ++i) {
      const Line line{side * extreme * kReach[i] / limit, 0};
      if (i == 0) consider(group, line, grid, best);  // exact for weights that were on this grid before
      const Sums s = sums_of<false>(group, line, grid);
      if (const double g = gain_of(s); g > gain) {
        gain = g;
        chosen = {static_cast<float>(s.wq / s.qq), 0};
        patience = kPatience;
      } else {
        --patience;
      }
    }
    if (!lopsided) break;
  }
  for (int i = 0; i < kRefinements; ++i) {
    consider(group, chosen, grid, best);
    const Sums s = sums_of<false>(group, {swy_f16_to_f32(f32_to_f16(chosen.scale)), 0}, grid);
    if (s.qq > 0) chosen.scale = static_cast<float>(s.wq / s.qq);
  }
  consider(group, chosen, grid, best);
  return best;
}

// Least squares over (q, w): both scale and offset. False when all quants are alike.
bool refit(const Sums& s, double n, Line& line) {
  const double determinant = n * s.qq - s.q * s.q;
  if (!(determinant > 0)) return false;
  const double scale = (n * s.wq - s.q * s.w) / determinant;
  const double offset = (s.w - scale * s.q) / n;
  line = {static_cast<float>(scale), static_cast<float>(offset + static_cast<double>(line.offset))};
  return true;
}

Line rounded(const Line& line) {
  return {swy_f16_to_f32(f32_to_f16(line.scale)), swy_f16_to_f32(f32_to_f16(line.offset))};
}

Fit fit_affine(std::span<const float> group, float low, float high) {
  const double n = static_cast<double>(group.size());
  const float center = low / 2 + high / 2;
  const float half = high / 2 - low / 2;
  Fit best{0, f32_to_f16(center), 0};
  best.error = error_of(group, rounded({0, center}), kGridI4a);
  if (!representable(best.offset)) return best;  // the caller refuses it
  consider(group, {2 * half / kGridI4a.high, low}, kGridI4a, best);
  int patience = kPatience;
  for (size_t i = 0; i < kReach.size() && patience > 0; ++i) {
    const float reach = half * kReach[i];
    Line line{2 * reach / kGridI4a.high, center - reach};
    const double before = best.error;
    for (int r = 0; r < kRefinements; ++r) {
      if (!refit(sums_of<true>(group, rounded(line), kGridI4a), n, line = rounded(line))) break;
      consider(group, line, kGridI4a, best);
    }
    patience = best.error < before ? kPatience : patience - 1;
  }
  return best;
}

struct Extremes {
  float low;
  float high;
};

// False when a weight is NaN or infinite.
bool extremes_of(std::span<const float> group, Extremes& out) {
  F8 low = all(group[0]);
  F8 high = low;
  I8 magnitude{};
  for_each_lanes(group, [&](F8 w, F8 mask) {
    const F8 present = mask != 0.0f ? w : all(group[0]);
    I8 bits;
    std::memcpy(&bits, &present, sizeof bits);
    bits &= 0x7fffffff;
    magnitude = bits > magnitude ? bits : magnitude;  // integers order as magnitudes do, and a NaN lies above infinity
    low = present < low ? present : low;
    high = present > high ? present : high;
  });
  out = {low[0], high[0]};
  int32_t largest = magnitude[0];
  for (uint64_t i = 1; i < kLanes; ++i) {
    out = {std::min(out.low, low[i]), std::max(out.high, high[i])};
    largest = std::max(largest, magnitude[i]);
  }
  return largest < 0x7f800000;
}

void store_quants(std::span<const float> group, const Fit& fit, const Grid& grid, swy_dtype dtype, std::byte* out) {
  const Line line{swy_f16_to_f32(fit.scale), swy_f16_to_f32(fit.offset)};
  const float inv = inverse(line.scale);
  const int zero = dtype == SWY_I4 ? 8 : 0;  // the stored value for q = 0
  uint64_t i = 0;
  for_each_lanes(group, [&](F8 w, F8) {
    const F8 q = quants(w, line, inv, grid);
    std::array<int, kLanes> stored;
    for (uint64_t lane = 0; lane < kLanes; ++lane) stored[lane] = static_cast<int>(q[lane]) + zero;
    const uint64_t count = std::min<uint64_t>(kLanes, group.size() - i);
    for (uint64_t lane = 0; lane < count; ++lane) {
      const uint64_t at = i + lane;
      if (dtype == SWY_I8) {
        out[at] = static_cast<std::byte>(stored[lane]);
      } else if (at % 2 == 0) {
        out[at / 2] = static_cast<std::byte>(stored[lane] | zero << 4);
      } else {
        out[at / 2] = (out[at / 2] & std::byte{15}) | static_cast<std::byte>(stored[lane] << 4);
      }
    }
    i += count;
  });
}

Status refuse(std::span<const float> group, uint64_t row, uint64_t begin) {
  const auto at = std::find_if(group.begin(), group.end(), [](float x) { return !std::isfinite(x); });
  if (at != group.end()) {
    return error(Code::invalid_data,
                 "the weight at row {}, column {} is {}; a model with such weights cannot be quantized", row,
                 begin + static_cast<uint64_t>(at - group.begin()), *at);
  }
  const auto largest =
      std::max_element(group.begin(), group.end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
  return error(Code::invalid_data,
               "the weight at row {}, column {} is {}, too large for an fp16 scale; keep this tensor in bf16", row,
               begin + static_cast<uint64_t>(largest - group.begin()), *largest);
}

// False when the group cannot be represented.
bool fit_group(std::span<const float> group, swy_dtype dtype, Fit& fit) {
  Extremes e{};
  if (!extremes_of(group, e)) return false;
  if (dtype == SWY_I4A) {
    fit = fit_affine(group, e.low, e.high);
    return representable(fit.offset) && representable(f32_to_f16((e.high / 2 - e.low / 2) / 8));
  }
  const Grid& grid = dtype == SWY_I8 ? kGridI8 : kGridI4;
  const float extreme = -e.low > e.high ? e.low : e.high;
  if (!representable(f32_to_f16(extreme / grid.high))) return false;
  fit = fit_symmetric(group, extreme, grid);
  return true;
}

// Fits one group and stores its quants. False when it cannot be represented.
bool quantize_group(std::span<const float> group, swy_dtype dtype, std::byte* out, Fit& fit) {
  if (!fit_group(group, dtype, fit)) return false;
  store_quants(group, fit, dtype == SWY_I8 ? kGridI8 : dtype == SWY_I4 ? kGridI4 : kGridI4a, dtype, out);
  return true;
}

#if defined(__x86_64__)
// The same source for processors with wider registers. No multiply-add is contracted, so the bits are the same.
[[gnu::target("avx2"), gnu::flatten]] bool quantize_group_avx2(std::span<const float> group, swy_dtype dtype,
                                                               std::byte* out, Fit& fit) {
  return quantize_group(group, dtype, out, fit);
}
const auto kQuantizeGroup = __builtin_cpu_supports("avx2") ? quantize_group_avx2 : quantize_group;
#else
const auto kQuantizeGroup = quantize_group;
#endif

}  // namespace

uint16_t f32_to_f16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and above round to infinity
  if (magnitude < 0x38800000u) {  // below 2^-14: subnormal. Adding 0.5 leaves multiples of 2^-24, rounded to even
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(aligned) - std::bit_cast<uint32_t>(0.5f)));
  }
  const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

Status quantize_rows(const float* rows, uint64_t row_count, const swy_tensor& desc, const QuantizedRows& out) {
  swy_weight_planes p;
  if (swy_weight_planes_of(&desc, &p) != 0 || p.groups == 0) {
    return error(Code::internal, "a tensor of type {} is not to be quantized", desc.dtype);
  }
  const uint64_t scales = row_count * p.groups;
  if (out.quants.size() != row_count * p.row_bytes || out.scales.size() != scales ||
      out.offsets.size() != (desc.dtype == SWY_I4A ? scales : 0)) {
    return error(Code::internal, "the planes of {} rows have the wrong size", row_count);
  }
  const auto padding = static_cast<std::byte>(desc.dtype == SWY_I4 ? 0x88 : 0);  // q = 0
  const uint64_t in = desc.dims[desc.rank - 1];
  for (uint64_t row = 0; row < row_count; ++row) {
    for (uint64_t g = 0; g < p.groups; ++g) {
      const uint64_t begin = g * p.group_size;
      const std::span group(rows + row * in + begin, std::min(p.group_size, in - begin));
      std::byte* quants_at = out.quants.data() + row * p.row_bytes + g * p.group_bytes;
      std::fill_n(quants_at, p.group_bytes, padding);
      Fit fit;
      if (!kQuantizeGroup(group, desc.dtype, quants_at, fit)) return refuse(group, row, begin);
      out.scales[row * p.groups + g] = fit.scale;
      if (!out.offsets.empty()) out.offsets[row * p.groups + g] = fit.offset;
    }
  }
  return {};
}

}  // namespace switchyard
