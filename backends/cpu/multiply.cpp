// SPDX-License-Identifier: Apache-2.0
// multiply for processors without useful vector instructions, and the choice between the versions.
#include "multiply.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "isa.h"
#include "switchyard/weights.h"

namespace cpu {
namespace detail {
namespace {

float half_at(const uint8_t* p, uint64_t i) {
  uint16_t h;
  std::memcpy(&h, p + 2 * i, 2);
  return swy_f16_to_f32(h);
}

// The scale of row n at `p`, as the products of the encoding need it.
float weight_scale(swy_dtype dtype, const uint8_t* p, uint32_t n) {
  return dtype == SWY_MXFP4 ? swy_e8m0_to_f32(p[n]) * 0.5f : half_at(p, n);
}

// sums[n] = sum over the block of (u - zero point) * q.
void block_sums(const PanelShape& s, const uint8_t* line, const int8_t* q, int32_t row_sum, int32_t* sums) {
  const bool bytes = s.dtype == SWY_I8;
  const int32_t zero = bytes ? 128 : s.dtype == SWY_I4 ? 8 : 0;
  std::fill(sums, sums + kPanelRows, -zero * row_sum);
  for (uint32_t k = 0; k < s.block; k += bytes ? 4 : 8, line += 64) {
    for (uint32_t i = 0; i < 64; ++i) {
      const uint32_t n = i / 4, e = i % 4;
      if (bytes) {
        sums[n] += line[i] * q[k + e];
      } else if (s.dtype == SWY_MXFP4) {
        sums[n] += kTwiceE2m1[line[i] & 15] * q[k + e] + kTwiceE2m1[line[i] >> 4] * q[k + 4 + e];
      } else {
        sums[n] += (line[i] & 15) * q[k + e] + (line[i] >> 4) * q[k + 4 + e];
      }
    }
  }
}

}  // namespace

void multiply_baseline(const PanelShape& s, const uint8_t* panel, const RowFormat& format, const uint8_t* rows,
                       uint32_t m, float* out) {
  for (uint32_t r = 0; r < m; ++r, rows += format.bytes, out += kPanelRows) {
    const auto* q = reinterpret_cast<const int8_t*>(rows);
    std::fill(out, out + kPanelRows, 0.0f);
    for (uint64_t b = 0; b < s.blocks; ++b) {
      int32_t dots[kPanelRows];
      block_sums(s, panel + b * s.block_bytes, q + b * s.block, sum_at(rows, format, b), dots);
      const float scale = scale_at(rows, format, b);
      const uint64_t g = s.groups == 1 ? 0 : b * s.group_bytes;
      for (uint32_t n = 0; n < kPanelRows; ++n) {
        const float scaled = static_cast<float>(dots[n]) * scale;
        out[n] = std::fma(scaled, weight_scale(s.dtype, panel + s.scales_at + g, n), out[n]);
        if (s.dtype == SWY_I4A) {
          const float sum = static_cast<float>(sum_at(rows, format, b)) * scale;
          out[n] = std::fma(sum, half_at(panel + s.offsets_at + g, n), out[n]);
        }
      }
    }
  }
}

}  // namespace detail

void multiply(const PanelShape& shape, const uint8_t* panel, const RowFormat& format, const uint8_t* rows, uint32_t m,
              float* out) {
  const Isa level = isa();
  const auto f = level >= Isa::avx512 ? detail::multiply_avx512
                 : level >= Isa::avx2 ? detail::multiply_avx2
                                      : detail::multiply_baseline;
  f(shape, panel, format, rows, m, out);
}

}  // namespace cpu
