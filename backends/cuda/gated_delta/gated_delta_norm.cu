// SPDX-License-Identifier: Apache-2.0
// GATED_DELTA for prompts, after the rule: the gated norm.
#include "common/matrix.cuh"
#include "gated_delta_inputs.cuh"

namespace gpu {
namespace {

constexpr uint32_t kWarps = 8, kNormBlocks = 4, kHeadsOfWarp = 4;  // of a block; of a multiprocessor; at a time

// Where a lane's four columns of a row's first head lie, and whether they exist.
struct Place {
  uint64_t tile;  // of the first head
  uint32_t inside;
  bool active;
};
__device__ inline Place place_of(const Chunks& c, const swy_step* step, uint32_t row) {
  const uint32_t lane = threadIdx.x % 32, seq = step_array<uint32_t>(step, step->row_seq_at)[row];
  const uint32_t start = step_array<uint32_t>(step, step->row_start_at)[seq], i = row - start;
  Place p;
  p.active = step_array<uint32_t>(step, step->seq_active_at)[seq] != 0;
  p.tile = uint64_t{part_number(start, seq, kChunk) + i / kChunk} * c.d.value_heads;
  p.inside = lane / 8 * (kChunk * kSlice) + tile_at<kSlice / 8>(i % kChunk, lane % 8 / 2) / 2 + lane % 2 * 4;
  return p;
}

// A warp: some heads of a row, four columns per lane and head. blockIdx.y: rows. kPends: with pending rows.

template <bool kPends>
__global__ void __launch_bounds__(kWarps * 32, kNormBlocks)
    gated_norm(const __grid_constant__ Chunks c, const swy_step* step) {
  const Delta& d = c.d;
  const uint32_t lane = threadIdx.x % 32, first = (blockIdx.x * kWarps + threadIdx.x / 32) * kHeadsOfWarp;
  const bool in = lane * 4 < d.value_dim;
  float w[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) w[j] = in ? plain_at(d.norm, lane * 4 + j) : 0.0f;
  release_next();
  uint32_t row = blockIdx.y;
  Place p = row < step->rows ? place_of(c, step, row) : Place{};
  depend();
  for (uint32_t r = row; r < step->rows; r += gridDim.y) {
    if (kPends) keep_row(d, step, r);
    if (!kPends && blockIdx.x == 0) KeptInputs(step, r).keep(d);
  }
  if (first >= d.value_heads) return;
  while (row < step->rows) {
    const uint64_t at = uint64_t{row} * d.values() + first * d.value_dim + lane * 4;
    uint2 o[kHeadsOfWarp];
    Four z[kHeadsOfWarp];
#pragma unroll
    for (uint32_t h = 0; h < kHeadsOfWarp; ++h) {
      const bool there = in && p.active && first + h < d.value_heads;
      const uint64_t from = (p.tile + first + h) * c.slices() * (kChunk * kSlice) + p.inside;
      o[h] = there ? *reinterpret_cast<const uint2*>(c.v + from) : make_uint2(0, 0);
      z[h] = there ? load_four(d.z + at + h * d.value_dim) : Four{};
    }
    const Place next = row + gridDim.y < step->rows ? place_of(c, step, row + gridDim.y) : Place{};
#pragma unroll
    for (uint32_t h = 0; h < kHeadsOfWarp; ++h) {
      const float v[4] = {low_of(o[h].x), high_of(o[h].x), low_of(o[h].y), high_of(o[h].y)};
      float squares = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) squares = fmaf(v[j], v[j], squares);
      const float scale = rsqrtf(warp_sum(squares) / static_cast<float>(d.value_dim) + d.norm_eps);
      if (!in || first + h >= d.value_heads) continue;
      float y[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) y[j] = v[j] * scale * w[j] * fast_silu(z[h].x[j]);
      *reinterpret_cast<float4*>(d.y + at + h * d.value_dim) = make_float4(y[0], y[1], y[2], y[3]);
    }
    row += gridDim.y;
    p = next;
  }
}

}  // namespace

swy_status record_gated_norm(const Recording& r, const Chunks& c) {
  const uint32_t rows = r.bucket().rows, x = ceil_div(c.d.value_heads, kWarps * kHeadsOfWarp);
  return launch(r, c.pends() ? gated_norm<true> : gated_norm<false>, dim3(x, rows < 65535 ? rows : 65535), kWarps * 32,
                0, c, r.list.step);
}

}  // namespace gpu
