// SPDX-License-Identifier: Apache-2.0
// What the warps of scaled_bytes.cuh share: the ring and the slots in shared memory, and who fills them.
#pragma once

#include "common/wgmma.cuh"
#include "grouped_pipe.cuh"
#include "scaled_bytes.h"

namespace gpu {

#ifdef SWY_HOPPER

__device__ inline uint2 load_two_words(uint32_t at) {
  uint2 v;
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at));
  return v;
}
__device__ inline void load_four_words(uint32_t at, uint32_t (&v)[4]) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(at)
               : "memory");
}

struct ScaledBytePipe {
  char* memory;
  uint32_t base, stages, stage_bytes, scales, slots, slot_bytes, weight_scales, scale_bytes, staging, barriers;
  uint32_t slot = 0, phase = 0, scale_slot = 0, scale_phase = 0;
  uint32_t staging_phase = 0;

  __device__ ScaledBytePipe(char* shared, const ScaledByteShape& s) {
    memory = shared + (1024 - shared_at(shared) % 1024) % 1024;
    base = shared_at(memory);
    stages = s.stages, stage_bytes = s.stage_bytes();
    scales = stages * stage_bytes;
    slots = s.slots, slot_bytes = s.slot_bytes();
    weight_scales = s.weight_scales, scale_bytes = s.scale_bytes();
    staging = scales + slots * slot_bytes;
    barriers = base + staging + kScaledByteRows * s.staged_row;
    if (threadIdx.x == 0) {
      constexpr uint32_t kWarps = kByteConsumers / 32;
      for (uint32_t i = 0; i < stages; ++i) barrier_init(full(i), 2), barrier_init(empty(i), kWarps);
      for (uint32_t i = 0; i < slots; ++i) barrier_init(scales_full(i), 1), barrier_init(scales_empty(i), kWarps);
      barrier_init(staging_empty(), kWarps);
      publish_barriers();
      stores_visible_to_copies();
    }
    __syncthreads();
  }
  __device__ uint32_t full(uint32_t i) const { return barriers + i * 8; }
  __device__ uint32_t empty(uint32_t i) const { return barriers + (kMostStages + i) * 8; }
  __device__ uint32_t scales_full(uint32_t i) const { return barriers + (2 * kMostStages + i) * 8; }
  __device__ uint32_t scales_empty(uint32_t i) const { return barriers + (2 * kMostStages + kMostScaleSlots + i) * 8; }
  __device__ uint32_t staging_empty() const { return barriers + 2 * (kMostStages + kMostScaleSlots) * 8; }
  __device__ void next() {
    if (++slot == stages) slot = 0, phase ^= 1;
  }
  __device__ void next_scales() {
    if (++scale_slot == slots) scale_slot = 0, scale_phase ^= 1;
  }
  // Until all consumers have read what was staged last.
  __device__ void wait_staging() {
    barrier_wait(staging_empty(), staging_phase ^ 1);
    staging_phase ^= 1;
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

// Scales of a row of a tile's activations: kScales for each stage but the last, which may have fewer.
template <class Work>
__device__ inline uint32_t scales_of(const GroupedTile& t) {
  constexpr uint32_t kGroups = kByteColumns / kByteGroup / Work::kScales;
  return (t.end + kGroups - 1) / kGroups;
}

// The numbers of a block's tiles, whose sizes fall: one of each round of gridDim.x, in which blocks have turns from the
// first to the last, and in the next round back.
struct TileWalk {
  uint32_t i, turn;

  __device__ TileWalk() : i(blockIdx.x), turn(2 * gridDim.x - 1) {}
  __device__ void next() {
    i = turn - i;
    turn += 2 * gridDim.x;
  }
};

// ---- requests

template <class Work, class Each>
__device__ inline void each_tile(const Work& work, Each each) {
  const uint32_t total = work.total();
  for (TileWalk w; w.i < total; w.next()) {
    const GroupedTile t = work.tile(w.i, work.entry(w.i));
    if (t.groups != 0) each(t);
  }
}

// By one thread.
template <class Work>
__device__ inline void produce_weights(ScaledBytePipe& p, const Work& work) {
  const uint64_t policy = cache_policy(Work::kReadOnce);
  each_tile(work, [&](const GroupedTile& t) {
    const uint32_t stages = stages_of(t);
    for (uint32_t stage = 0; stage < stages; ++stage) {
      barrier_wait(p.empty(p.slot), p.phase ^ 1);
      const uint32_t to = p.base + p.slot * p.stage_bytes, barrier = p.full(p.slot);
      barrier_expect(barrier, kByteWeights);
      copy_box(to, t.w0->quants, stage * kBoxBytes, t.row0, barrier, policy);
      copy_box(to + kByteWeights / 2, t.w1->quants, stage * kBoxBytes, t.row1, barrier, policy);
      p.next();
    }
  });
}

// Requests the scales of a tile's weights. Rows past the end are none of the product's.
__device__ inline void ask_weight_scales(const ScaledBytePipe& p, const GroupedTile& t, uint32_t activations) {
  const uint32_t row_bytes = t.w0->groups * 2, barrier = p.scales_full(p.scale_slot);
  const uint32_t rows0 = min(t.w0->rows - t.row0, kBoxRows),
                 rows1 = t.row1 < t.w1->rows ? min(t.w1->rows - t.row1, kBoxRows) : 0;
  const uint32_t to = p.base + p.scales + p.scale_slot * p.slot_bytes;
  barrier_expect(barrier, (rows0 + rows1) * row_bytes + activations);
  copy_in(to, t.w0->scale_data + uint64_t{t.row0} * t.w0->groups, rows0 * row_bytes, barrier);
  if (rows1 == 0) return;
  copy_in(to + kBoxRows * row_bytes, t.w1->scale_data + uint64_t{t.row1} * t.w1->groups, rows1 * row_bytes, barrier);
}

// By one thread each: the scales of tiles, and their activations. The previous kernel writes these and their scales.
template <class Work>
__device__ inline void produce_scales(ScaledBytePipe& p, const Work& work) {
  bool waits = true;
  each_tile(work, [&](const GroupedTile& t) {
    const uint32_t count = scales_of<Work>(t), bytes = t.groups * kScaleFloats * 4;
    barrier_wait(p.scales_empty(p.scale_slot), p.scale_phase ^ 1);
    ask_weight_scales(p, t, count * bytes);
    if (waits) depend();
    waits = false;
    const uint32_t to = p.base + p.scales + p.scale_slot * p.slot_bytes + p.weight_scales;
    const ScaledByteScales& from = work.scales();
#pragma unroll 1
    for (uint32_t n = 0; n < count; ++n) {
      copy_in(to + n * p.scale_bytes, from.floats + from.at(n, t.what.x), bytes, p.scales_full(p.scale_slot));
    }
    p.next_scales();
  });
}

template <class Work>
__device__ inline void produce_activations(ScaledBytePipe& p, const Work& work) {
  depend();
  release_next();
  each_tile(work, [&](const GroupedTile& t) {
    const uint32_t stages = stages_of(t), bytes = t.groups * kScaledPanel;
    for (uint32_t stage = 0; stage < stages; ++stage) {
      barrier_wait(p.empty(p.slot), p.phase ^ 1);
      barrier_expect(p.full(p.slot), bytes);
      copy_in(p.base + p.slot * p.stage_bytes + kByteWeights, t.x + stage * t.span_stride, bytes, p.full(p.slot));
      p.next();
    }
  });
}

#endif  // SWY_HOPPER

}  // namespace gpu
