// SPDX-License-Identifier: Apache-2.0
// What the host does alike for all products of bytes in MOE, MOE_ADD and EXPERTS (moe_bytes.cu, moe_scaled_bytes.cu,
// moe_byte_tiles.cu).
#pragma once

#include <algorithm>

#include "grouped/bytes.h"
#include "moe_boxes.h"
#include "moe_combine.cuh"

namespace gpu {

inline uint32_t rows_of(const swy_op& op) { return static_cast<uint32_t>(swy::tensor(op, "x").dims[0]); }
inline uint32_t hidden_of(const swy_op& op) { return static_cast<uint32_t>(swy::tensor(op, "x").dims[1]); }
inline uint32_t spans_of(uint32_t width) { return ceil_div(width, kSpan); }

inline uint32_t widest_expert(const swy_op& op) {
  const swy_moe_attrs a = moe_attrs(op);
  return std::max(a.width, a.shared_width);
}

// Layout of the workspace after the operands: what sort_tiles needs, for tiles of up to `most` rows, and panels of
// `spans_of_h` spans.
inline void place_grouped(GroupedMixture& g, Arena& arena, const swy_op& op, uint32_t most, uint32_t spans_of_h) {
  const swy_moe_attrs a = moe_attrs(op);
  const uint32_t rows = rows_of(op), pairs = rows * a.top_k, slots = a.top_k + (a.shared_width != 0 ? 1 : 0);
  g.groups = ceil_div(pairs + 7 * std::min(a.experts, pairs), 8) + (a.shared_width != 0 ? ceil_div(rows, 8) : 0);
  g.most_rows = most;
  g.places = arena.take<uint32_t>(uint64_t{rows} * slots);
  g.rank = arena.take<uint32_t>(pairs);
  g.begins = arena.take<uint32_t>(a.experts + 1);
  // An expert may have more pairs than there are rows: given ids need not differ.
  g.tiles = arena.take<uint4>(pairs / most + std::min(a.experts, pairs) + ceil_div(rows, most) + 1);
  g.tile_count = arena.take<uint32_t>(1 + kMostTileGroups);
  g.pairs = arena.take<uint16_t>(uint64_t{g.groups} * 8 * spans_of(hidden_of(op)) * kSpan);
  g.x = reinterpret_cast<uint8_t*>(g.pairs);  // not larger, and read before
  g.h = arena.take<uint8_t>(uint64_t{spans_of_h} * g.groups * kBytePanel);
}

// With `next`, which may be null, also the norm of the results as bytes.
inline swy_status record_combine(const Recording& r, const GroupedMixture& g, const NormedBytes* next) {
  const uint32_t rows = rows_of(r.op);
  if (next == nullptr) return launch(r, combine_grouped, rows, kCombineThreads, 0, g, r.list.step);
  return launch(r, combine_to_bytes, rows, kCombineThreads, g.m.hidden * sizeof(float), g, *next, r.list.step);
}

inline swy_status stream_experts(const Recording& r, const Mixture& m, GateUpWeights& gate_up, DownWeights& down) {
  SWY_CUDA_TRY(stream_bytes(m.gate_up, &gate_up.gate_up, r.error));
  SWY_CUDA_TRY(stream_bytes(m.down, &down.down, r.error));
  if (m.shared_width == 0) return SWY_OK;
  SWY_CUDA_TRY(stream_bytes(m.shared_gate, &gate_up.shared_gate, r.error));
  SWY_CUDA_TRY(stream_bytes(m.shared_up, &gate_up.shared_up, r.error));
  return stream_bytes(m.shared_down, &down.shared_down, r.error);
}

}  // namespace gpu
