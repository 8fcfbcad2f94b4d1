// SPDX-License-Identifier: Apache-2.0
// MOE, MOE_ADD and EXPERTS for many rows with activations as bytes, on cards without wgmma (byte_tiles.cuh): the
// kernels of moe_bytes.cuh, but for the products, and a router by term_tiles.h.
#include "moe_byte_tiles.h"

#include "grouped/byte_tiles.cuh"
#include "grouped/term_tiles.h"
#include "moe_byte_parts.cuh"
#include "moe_byte_rows.cuh"
#include "moe_combine.cuh"

namespace gpu {
namespace {

// What both products do alike. steps: tiles of an expert's rows.
struct ExpertTiles {
  const ByteMixture& b;
  uint32_t steps;

  __device__ uint32_t total() const { return *b.g.tile_count * steps; }
  __device__ uint64_t span_stride() const { return uint64_t{b.g.groups} * kBytePanel; }
  // The ith tile, but for its weights, with its columns from `column` on.
  __device__ ByteTile tile(uint32_t i, uint32_t columns, const uint8_t* panels, uint32_t width) const {
    const uint4 of = __ldg(b.g.tiles + i / steps);
    ByteTile t;
    t.x = panels + uint64_t{of.y} * kBytePanel;
    t.groups = (of.z + 7) / 8;
    t.spans = (width + kSpan - 1) / kSpan;
    t.first_row = of.y * 8, t.rows = of.z;
    t.column = i % steps * columns, t.of = of.x;
    return t;
  }
  // Calls put(row, sums of four slots) for this thread's sums of each row.
  template <int NT, class Put>
  __device__ static void each_row(const ByteTile& tile, const ByteTileSums<NT>& sums, const Put& put) {
#pragma unroll
    for (int n = 0; n < NT; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const uint32_t row = n * 8 + threadIdx.x % 4 * 2 + e;
        if (row < tile.rows) put(uint64_t{tile.first_row + row}, sums.four(n, e));
      }
    }
  }
};

// Gate in the first half of a warp's slots and up in the second: 128 columns of h.
struct GateUpTiles : ExpertTiles {
  static constexpr bool kHalves = true;
  static constexpr uint32_t kStep = 32;

  // In h, the even ones of eight columns come first.
  __device__ static uint32_t place(uint32_t slot) {
    const uint32_t at = slot / 32 * 16 + slot % 8 * 2 + slot / 8 % 2;
    return at / 8 * 8 + at % 4 * 2 + at / 4 % 2;
  }
  __device__ ByteTile tile(uint32_t i) const {
    const Mixture& m = b.g.m;
    ByteTile t = ExpertTiles::tile(i, kTileRowsOfWeight / 2, b.g.x, m.hidden);
    const bool shared = t.of == m.experts;
    const uint32_t width = shared ? m.shared_width : m.width, left = width - t.column - 1;
    const uint32_t row = (shared ? 0 : t.of * 2 * width) + t.column;
    t.low = {shared ? &m.shared_gate : &m.gate_up, row, left};
    t.high = {shared ? &m.shared_up : &m.gate_up, shared ? row : row + width, left};
    if (t.column >= width) t.groups = 0;
    return t;
  }
  __device__ const ByteScales& scales() const { return b.x_scales; }
  template <int NT>
  __device__ void store(const ByteTile& tile, const ByteTileSums<NT>& sums) const {
    const uint32_t column = tile.column + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 * 2;
    if (column >= (tile.of == b.g.m.experts ? b.g.m.shared_width : b.g.m.width)) return;
    each_row(tile, sums, [&](uint64_t row, const float4& v) {
      *reinterpret_cast<uint32_t*>(b.h + row * b.h_width + column) =
          pack_bf16(fast_silu(v.x) * v.z, fast_silu(v.y) * v.w);
    });
  }
};

// 256 columns of an expert's results.
struct DownTiles : ExpertTiles {
  static constexpr bool kHalves = false;
  static constexpr uint32_t kStep = 64;

  __device__ static uint32_t place(uint32_t slot) { return four_of_slot(slot); }
  __device__ ByteTile tile(uint32_t i) const {
    const Mixture& m = b.g.m;
    ByteTile t = ExpertTiles::tile(i, kTileRowsOfWeight, b.g.h, 0);
    const bool shared = t.of == m.experts;
    t.spans = ((shared ? m.shared_width : m.width) + kSpan - 1) / kSpan;
    t.low = {shared ? &m.shared_down : &m.down, (shared ? 0 : t.of * m.hidden) + t.column, m.hidden - t.column - 1};
    t.high = t.low;
    return t;
  }
  __device__ const ByteScales& scales() const { return b.h_scales; }
  template <int NT>
  __device__ void store(const ByteTile& tile, const ByteTileSums<NT>& sums) const {
    const uint32_t column = tile.column + column_of_fours();
    if (column >= b.g.m.hidden) return;
    each_row(tile, sums, [&](uint64_t row, const float4& v) {
      *reinterpret_cast<uint2*>(b.g.pairs + row * b.g.m.hidden + column) =
          make_uint2(pack_bf16(v.x, v.y), pack_bf16(v.z, v.w));
    });
  }
};

template <class Tiles>
__global__ void __launch_bounds__(kByteTileThreads, kByteTileBlocks)
    expert_tiles(const __grid_constant__ ByteMixture b, uint32_t steps, const __grid_constant__ ByteTileShape shape) {
  extern __shared__ __align__(128) char memory_of_tiles[];
  depend();
  release_next();
  product_of_byte_tiles(Tiles{b, steps}, shape, memory_of_tiles);
}

// Layout of the workspace after the operands; returns the room for the router's terms, if it has such.
uint16_t* place(ByteMixture& b, Arena& arena, const swy_op& op) {
  const uint32_t width = widest_expert(op);
  place_grouped(b.g, arena, op, kMostByteTileRows, byte_spans(width));
  place_byte_rows(b, arena, hidden_of(op), width);
  return router_is_narrow(op) ? arena.take<uint16_t>(term_elements(rows_of(op), hidden_of(op))) : nullptr;
}

// Routers of these operations' first revision have no bias.
swy_status record_choices(const Recording& r, const Mixture& m, uint16_t* terms) {
  if (!m.routes) return SWY_OK;
  const uint32_t rows = rows_of(r.op);
  SWY_CUDA_TRY(router_is_narrow(r.op) ? record_term_tiles(r, {m.x, terms, m.logits, m.router, m.domain}, rows)
                                      : record_mixture_product(r, m, m.router, {}, m.logits, rows));
  return record_choice(r, m, rows);
}

}  // namespace

swy_status record_byte_tiles(const Recording& r) {
  const ByteTileShape shape = byte_tile_shape(r.device().features, kMostByteTileRows);
  Arena arena(r.operands.workspace());
  ByteMixture b{};
  b.g.m = mixture_of(r, arena, false);
  uint16_t* terms = place(b, arena, r.op);
  const Mixture& m = b.g.m;
  const uint32_t rows = rows_of(r.op);
  SWY_CUDA_TRY(record_choices(r, m, terms));
  SWY_CUDA_TRY(launch(r, sort_tiles, 1, kSortThreads, 0, b.g, r.list.step));
  SWY_CUDA_TRY(launch(r, gather_bytes<false>, rows, kRowWarps * 32, 0, b, InputNorm{}, r.list.step));
  const uint32_t blocks = kByteTileBlocks * static_cast<uint32_t>(r.device().processors);
  Recording products = r;
  products.split = FastMemory::shared;
  SWY_CUDA_TRY(launch(products, expert_tiles<GateUpTiles>, blocks, kByteTileThreads, shape.bytes(), b,
                      ceil_div(widest_expert(r.op), kTileRowsOfWeight / 2), shape));
  SWY_CUDA_TRY(record_h_bytes(r, b));
  SWY_CUDA_TRY(launch(products, expert_tiles<DownTiles>, blocks, kByteTileThreads, shape.bytes(), b,
                      ceil_div(m.hidden, kTileRowsOfWeight), shape));
  return record_combine(r, b.g, nullptr);
}

uint64_t byte_tiles_workspace(const swy_op& op) {
  Arena arena(nullptr);
  ByteMixture b{};
  place(b, arena, op);
  return mixture_workspace(op, false) + arena.used();
}

}  // namespace gpu
