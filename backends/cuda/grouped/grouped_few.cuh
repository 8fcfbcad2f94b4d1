// SPDX-License-Identifier: Apache-2.0
// Grouped products of 4-bit weights with few rows of activations (grouped.cuh): each warp uses m16n8k16 instead of
// wgmma, with operands of the same layout. Four warps share a scheduler, so the number of instructions matters as much
// as waiting for shared memory and for sums.
#pragma once

#include "common/matrix.cuh"
#include "grouped_pipe.cuh"

namespace gpu {

constexpr int kFewRows = 16;  // of a tile's activations
template <swy_dtype kDtype, int N, int kBlocks>
constexpr bool few_rows = kDtype == SWY_I4&& kBlocks == 1 && N <= kFewRows;

#ifdef SWY_HOPPER

// One thread's part of one row of a 4-bit weight in a span. A nibble in the lowest eight bits of a bf16 is that number
// times 2^-133; in the upper four of them, times 2^-129. So one AND, and one fma with the scale and the offset of
// nibbles (-8 scales if the weight has no offsets), make it a weight, rounded once. Scales are below 2^16, so 2^-18 of
// a weight can be represented.
struct FewRow {
  static constexpr float kScale = 0x1p111f, kUpper = 0x1p-18f, kLower = 0x1p-22f;  // of factors; weights that result
  uint4 q;
  uint32_t scale, offset;  // 16 bits each; without offsets nothing

  __device__ void load(const char* weights, const char* scales, bool affine) {
    q = *reinterpret_cast<const uint4*>(weights);
    scale = *reinterpret_cast<const uint16_t*>(scales);
    if (affine) offset = *reinterpret_cast<const uint16_t*>(scales + kScalePlane);
  }
  // Scale and offset for nibbles in the upper bits, and in the lower.
  __device__ void factors(bool affine, __nv_bfloat162 (&out)[2]) const {
    const float s = half_bits(static_cast<uint16_t>(scale));
    const float o = affine ? half_bits(static_cast<uint16_t>(offset)) : -8.0f * s;
    const __nv_bfloat162 both = __floats2bfloat162_rn(s, o);
    out[0] = __hmul2(both, __floats2bfloat162_rn(kScale, kLower));
    out[1] = __hmul2(both, __floats2bfloat162_rn(kScale, kUpper));
  }
  // Pairs (0 4), (2 6) of elements 8 u to 8 u + 7, times kLower, and (1 5), (3 7), times kUpper.
  __device__ void unpack(int u, const __nv_bfloat162 (&f)[2], uint32_t (&lower)[2], uint32_t (&upper)[2]) const {
    const uint32_t v = u == 0 ? q.x : u == 1 ? q.y : u == 2 ? q.z : q.w;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      lower[i] = weights((v >> (8 * i)) & 0x000f000f, f[0]);
      upper[i] = weights((v >> (8 * i)) & 0x00f000f0, f[1]);
    }
  }

 private:
  static __device__ uint32_t weights(uint32_t nibbles, __nv_bfloat162 f) {
    const __nv_bfloat162 n = *reinterpret_cast<const __nv_bfloat162*>(&nibbles);
    const __nv_bfloat162 v = __hfma2(n, __low2bfloat162(f), __high2bfloat162(f));
    return *reinterpret_cast<const uint32_t*>(&v);
  }
};

// Where a lane's part of any span lies in a stage, and in a box of scales, in bytes. Kept in registers, since the
// compiler would otherwise compute them again for each span.
template <RowOrder kOrder>
struct FewPlace {
  // Distance from a thread's first row to its second.
  static constexpr uint32_t kNext = kOrder == RowOrder::pairs ? kBoxRows : 2;
  uint32_t weights, scales, x, element;
  bool leads;  // of its warp

  __device__ FewPlace() {
    const uint32_t lane = threadIdx.x % 32, first = tile_row<1, kOrder>(0, 0), row = lane % 8;
    leads = lane == 0;
    weights = first * 64 + lane % 4 * 16, scales = first * 16, element = lane % 4 * 32;
    x = row * 128 + ((lane / 8 % 2 * 2 + lane / 16) ^ row) * 16;
    asm volatile("" : "+r"(weights), "+r"(scales), "+r"(x), "+r"(element));
  }
};

// One thread's part of a span: of the weights' rows, and of N rows of activations.
template <int N, RowOrder kOrder>
struct FewSpan {
  FewRow rows[2];
  uint32_t x[N / 8][4][4];  // [group of 8 rows][unit]: matches FewRow's lower pairs, then its upper ones

  // A whole warp calls this. Reads the pipe's next stage and releases it. boxed: spans of a box of scales, less one; a
  // box begins with span 0.
  __device__ void take(GroupedPipe& p, const GroupedTile& tile, const FewPlace<kOrder>& at, uint32_t span,
                       uint32_t boxed, bool affine) {
    if ((span & boxed) == 0) barrier_wait(p.scales_full(p.scale_slot), p.scale_phase);
    barrier_wait(p.full(p.slot), p.phase);
    const uint32_t stage = p.slot * p.stage_bytes, panels = p.base + stage + p.weight_bytes + at.x;
    const uint32_t group = (span * kSpan + at.element) >> tile.w0->group_shift;
    const char *weights = p.memory + stage + at.weights,
               *scales = p.memory + p.scales + p.scale_slot * kScaleSlotBytes + at.scales + group % 8 * 2;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      rows[h].load(weights + h * at.kNext * 64, scales + h * at.kNext * 16, affine);
    }
#pragma unroll
    for (int u = 0; u < 4; ++u) {
#pragma unroll
      for (int n = 0; n < N / 8; ++n) {
        load_matrices(x[n][u], (panels ^ (u % 2 * 64)) + u / 2 * 1024 + n * kPanelBytes);
      }
    }
    __syncwarp();
    if (at.leads) barrier_arrive(p.empty(p.slot));
    p.next();
    if (((span + 1) & boxed) != 0 && span + 1 != tile.end) return;
    if (at.leads) barrier_arrive(p.scales_empty(p.scale_slot));
    p.next_scales();
  }
  // sums += products of weights times kLower, and of weights times kUpper.
  __device__ void multiply(bool affine, float (&sums)[2][N / 8][4]) const {
    __nv_bfloat162 f[2][2];
#pragma unroll
    for (int h = 0; h < 2; ++h) rows[h].factors(affine, f[h]);
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      uint32_t v[2][2][2];  // [row][lower, upper]
#pragma unroll
      for (int h = 0; h < 2; ++h) rows[h].unpack(u, f[h], v[h][0], v[h][1]);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t a[4] = {v[0][i][0], v[1][i][0], v[0][i][1], v[1][i][1]};
#pragma unroll
        for (int n = 0; n < N / 8; ++n) matrix_multiply(sums[i][n], a, x[n][u][2 * i], x[n][u][2 * i + 1]);
      }
    }
  }
};

// acc = the product of a tile that begins with span 0.
template <int N, RowOrder kOrder>
__device__ inline void multiply_few(GroupedPipe& p, const GroupedTile& tile, float (&acc)[1][N / 2]) {
  constexpr uint32_t kSpans = N == 8 ? 2 : 1;  // in registers
  const uint32_t shift = tile.w0->group_shift, boxed = shift == 31 ? ~0u : (8u << shift) / kSpan - 1, end = tile.end;
  const bool affine = tile.w0->offset_data != nullptr;
  float sums[2][N / 8][4] = {};
  const FewPlace<kOrder> at;
  FewSpan<N, kOrder> spans[kSpans];
  for (uint32_t span = 0; span < end; span += kSpans) {
#pragma unroll
    for (uint32_t i = 0; i < kSpans; ++i) {
      if (i == 0 || span + i < end) spans[i].take(p, tile, at, span + i, boxed, affine);
    }
#pragma unroll
    for (uint32_t i = 0; i < kSpans; ++i) {
      if (i == 0 || span + i < end) spans[i].multiply(affine, sums);
    }
  }
#pragma unroll
  for (int i = 0; i < N / 2; ++i) {
    acc[0][i] = fmaf(sums[0][i / 4][i % 4], 1 / FewRow::kLower, sums[1][i / 4][i % 4] / FewRow::kUpper);
  }
}

#endif  // SWY_HOPPER

}  // namespace gpu
