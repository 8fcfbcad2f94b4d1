// SPDX-License-Identifier: Apache-2.0
// As bytes.cuh, for tiles of few rows of activations: sums are scaled for each group of 64 elements. That takes more
// instructions, but less between tiles, which is what counts where a tile has little work.
//
// A nibble in the upper half of a byte, its highest bit flipped, is 16 (q - 8): one instruction for four weights. The
// sums are integers. Scales cost more than products, if every sum of 64 elements is scaled by two of them; so
//   - a row of activations has one scale for one or two spans. At its end, the sum so far is multiplied by the ratio of
//     the old scale to the new one.
//   - in between, integer sums are not set to zero between a weight's groups. With sums C_i after group i and scales
//     s_i, the result is C_1 (s_1 - s_2) + C_2 (s_2 - s_3) + ... + C_n s_n: one instruction for a sum and group.
//   - integers begin at the bits of 1.5 * 2^23, so that they can be read as floats. What this adds is 1.5 * 2^23 s_1.
// They stay in range for 256 elements: 256 * 128 * 127 < 2^22.
//
// The copy engine's time depends on the number of rows in its boxes. So a stage has two spans of 256 rows, and the
// scales of a tile's rows, which are contiguous in memory, come at once.
#pragma once

#include "byte_weights.cuh"
#include "common/wgmma_bytes.cuh"
#include "grouped.cuh"
#include "scaled_byte_rows.cuh"

namespace gpu {

#ifdef SWY_HOPPER

struct ScaledBytePipe {
  static constexpr bool kScalesOfWeights = true;
  char* memory;
  uint32_t base, stages, scale_slot_bytes, scales, staging, barriers;
  uint32_t slot = 0, phase = 0, scale_slot = 0, scale_phase = 0;

  __device__ ScaledBytePipe(char* shared, const ScaledByteShape& s) {
    memory = shared + (1024 - shared_at(shared) % 1024) % 1024;
    base = shared_at(memory);
    stages = s.stages;
    scale_slot_bytes = s.scale_slot;
    scales = stages * kScaledByteStage;
    staging = scales + kScaleSlots * scale_slot_bytes;
    barriers = base + staging + s.staging;
    if (threadIdx.x == 0) {
      for (uint32_t i = 0; i < stages; ++i) barrier_init(full(i), 1), barrier_init(empty(i), kByteConsumers / 32);
      for (uint32_t i = 0; i < kScaleSlots; ++i) {
        barrier_init(scales_full(i), 1), barrier_init(scales_empty(i), kByteConsumers / 32);
      }
      publish_barriers();
      stores_visible_to_copies();
    }
    __syncthreads();
  }
  __device__ uint32_t full(uint32_t i) const { return barriers + i * 8; }
  __device__ uint32_t empty(uint32_t i) const { return barriers + (kMostStages + i) * 8; }
  __device__ uint32_t scales_full(uint32_t i) const { return barriers + (2 * kMostStages + i) * 8; }
  __device__ uint32_t scales_empty(uint32_t i) const { return barriers + (2 * kMostStages + kScaleSlots + i) * 8; }
  __device__ void next() {
    if (++slot == stages) slot = 0, phase ^= 1;
  }
  __device__ void next_scales() {
    if (++scale_slot == kScaleSlots) scale_slot = 0, scale_phase ^= 1;
  }
};

// Groups of 64 elements in a stage of a tile: four but for the last.
__device__ inline uint32_t groups_of(const GroupedTile& t, uint32_t stage) {
  return min(t.end - stage * (kByteColumns / kByteGroup), kByteColumns / kByteGroup);
}
// Stages of a tile. Its `end` counts groups of 64 here.
__device__ inline uint32_t stages_of(const GroupedTile& t) {
  return (t.end + kByteColumns / kByteGroup - 1) / (kByteColumns / kByteGroup);
}

// ---- requests

template <class Work, class Each>
__device__ inline void each_tile(const Work& work, Each each) {
  const uint32_t total = work.total();
  for (uint32_t i = blockIdx.x; i < total; i += gridDim.x) {
    const GroupedTile t = work.tile(i, work.entry(i));
    if (t.groups != 0) each(t);
  }
}

// The scales of a tile's weights. Rows past the end are none of the product's.
template <class Work>
__device__ inline void produce_weight_scales(ScaledBytePipe& p, const Work& work) {
  each_tile(work, [&](const GroupedTile& t) {
    barrier_wait(p.scales_empty(p.scale_slot), p.scale_phase ^ 1);
    const uint32_t row_bytes = t.w0->groups * 2, barrier = p.scales_full(p.scale_slot);
    const uint32_t rows0 = min(t.w0->rows - t.row0, kBoxRows),
                   rows1 = t.row1 < t.w1->rows ? min(t.w1->rows - t.row1, kBoxRows) : 0;
    const uint32_t to = p.base + p.scales + p.scale_slot * p.scale_slot_bytes;
    barrier_expect(barrier, (rows0 + rows1) * row_bytes);
    copy_in(to, t.w0->scale_data + uint64_t{t.row0} * t.w0->groups, rows0 * row_bytes, barrier);
    if (rows1 != 0) {
      copy_in(to + kBoxRows * row_bytes, t.w1->scale_data + uint64_t{t.row1} * t.w1->groups, rows1 * row_bytes,
              barrier);
    }
    p.next_scales();
  });
}

// Planes of a stage: the inverse of each scale in it, the scale before the first, and then those in it. Where the row
// ends earlier, the last scale is repeated, which changes nothing.
template <class Work>
__device__ inline void ask_bytes(const ScaledBytePipe& p, const Work& work, const GroupedTile& t, uint32_t stage,
                                 uint32_t to, uint32_t barrier) {
  constexpr uint32_t kPlanes = 2 / Work::kScaledSpans;
  const uint32_t spans = (groups_of(t, stage) + 1) / 2, bytes = t.groups * 32;
  for (uint32_t i = 0; i < spans; ++i) {
    copy_in(to + kByteWeights + i * kScaledByteRows * kSpan, t.x + (stage * 2 + i) * t.span_stride,
            t.groups * kBytePanel, barrier);
  }
  const uint32_t first = stage * kPlanes, last = first + (kPlanes == 1 ? 0 : spans - 1), at = to + kScaledByteScaleAt;
#pragma unroll
  for (uint32_t i = 0; i < kPlanes; ++i) {
    copy_in(at + i * kScaledBytePlane, work.scales().inverse + work.scale_at(t, min(first + i, last)), bytes, barrier);
  }
#pragma unroll
  for (uint32_t i = 0; i <= kPlanes; ++i) {
    const uint32_t n = first + i == 0 ? 0 : min(first + i - 1, last);
    copy_in(at + (kPlanes + i) * kScaledBytePlane, work.scales().scale + work.scale_at(t, n), bytes, barrier);
  }
}
template <class Work>
__device__ inline uint32_t stage_bytes(const GroupedTile& t, uint32_t stage) {
  constexpr uint32_t kPlanes = 2 / Work::kScaledSpans;
  return kByteWeights + (groups_of(t, stage) + 1) / 2 * t.groups * kBytePanel + (2 * kPlanes + 1) * t.groups * 32;
}

template <Producer kPart, class Work>
__device__ inline void produce_stages(ScaledBytePipe& p, const Work& work, uint64_t policy) {
  each_tile(work, [&](const GroupedTile& t) {
    const uint32_t stages = stages_of(t);
    for (uint32_t stage = 0; stage < stages; ++stage) {
      barrier_wait(p.empty(p.slot), p.phase ^ 1);
      const uint32_t to = p.base + p.slot * kScaledByteStage, barrier = p.full(p.slot);
      if (kPart == Producer::activations) {
        ask_bytes(p, work, t, stage, to, barrier);
      } else if (kPart == Producer::first_half) {
        barrier_expect(barrier, stage_bytes<Work>(t, stage));
        copy_box(to, t.w0->quants, stage * kBoxBytes, t.row0, barrier, policy);
      } else {
        copy_box(to + kByteWeights / 2, t.w1->quants, stage * kBoxBytes, t.row1, barrier, policy);
      }
      p.next();
    }
  });
}

// ---- products

// Where this thread reads its two rows' quants, and its first operands.
template <RowOrder kOrder>
struct ScaledByteRowsOfWeight {
  uint32_t quants[2];  // [h]
  UpperNibbles upper;

  __device__ ScaledByteRowsOfWeight() { quants_of_rows<kOrder>(quants); }
  // The first operands [step] of a stage's group of 64 elements.
  __device__ void load(const char* stage, uint32_t group, uint32_t (&a)[2][4]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint2 q = *reinterpret_cast<const uint2*>(stage + (quants[h] ^ group * 32));
      a[0][h] = upper.of(q.x << 4), a[0][2 + h] = upper.of(q.x);
      a[1][h] = upper.of(q.y << 4), a[1][2 + h] = upper.of(q.y);
    }
  }
};

// The scales of a row's four groups in a stage, in fp16: 0 past the row's end, where the products are of any bytes.
__device__ inline uint2 weight_scales(const char* row, const StreamedWeight& w, uint32_t stage, uint32_t groups) {
  const uint32_t shift = w.group_shift, k = stage * kByteColumns;
  if (shift == 6 && w.groups % 4 == 0) return *reinterpret_cast<const uint2*>(row + stage * 8);
  uint32_t one[4];
#pragma unroll
  for (uint32_t u = 0; u < 4; ++u) {
    const uint32_t group = min((k + u * kByteGroup) >> shift, w.groups - 1);
    one[u] = u < groups ? *reinterpret_cast<const uint16_t*>(row + group * 2) : 0;
  }
  return make_uint2(one[0] | one[1] << 16, one[2] | one[3] << 16);
}
__device__ inline float nth_scale(uint2 four, uint32_t u) {
  return half_bits(static_cast<uint16_t>((u < 2 ? four.x : four.y) >> u % 2 * 16));
}

template <int N>
struct ScaledByteSums {
  uint32_t sums[N / 2];
  float scale[2] = {0, 0};  // of the group whose products are in `sums`

  // acc += what `sums` and the scales say. next: of the following group, or 0 if none has the same scale of
  // activations.
  __device__ void add(float (&acc)[N / 2], float next0, float next1) const {
    const float by[2] = {scale[0] - next0, scale[1] - next1};
#pragma unroll
    for (int i = 0; i < N / 2; ++i) acc[i] = fmaf(__uint_as_float(sums[i]), by[i / 2 % 2], acc[i]);
  }
  // The sums begin again, with activations of another scale. inverse: plane of the new one; before: of the old one.
  __device__ void begin(float (&acc)[N / 2], uint32_t inverse, uint32_t before, float first0, float first1) {
    const uint32_t t = threadIdx.x % 4;
    const float less[2] = {-kIntegerBase * first0, -kIntegerBase * first1};
#pragma unroll
    for (int n = 0; n < N / 8; ++n) {
      const float2 i = load_scales(inverse + n * 32 + t * 8), b = load_scales(before + n * 32 + t * 8);
      const float ratio[2] = {b.x * i.x, b.y * i.y};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        acc[4 * n + j] = fmaf(acc[4 * n + j], ratio[j % 2], less[j / 2]);
        sums[4 * n + j] = kIntegerBits;
      }
    }
  }
};

// acc = a tile's product.
template <int N, class Work>
__device__ inline void multiply_scaled_bytes(ScaledBytePipe& p, const GroupedTile& tile, float (&acc)[N / 2]) {
  constexpr uint32_t kFresh = Work::kScaledSpans * 2, kPlanes = 4 / kFresh;  // groups with a scale; scales in a stage
  const uint32_t lane = threadIdx.x % 32, stages = stages_of(tile);
  const ScaledByteRowsOfWeight<Work::kOrder> rows;
  uint32_t a[2][2][4];  // of alternate groups
  ScaledByteSums<N> s;
#pragma unroll
  for (int i = 0; i < N / 2; ++i) acc[i] = 0, s.sums[i] = 0;
  barrier_wait(p.scales_full(p.scale_slot), p.scale_phase);
  const char* scales[2];
#pragma unroll
  for (uint32_t h = 0; h < 2; ++h) {
    scales[h] =
        p.memory + p.scales + p.scale_slot * p.scale_slot_bytes + byte_row<Work::kOrder>(h) * tile.w0->groups * 2;
  }
  uint32_t previous = 0, last = 0;  // slot; the plane of the last scale
  for (uint32_t stage = 0; stage < stages; ++stage) {
    barrier_wait(p.full(p.slot), p.phase);
    const uint32_t at = p.base + p.slot * kScaledByteStage, groups = groups_of(tile, stage);
    const char* memory = p.memory + p.slot * kScaledByteStage;
    const uint64_t x = rows_descriptor(at + kByteWeights, kBytePanel);
    const uint2 four[2] = {weight_scales(scales[0], *tile.w0, stage, groups),
                           weight_scales(scales[1], *tile.w0, stage, groups)};
#pragma unroll
    for (uint32_t u = 0; u < 4; ++u) {
      rows.load(memory, u, a[u % 2]);
      const float next[2] = {nth_scale(four[0], u), nth_scale(four[1], u)};
      keep(a[u % 2][0]), keep(a[u % 2][1]);
      products_wait<0>();
      keep(s.sums);
      keep(a[1 - u % 2][0]), keep(a[1 - u % 2][1]);
      // The products of the previous stage are done.
      if (u == 0 && stage != 0 && lane == 0) barrier_arrive(p.empty(previous));
      if (u % kFresh == 0) {
        const uint32_t inverse = at + kScaledByteScaleAt + u / kFresh * kScaledBytePlane;
        s.add(acc, 0, 0);
        s.begin(acc, inverse, inverse + kPlanes * kScaledBytePlane, next[0], next[1]);
        last = inverse + (kPlanes + 1) * kScaledBytePlane;
      } else {
        s.add(acc, next[0], next[1]);
      }
      s.scale[0] = next[0], s.scale[1] = next[1];
      keep(s.sums);
      products_begin();
      byte_product<N>(s.sums, a[u % 2][0], x + u / 2 * (kScaledByteRows * kSpan / 16) + u % 2 * 4);
      byte_product<N>(s.sums, a[u % 2][1], x + u / 2 * (kScaledByteRows * kSpan / 16) + u % 2 * 4 + 2);
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
    const float2 now = load_scales(last + n * 32 + threadIdx.x % 4 * 8);
    const float by[2] = {now.x * (1.0f / 16), now.y * (1.0f / 16)};  // the nibbles are in the upper halves of bytes
#pragma unroll
    for (int i = 0; i < 4; ++i) acc[4 * n + i] *= by[i % 2];
  }
  __syncwarp();
  if (lane == 0) barrier_arrive(p.empty(previous)), barrier_arrive(p.scales_empty(p.scale_slot));
  p.next_scales();
}

// As consume_class.
template <int N, class Work>
__device__ inline uint32_t consume_scaled_bytes(ScaledBytePipe& p, const Work& work, uint32_t i, uint32_t end) {
  uint4 next = i < end ? work.entry(i) : uint4{};
  for (; i < end; i += gridDim.x) {
    const GroupedTile tile = work.tile(i, next);
    if (i + gridDim.x < end) next = work.entry(i + gridDim.x);
    if (tile.groups == 0) continue;
    float acc[N / 2];
    multiply_scaled_bytes<N, Work>(p, tile, acc);
    work.template store_bytes<N>(p, tile, acc);
  }
  return i;
}

// As grouped_product, with work as there, for up to kScaledByteRows rows, and
//   kScaledSpans      spans that share a scale of the activations: 1 or 2
//   scales(), scale_at(tile, n)       where the scales of a tile's rows in the nth such spans are
//   store_bytes<N>(pipe, tile, acc)   instead of store; acc as byte_row says
// A tile's `end` counts groups of 64 elements.
template <class Work>
__device__ inline void product_of_scaled_bytes(const Work& work, const ScaledByteShape& shape, char* shared,
                                               bool waited = false) {
  static_assert(Work::kScaledSpans == 1 || Work::kScaledSpans == 2);
  ScaledBytePipe p(shared, shape);
  if (Work::kWaits == Waits::first) depend();
  if (Work::kWaits == Waits::first || waited) release_next();
  if (threadIdx.x >= kByteConsumers) {
    fewer_registers<32>();
    produce_bytes(p, work, Work::kWaits == Waits::ahead && !waited);
    return;
  }
  more_registers<112>();
  if constexpr (Work::kRows != 0) {
    consume_scaled_bytes<Work::kRows>(p, work, blockIdx.x, work.total());
  } else {  // there are no products of five and of seven groups
    const uint32_t lane = threadIdx.x % 32, totals = lane <= kScaledByteRows / 8 ? work.total(lane) : 0;
    const auto from = [&](int groups) { return __shfl_sync(kAll, totals, groups); };
    uint32_t i = consume_scaled_bytes<64>(p, work, blockIdx.x, from(7));
    i = consume_scaled_bytes<48>(p, work, i, from(5));
    i = consume_scaled_bytes<32>(p, work, i, from(4));
    i = consume_scaled_bytes<24>(p, work, i, from(3));
    i = consume_scaled_bytes<16>(p, work, i, from(2));
    consume_scaled_bytes<8>(p, work, i, from(1));
  }
  work.finish();
}

#endif  // SWY_HOPPER

}  // namespace gpu
