// SPDX-License-Identifier: Apache-2.0
// What narrow.cuh does, on cards without wgmma: products of many rows with a bf16 weight of few rows, nearly in fp32.
// The activations are two bf16 terms, each multiplied in tiles (tiles.cuh).
#pragma once

#include "common/tiles.cuh"

namespace gpu {

// y [rows, rows of w] = x * w^T.
struct TermTiles {
  const float* x;   // [rows, width of w]
  uint16_t* terms;  // [rows, 2, permuted width]: what is left of x in bf16 comes second
  float* y;
  Weight w;
  swy_rows domain;
};
inline uint64_t term_elements(uint32_t rows, uint32_t width) { return uint64_t{rows} * 2 * permuted_width(width); }
swy_status record_term_tiles(const Recording& r, const TermTiles& p, uint32_t rows);

}  // namespace gpu
