// SPDX-License-Identifier: Apache-2.0
// As bytes.cuh, for tiles of few rows of activations: sums are scaled for each group of 64 elements. That takes more
// instructions, but less between tiles, which is what counts where a tile has little work.
//
// A nibble in the upper half of a byte, its highest bit flipped, is 16 (q - 8): one instruction for four weights. The
// sums are integers. Scales cost more than products, if every sum of 64 elements is scaled by two of them; so
//   - a row of activations has one scale for 256 columns, a stage, or for half of them. Where the next one begins, the
//     sum so far is multiplied by the ratio of the two.
//   - in between, integer sums are not set to zero between a weight's groups. With sums C_i after group i and scales
//     s_i, the result is C_1 (s_1 - s_2) + C_2 (s_2 - s_3) + ... + C_n s_n: one instruction for a sum and group.
//   - integers begin at the bits of 1.5 * 2^23, so that they can be read as floats. What this adds is 1.5 * 2^23 s_1.
// They stay in range for 256 elements: 256 * 128 * 127 < 2^22.
//
// The copy engine's time depends on the number of rows in its boxes, and on the number of its copies. So a stage has
// two spans of 256 rows and of the activations, and scales come once for a tile.
//
// Warps that multiply wait for each other only where results need whole rows. Otherwise they may be as far apart as the
// ring is long, so one warp's beginning and end of a tile hide behind the products of others.
#pragma once

#include "byte_weights.cuh"
#include "common/wgmma_bytes.cuh"
#include "scaled_byte_pipe.cuh"
#include "scaled_byte_rows.cuh"

namespace gpu {

#ifdef SWY_HOPPER

// Where this thread reads its two rows' quants, and its first operands.
template <RowOrder kOrder>
struct ScaledByteRowsOfWeight {
  uint32_t quants[2];  // [h]
  UpperNibbles upper;

  __device__ ScaledByteRowsOfWeight() { quants_of_rows<kOrder>(quants); }
  // The first operands [step] of a group of 64 elements of the stage at an address, a multiple of 1,024.
  __device__ void load(uint32_t stage, uint32_t group, uint32_t (&a)[2][4]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint2 q = load_two_words((stage + quants[h]) ^ group * 32);
      a[0][h] = upper.of(q.x << 4), a[0][2 + h] = upper.of(q.x);
      a[1][h] = upper.of(q.y << 4), a[1][2 + h] = upper.of(q.y);
    }
  }
};

// The scales of this thread's two rows of a tile's weights, in fp16.
struct ScalesOfWeight {
  uint32_t at[2];  // addresses [h]
  uint32_t shift, groups;
  bool whole;  // stages have scales of their own, four each

  template <RowOrder kOrder>
  __device__ void begin(uint32_t scales, const StreamedWeight& w) {
    shift = w.group_shift, groups = w.groups;
    whole = shift == 6 && groups % 4 == 0;
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) at[h] = scales + byte_row<kOrder>(h) * groups * 2;
    keep(at);
  }
  // Of the groups of 64 in a stage: 0 past the row's end, where the products are of any bytes. there: groups before it.
  __device__ uint2 of_stage(uint32_t h, uint32_t stage, uint32_t there) const {
    if (whole) return load_two_words(at[h] + stage * 8);
    uint32_t one[4];
#pragma unroll
    for (uint32_t u = 0; u < 4; ++u) {
      const uint32_t group = min((stage * kByteColumns + u * kByteGroup) >> shift, groups - 1);
      one[u] = u < there ? load_half(at[h] + group * 2) : 0;
    }
    return make_uint2(one[0] | one[1] << 16, one[2] | one[3] << 16);
  }

 private:
  static __device__ uint32_t load_half(uint32_t at) {
    uint16_t v;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(at));
    return v;
  }
};
__device__ inline float nth_scale(uint2 four, uint32_t u) {
  return half_bits(static_cast<uint16_t>((u < 2 ? four.x : four.y) >> u % 2 * 16));
}

template <int N>
struct ScaledByteSums {
  uint32_t sums[N / 2];
  float scale[2];  // of the group whose products are in `sums`

  // acc += what `sums` and the scales say. next: of the following group, or 0 if none has the same scale of
  // activations.
  __device__ void add(float (&acc)[N / 2], float next0, float next1) const {
    const float by[2] = {scale[0] - next0, scale[1] - next1};
#pragma unroll
    for (int i = 0; i < N / 2; ++i) acc[i] = fmaf(__uint_as_float(sums[i]), by[i / 2 % 2], acc[i]);
  }
  // acc becomes what belongs to the scale of the stage that begins. scales: address of the stage's; before: of those of
  // the stage before.
  template <bool kRatios>
  __device__ void rescale(float (&acc)[N / 2], uint32_t scales, uint32_t before, float first0, float first1) const {
    const float less[2] = {-kIntegerBase * first0, -kIntegerBase * first1};
#pragma unroll
    for (int n = 0; n < N / 8; ++n) {
      float2 ratio = load_scales(scales + n * (kScaleFloats * 4));
      if (!kRatios) {
        const float2 b = load_scales(before + n * (kScaleFloats * 4) + 32);
        ratio.x *= b.x, ratio.y *= b.y;
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) acc[4 * n + j] = fmaf(acc[4 * n + j], j % 2 == 0 ? ratio.x : ratio.y, less[j / 2]);
    }
  }
  // The same for a tile's first stage.
  __device__ void clear(float (&acc)[N / 2], float first0, float first1) const {
#pragma unroll
    for (int i = 0; i < N / 2; ++i) acc[i] = -kIntegerBase * (i / 2 % 2 == 0 ? first0 : first1);
  }
  __device__ void begin() {
#pragma unroll
    for (uint32_t& sum : sums) sum = kIntegerBits;
  }
};

// acc = a tile's product.
template <int N, class Work>
__device__ inline void multiply_scaled_bytes(ScaledBytePipe& p, const GroupedTile& tile, float (&acc)[N / 2]) {
  constexpr uint32_t kFresh = kByteColumns / kByteGroup / Work::kScales;  // groups with one scale of the activations
  const uint32_t lane = threadIdx.x % 32, stages = stages_of(tile);
  const ScaledByteRowsOfWeight<Work::kOrder> rows;
  uint32_t a[2][2][4];  // of alternate groups
  ScaledByteSums<N> s;
  const uint32_t scales = p.base + p.scales + p.scale_slot * p.slot_bytes;
  ScalesOfWeight of_rows;
  of_rows.begin<Work::kOrder>(scales, *tile.w0);
  uint32_t of_x = scales + p.weight_scales + lane % 4 * 8, before = of_x;  // this scale of the activations
  const uint32_t last = of_x + (scales_of<Work>(tile) - 1) * p.scale_bytes;
  uint32_t previous = 0;  // slot
  barrier_wait(p.scales_full(p.scale_slot), p.scale_phase);
  for (uint32_t stage = 0; stage < stages; ++stage) {
    barrier_wait(p.full(p.slot), p.phase);
    const uint32_t at = p.base + p.slot * p.stage_bytes, groups = groups_of(tile, stage);
    const uint64_t x = rows_descriptor(at + kByteWeights, kScaledPanel);
    const uint2 four[2] = {of_rows.of_stage(0, stage, groups), of_rows.of_stage(1, stage, groups)};
#pragma unroll
    for (uint32_t u = 0; u < 4; ++u) {
      rows.load(at, u, a[u % 2]);
      const float next[2] = {nth_scale(four[0], u), nth_scale(four[1], u)};
      keep(a[u % 2][0]), keep(a[u % 2][1]);
      products_wait<0>();
      keep(s.sums);
      keep(a[1 - u % 2][0]), keep(a[1 - u % 2][1]);
      // The products of the previous stage are done.
      if (u == 0 && stage != 0 && lane == 0) barrier_arrive(p.empty(previous));
      if (u % kFresh != 0) {
        s.add(acc, next[0], next[1]);
      } else if (u != 0 || stage != 0) {
        s.add(acc, 0, 0);
        before = of_x, of_x += of_x == last ? 0 : p.scale_bytes;  // past the row's end, the last scale is repeated
        s.template rescale<Work::kRatios>(acc, of_x, before, next[0], next[1]);
      } else {
        s.clear(acc, next[0], next[1]);
      }
      if (u % kFresh == 0) s.begin();
      s.scale[0] = next[0], s.scale[1] = next[1];
      keep(s.sums);
      products_begin();
      byte_product<N>(s.sums, a[u % 2][0], x + u / 2 * (kBytePanel / 16) + u % 2 * 4);
      byte_product<N>(s.sums, a[u % 2][1], x + u / 2 * (kBytePanel / 16) + u % 2 * 4 + 2);
      products_commit();
    }
    previous = p.slot;
    p.next();
  }
  products_wait<0>();
  keep(s.sums);
  keep(a[0][0]), keep(a[0][1]), keep(a[1][0]), keep(a[1][1]);
  s.add(acc, 0, 0);
#pragma unroll
  for (int n = 0; n < N / 8; ++n) {
    const float2 now = load_scales(of_x + n * (kScaleFloats * 4) + 32);
#pragma unroll
    for (int i = 0; i < 4; ++i) acc[4 * n + i] *= i % 2 == 0 ? now.x : now.y;
  }
  __syncwarp();
  if (lane == 0) barrier_arrive(p.empty(previous)), barrier_arrive(p.scales_empty(p.scale_slot));
  p.next_scales();
}

// Tiles up to `end`, of N rows or a few less.
template <int N, class Work>
__device__ inline void consume_scaled_bytes(ScaledBytePipe& p, const Work& work, TileWalk& walk, uint32_t end) {
  uint4 next = walk.i < end ? work.entry(walk.i) : uint4{};
  while (walk.i < end) {
    const GroupedTile tile = work.tile(walk.i, next);
    walk.next();
    if (walk.i < end) next = work.entry(walk.i);
    if (tile.groups == 0) continue;
    float acc[N / 2];
    multiply_scaled_bytes<N, Work>(p, tile, acc);
    work.template store_bytes<N>(p, tile, acc);
  }
}

// As grouped_product, with work as there, for up to kScaledByteRows rows, whose tiles are older than the previous
// kernel, and
//   kRatios    whether the first of the activations' scales are ratios, of the scale before to each, and not 16 over
//              the scales
//   kScales    scales of a row of activations in a stage: 1 or 2
//   scales()   of the activations; t.what.x is a tile's first group, and span_stride bytes lie from stage to stage
//   store_bytes<N>(pipe, tile, acc)   instead of store; acc as byte_row says
// A tile's `end` counts groups of 64 elements.
template <class Work>
__device__ inline void product_of_scaled_bytes(const Work& work, const ScaledByteShape& shape, char* shared) {
  ScaledBytePipe p(shared, shape);
  if (threadIdx.x >= kByteConsumers) {
    fewer_registers<32>();
    if (threadIdx.x % 32 != 0) return;
    const uint32_t warp = (threadIdx.x - kByteConsumers) / 32;
    if (warp == 0) produce_weights(p, work);
    if (warp == 1) produce_activations(p, work);
    if (warp == 2) produce_scales(p, work);
    return;
  }
  more_registers<112>();
  // There are no products of five and of seven groups.
  const uint32_t lane = threadIdx.x % 32, totals = lane <= kScaledByteRows / 8 ? work.total(lane) : 0;
  const auto from = [&](int groups) { return __shfl_sync(kAll, totals, groups); };
  TileWalk walk;
  consume_scaled_bytes<64>(p, work, walk, from(7));
  consume_scaled_bytes<48>(p, work, walk, from(5));
  consume_scaled_bytes<32>(p, work, walk, from(4));
  consume_scaled_bytes<24>(p, work, walk, from(3));
  consume_scaled_bytes<16>(p, work, walk, from(2));
  consume_scaled_bytes<8>(p, work, walk, from(1));
}

#endif  // SWY_HOPPER

}  // namespace gpu
