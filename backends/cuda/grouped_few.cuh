// Grouped products of 4-bit weights with few rows of activations (grouped.cuh): m16n8k16 of each warp instead of wgmma,
// with operands that are laid out alike. A warp takes what it needs of two spans into registers before it multiplies:
// with four warps per scheduler, what waits for shared memory and for sums costs as much as the instructions.
#pragma once

#include "grouped_pipe.cuh"
#include "matrix.cuh"

namespace gpu {

constexpr int kFewRows = 16;  // of a tile's activations
template <swy_dtype kDtype, int N, int kBlocks>
constexpr bool few_rows = kDtype == SWY_I4&& kBlocks == 1 && N <= kFewRows;

#ifdef SWY_HOPPER

// What one thread has of a span: its part of the weights' rows, and of N rows of activations.
template <int N, RowOrder kOrder>
struct FewSpan {
  SpanRows<SWY_I4, 1, kOrder> rows;
  uint32_t x[N / 8][4][4];  // [group of 8 rows][unit]

  // By a whole warp, from the pipe's next stage, which it gives back. boxed: spans of a box of scales, less one; a box
  // begins with span 0.
  __device__ void take(GroupedPipe& p, const GroupedTile& tile, uint32_t span, uint32_t boxed, bool affine) {
    const uint32_t lane = threadIdx.x % 32, row = lane % 8;
    if ((span & boxed) == 0) barrier_wait(p.scales_full(p.scale_slot), p.scale_phase);
    barrier_wait(p.full(p.slot), p.phase);
    const uint32_t stage = p.slot * p.stage_bytes, panels = p.base + stage + p.weight_bytes + row * 128;
    rows.load(p.memory + stage);
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      const uint32_t at = panels + u / 2 * 1024 + ((u % 2 * 4 + lane / 8) ^ row) * 16;
#pragma unroll
      for (int n = 0; n < N / 8; ++n) load_matrices(x[n][u], at + n * kPanelBytes);
    }
    rows.load_scales(p.memory + p.scales + p.scale_slot * kScaleSlotBytes,
                     (span * kSpan + lane % 4 * 32) >> tile.w0->group_shift, affine);
    __syncwarp();
    if (lane == 0) barrier_arrive(p.empty(p.slot));
    p.next();
    if (((span + 1) & boxed) != 0 && span + 1 != tile.end) return;
    if (lane == 0) barrier_arrive(p.scales_empty(p.scale_slot));
    p.next_scales();
  }
  // Units take turns with two sums, which hides half of each other's time.
  __device__ void multiply(uint32_t magic, float (&sums)[2][N / 8][4]) const {
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      uint32_t a[1][2][4];
      rows.unpack(u, magic, a);
#pragma unroll
      for (int n = 0; n < N / 8; ++n) {
        matrix_multiply(sums[u % 2][n], a[0][0], x[n][u][0], x[n][u][1]);
        matrix_multiply(sums[u % 2][n], a[0][1], x[n][u][2], x[n][u][3]);
      }
    }
  }
};

// acc = the product of a tile that begins with span 0.
template <int N, RowOrder kOrder>
__device__ inline void multiply_few(GroupedPipe& p, const GroupedTile& tile, float (&acc)[1][N / 2]) {
  constexpr uint32_t kAhead = N == 8 ? 2 : 1;  // spans in registers
  const uint32_t shift = tile.w0->group_shift, boxed = shift == 31 ? ~0u : (8u << shift) / kSpan - 1;
  const bool affine = tile.w0->offset_data != nullptr;
  uint32_t magic;
  asm volatile("mov.b32 %0, 0x43004300;" : "=r"(magic));
  float sums[2][N / 8][4] = {};
  for (uint32_t span = 0; span < tile.end; span += kAhead) {
    FewSpan<N, kOrder> spans[kAhead];
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      if (i == 0 || span + i < tile.end) spans[i].take(p, tile, span + i, boxed, affine);
    }
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      if (i == 0 || span + i < tile.end) spans[i].multiply(magic, sums);
    }
  }
#pragma unroll
  for (int i = 0; i < N / 2; ++i) acc[0][i] = sums[0][i / 4][i % 4] + sums[1][i / 4][i % 4];
}

#endif  // SWY_HOPPER

}  // namespace gpu
