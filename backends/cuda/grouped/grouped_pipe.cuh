// SPDX-License-Identifier: Apache-2.0
// Data that the warps of a grouped product share (grouped.cuh): its tiles, and the ring in shared memory through which
// spans pass.
#pragma once

#include "common/device_code.cuh"
#include "grouped_rows.cuh"

namespace gpu {

// One product of a block.
struct GroupedTile {
  const StreamedWeight *w0, *w1;  // of the first 128 rows, and of the second
  uint32_t row0, row1;
  const uint8_t* x;      // the first panel
  uint64_t span_stride;  // bytes from a span's panels to the next
  uint32_t groups;       // of 8 rows of activations
  uint32_t begin, end;   // spans
  uint32_t number;       // of the caller, as the next
  uint4 what;            // of the caller
};

// When a kernel waits for the previous ones: at its start, or before it reads its activations.
enum class Waits { first, ahead };

#ifdef SWY_HOPPER

struct GroupedPipe {
  char* memory;
  uint32_t base, weight_bytes, stage_bytes, stages, scales, staging, barriers;
  uint32_t slot = 0, phase = 0, scale_slot = 0, scale_phase = 0;
  uint64_t policy = 0;  // of weights

  __device__ GroupedPipe(char* shared, const GroupedShape& s, swy_dtype d, uint32_t consumers) {
    memory = shared + (1024 - shared_at(shared) % 1024) % 1024;
    base = shared_at(memory);
    weight_bytes = GroupedShape::weight_bytes(d);
    stage_bytes = s.stage_bytes(d);
    stages = s.stages;
    scales = stages * stage_bytes;
    staging = scales + GroupedShape::scale_bytes(d);
    barriers = base + staging + s.staging_bytes();
    if (threadIdx.x == 0) {
      for (uint32_t i = 0; i < stages; ++i) {
        barrier_init(full(i), 1);
        barrier_init(empty(i), consumers / 32);
      }
      for (uint32_t i = 0; i < kScaleSlots; ++i) {
        barrier_init(scales_full(i), 1);
        barrier_init(scales_empty(i), consumers / 32);
      }
      publish_barriers();
      stores_visible_to_copies();
    }
    __syncthreads();
  }
  // A word of shared memory for the consumers.
  __device__ uint32_t flag() const { return barriers - base + (2 * kMostStages + 2 * kScaleSlots) * 8; }
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

// The group of eight scales that a span belongs to.
__device__ inline uint32_t eight_of(uint32_t group_shift, uint32_t span) { return ((span * kSpan) >> group_shift) / 8; }

#endif  // SWY_HOPPER

}  // namespace gpu
