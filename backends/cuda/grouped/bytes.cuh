// SPDX-License-Identifier: Apache-2.0
// Grouped products (grouped.cuh) of 4-bit weights with activations as bytes.
//
// Scales cost more than products, if every sum of 64 elements is scaled. So there are none within a tile:
//   - a row of activations has one scale, but for powers of four: where a stage's elements are that much smaller, sums
//     are shifted at its beginning. Most rows need none of that.
//   - so has a row of a weight: the largest of its groups. The others become smaller bytes. With f = 256 times the
//     scale of a group over the largest one, an element is the upper byte of 16 f (q - 8) + 128, and those of the
//     largest are exact. One multiplication serves two elements, 16 bits apart; what the lower one borrows from the
//     upper one is less than 1/256 of a byte's last bit.
// Sums are integers of 32 bits until the tile's end. So a thread has 64 of them for 128 rows of activations, and no
// floats.
//
// The copy engine's time depends on the number of rows in its boxes. So a stage has two spans of 256 rows.
#pragma once

#include "byte_rows.cuh"
#include "byte_weights.cuh"
#include "common/wgmma_bytes.cuh"
#include "grouped.cuh"

namespace gpu {

#ifdef SWY_HOPPER

struct BytePipe {
  char* memory;
  uint32_t base, stage_bytes, stages, changes, factors, barriers;  // factors: of this warp; barriers: an address
  uint32_t slot = 0, phase = 0, scale_slot = 0;

  __device__ BytePipe(char* shared, const ByteShape& s) {
    memory = shared;
    base = shared_at(memory);
    stage_bytes = s.stage_bytes();
    stages = s.stages;
    changes = stages * stage_bytes;
    const uint32_t all_factors = changes + stages * kByteChanges + (stages + 1) * kByteScales;
    factors = all_factors + threadIdx.x / 32 * (s.factors / (kByteConsumers / 32));
    barriers = base + all_factors + s.factors;
    if (threadIdx.x == 0) {
      for (uint32_t i = 0; i < stages; ++i) barrier_init(full(i), 1), barrier_init(empty(i), kByteConsumers / 32);
      publish_barriers();
      stores_visible_to_copies();
    }
    __syncthreads();
  }
  __device__ uint32_t full(uint32_t i) const { return barriers + i * 8; }
  __device__ uint32_t empty(uint32_t i) const { return barriers + (kMostStages + i) * 8; }
  __device__ uint32_t scales() const { return changes + stages * kByteChanges + scale_slot * kByteScales; }
  __device__ void next() {
    if (++slot == stages) slot = 0, phase ^= 1;
  }
  __device__ void next_scales() {
    if (++scale_slot > stages) scale_slot = 0;
  }
};

// ---- requests

// The scales of the activations come with the last stage of a tile, their changes with each.
template <Producer kPart, class Work>
__device__ inline void produce_stages(BytePipe& p, const Work& work, uint64_t policy) {
  const uint32_t total = work.total();
  for (uint32_t i = blockIdx.x; i < total; i += gridDim.x) {
    const GroupedTile t = work.tile(i, work.entry(i));
    if (t.groups == 0) continue;
    for (uint32_t stage = 0; stage < t.end; ++stage) {
      barrier_wait(p.empty(p.slot), p.phase ^ 1);
      const uint32_t to = p.base + p.slot * p.stage_bytes, barrier = p.full(p.slot);
      const bool last = stage + 1 == t.end;
      if (kPart == Producer::activations) {
        const uint32_t bytes = t.groups * kBytePanel;
        const uint8_t* from = t.x + 2 * stage * t.span_stride;
        copy_in(to + kByteWeights, from, bytes, barrier);
        copy_in(to + kByteWeights + (p.stage_bytes - kByteWeights) / 2, from + t.span_stride, bytes, barrier);
        const ByteScales& scales = work.scales();
        const uint32_t row = work.first_row(t);
        copy_in(p.base + p.changes + p.slot * kByteChanges, scales.changes + stage * scales.rows + row, t.groups * 16,
                barrier);
        if (last) copy_in(p.base + p.scales(), scales.last + row, t.groups * 32, barrier);
      } else if (kPart == Producer::first_half) {
        barrier_expect(barrier, kByteWeights + t.groups * (2 * kBytePanel + 16 + (last ? 32 : 0)));
        copy_box(to, t.w0->quants, stage * kBoxBytes, t.row0, barrier, policy);
      } else {
        copy_box(to + kByteWeights / 2, t.w1->quants, stage * kBoxBytes, t.row1, barrier, policy);
      }
      p.next();
    }
    p.next_scales();
  }
}

// ---- products

// Shifts sums of the previous stages where a stage's activations have another scale. changes: of the tile's rows.
template <int N>
__device__ __forceinline__ void shift_sums(const char* changes, uint32_t groups, uint32_t (&sums)[N / 2]) {
  const uint32_t lane = threadIdx.x % 32;
  uint2 own = make_uint2(0, 0);
  if (lane < groups * 2) own = reinterpret_cast<const uint2*>(changes)[lane];
  const uint32_t changed = __ballot_sync(kAll, (own.x | own.y) != 0);  // two bits of eight rows
  if (changed == 0) return;
  products_wait<0>();
  keep(sums);
#pragma unroll
  for (int n = 0; n < N / 8; ++n) {
    if ((changed >> (2 * n) & 3) == 0) continue;
    const uint32_t two = reinterpret_cast<const uint32_t*>(changes)[n * 4 + lane % 4];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const uint32_t up = two >> e * 16 & 0xff, down = two >> (e * 16 + 8) & 0xff;
#pragma unroll
      for (int i = e; i < 4; i += 2) {
        sums[4 * n + i] = static_cast<uint32_t>(static_cast<int>(sums[4 * n + i] << up) >> down);
      }
    }
  }
  keep(sums);
}

// A tile's sums and their scales.
template <int N>
struct ByteSums {
  uint32_t sums[N / 2];
  float scale[2];    // [h]: of this thread's rows of the weight
  uint32_t of_rows;  // address of the scales of the activations

  // v[2 h + e] = the result for row 2 t + e of the nth eight rows.
  __device__ __forceinline__ void four(int n, float (&v)[4]) const {
    const float2 of = load_scales(of_rows + n * 32);
    const float by[2] = {of.x, of.y};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      v[i] = static_cast<float>(static_cast<int>(sums[4 * n + i])) * (by[i % 2] * scale[i / 2]);
    }
  }
};

template <int N, class Work>
__device__ __forceinline__ void multiply_bytes(BytePipe& p, const GroupedTile& tile, const Factors<Work::kOrder>& of,
                                               ByteSums<N>& s) {
  const uint32_t lane = threadIdx.x % 32, span = (p.stage_bytes - kByteWeights) / 2;
  const ByteRowsOfWeight<Work::kOrder> rows;
  of.make(tile, s.scale);
  const char* factors = of.at + lane / 4 * 4;
  uint32_t a[2][2][4];  // of alternate groups
#pragma unroll
  for (int i = 0; i < N / 2; ++i) s.sums[i] = 0;
  uint32_t previous = 0;  // slot
  for (uint32_t stage = 0; stage < tile.end; ++stage) {
    barrier_wait(p.full(p.slot), p.phase);
    if (stage != 0) shift_sums<N>(p.memory + p.changes + p.slot * kByteChanges, tile.groups, s.sums);
    const char* memory = p.memory + p.slot * p.stage_bytes;
    const uint64_t x = rows_descriptor(p.base + p.slot * p.stage_bytes + kByteWeights, kBytePanel);
#pragma unroll
    for (uint32_t u = 0; u < 4; ++u) {
      rows.load(memory, u, *reinterpret_cast<const uint32_t*>(factors + u * 32), a[u % 2]);
      keep(a[u % 2][0]), keep(a[u % 2][1]);
      products_begin();
      byte_product<N>(s.sums, a[u % 2][0], x + u / 2 * (span / 16) + u % 2 * 4);
      byte_product<N>(s.sums, a[u % 2][1], x + u / 2 * (span / 16) + u % 2 * 4 + 2);
      products_commit();
      products_wait<1>();
      keep(a[1 - u % 2][0]), keep(a[1 - u % 2][1]);
      // The products of the previous stage are done.
      if (u == 0 && stage != 0 && lane == 0) barrier_arrive(p.empty(previous));
    }
    factors += 4 * 32;
    previous = p.slot;
    p.next();
  }
  products_wait<0>();
  keep(a[0][0]), keep(a[0][1]), keep(a[1][0]), keep(a[1][1]);
  keep(s.sums);
  if (lane == 0) barrier_arrive(p.empty(previous));
  s.of_rows = p.base + p.scales() + lane % 4 * 8;
  p.next_scales();
}

// In tiles of kByteRows rows half of the warps begin so much later: they multiply while the other half stores its
// results. Chosen by measurement.
constexpr uint32_t kStaggerNs = 1500;

// What a consumer knows of its next tile.
struct NextTile {
  uint32_t number, total;
  uint4 entry;
};

// Tiles up to `end`, of N rows or a few less.
template <int N, class Work>
__device__ __forceinline__ void consume_bytes(BytePipe& p, const Work& work, NextTile& next, uint32_t end) {
  const Factors<Work::kOrder> factors{p.memory + p.factors};
  while (next.number < end) {
    const GroupedTile tile = work.tile(next.number, next.entry);
    next.number += gridDim.x;
    const bool more = next.number < next.total;
    if (more) next.entry = work.entry(next.number);
    if (tile.groups == 0) {
      if (more) factors.request(work.tile(next.number, next.entry));
      continue;
    }
    work.prefetch(tile);
    ByteSums<N> sums;
    multiply_bytes<N, Work>(p, tile, factors, sums);
    if (more) factors.request(work.tile(next.number, next.entry));
    work.template store_bytes<N>(tile, sums);
  }
}

// Tiles of N rows, then those of fewer. totals: as in consume_classes.
template <int N, class Work>
__device__ __forceinline__ void consume_byte_classes(BytePipe& p, const Work& work, NextTile& next, uint32_t totals) {
  constexpr int kNext = N > 32 ? N - 16 : N - 8;  // there are no products of five and of seven groups
  consume_bytes<N>(p, work, next, __shfl_sync(kAll, totals, kNext / 8 + 1));
  if constexpr (kNext > 0) consume_byte_classes<kNext>(p, work, next, totals);
}

// As grouped_product, with work as there, for up to kByteRows rows, and
//   scales(), first_row(tile)   of the activations
//   prefetch(tile)               brings nearer what a result is added to
//   store_bytes<N>(tile, sums)   instead of store; columns as byte_row says
// A tile's `end` counts stages.
template <class Work>
__device__ __forceinline__ void product_of_bytes(const Work& work, const ByteShape& shape, char* shared,
                                                 bool waited = false) {
  BytePipe p(shared, shape);
  if (Work::kWaits == Waits::first) depend();
  if (Work::kWaits == Waits::first || waited) release_next();
  if (threadIdx.x >= kByteConsumers) {
    fewer_registers<32>();
    produce_bytes(p, work, Work::kWaits == Waits::ahead && !waited);
    return;
  }
  more_registers<112>();  // all that the block began with
  // Without a branch: with one the compiler waits for each product.
  if (Work::kRows == kByteRows)
    asm volatile("nanosleep.u32 %0;" ::"r"(threadIdx.x / (kByteConsumers / 2) * kStaggerNs) : "memory");
  NextTile next{blockIdx.x, work.total(), {}};
  if (next.number < next.total) {
    next.entry = work.entry(next.number);
    Factors<Work::kOrder>{p.memory + p.factors}.request(work.tile(next.number, next.entry));
  }
  if constexpr (Work::kRows != 0) {
    consume_bytes<Work::kRows>(p, work, next, next.total);
  } else {
    const uint32_t lane = threadIdx.x % 32, totals = lane <= kByteRows / 8 ? work.total(lane) : 0;
    consume_byte_classes<kByteRows>(p, work, next, totals);
  }
  work.finish();
}

#endif  // SWY_HOPPER

}  // namespace gpu
