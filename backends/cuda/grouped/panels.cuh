// SPDX-License-Identifier: Apache-2.0
// Activations as the second operand of grouped products: panels [span][group of 8 rows][2048 bytes], in the order of
// the weights' registers (grouped_rows.cuh), and with 16-byte pieces permuted as wgmma expects.
#pragma once

#include <cuda_bf16.h>

#include "grouped.h"

namespace gpu {

// Where element i of row r lies in panels of `groups` groups of 8 rows, in bytes.
__host__ __device__ inline uint64_t panel_offset(uint64_t groups, uint64_t r, uint32_t i) {
  const uint32_t in = i % kSpan, t = in / 32, u = in % 32 / 8, e = in % 8;
  const uint32_t step = u * 2 + e % 4 / 2, at = (e % 2) * 8 + t * 2 + e / 4;  // of 8 steps of 16 elements
  const uint32_t piece = (step % 4) * 2 + at / 8, row = r % 8;
  return ((i / kSpan) * groups + r / 8) * kPanelBytes + step / 4 * 1024 + row * 128 + (piece ^ row) * 16 + at % 8 * 2;
}

// Where one of the 16 pieces of a row's span lies in its panel: two per step of 16 elements.
__host__ __device__ inline uint32_t panel_piece_offset(uint32_t row, uint32_t piece) {
  return piece / 8 * 1024 + row % 8 * 128 + ((piece % 8) ^ (row % 8)) * 16;
}
// That piece, of the elements value(0) to value(127) of the span.
template <class Value>
__device__ inline uint4 panel_piece(uint32_t piece, Value value) {
  const uint32_t step = piece / 2, first = step / 2 * 8 + step % 2 * 2 + piece % 2;
  uint32_t out[4];
#pragma unroll
  for (uint32_t t = 0; t < 4; ++t) {
    const __nv_bfloat162 v = __floats2bfloat162_rn(value(t * 32 + first), value(t * 32 + first + 4));
    out[t] = *reinterpret_cast<const uint32_t*>(&v);
  }
  return make_uint4(out[0], out[1], out[2], out[3]);
}

}  // namespace gpu
