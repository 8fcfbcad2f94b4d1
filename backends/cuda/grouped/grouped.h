// SPDX-License-Identifier: Apache-2.0
// The host's side of grouped.cuh: weights as the copy engine sees them, and the layout of a block's shared memory.
#pragma once

#include <cuda.h>

#include "host/kernels.h"

namespace gpu {

constexpr uint32_t kSpan = 128, kTileRowsOfWeight = 256, kBoxRows = 128;
constexpr uint32_t kPanelBytes = 2048, kMostTileGroups = 16;  // of eight rows of activations; in a tile
constexpr uint32_t kMostStages = 8, kScaleSlots = 2, kScalePlane = kTileRowsOfWeight * 16;
constexpr uint32_t kScaleSlotBytes = 2 * kScalePlane;

// Threads of a kernel whose warpgroups have 64 * kBlocks rows of a tile each, plus one warpgroup that requests data.
template <int kBlocks>
constexpr uint32_t kConsumers = 128 * kTileRowsOfWeight / (64 * kBlocks);
template <int kBlocks>
constexpr uint32_t kGroupedThreads = kConsumers<kBlocks> + 128;

// A weight as the copy engine sees it.
struct StreamedWeight {
  CUtensorMap quants;                        // boxes of one span by 128 rows (bf16: half a span)
  CUtensorMap scales, offsets;               // boxes of 8 groups by 128 rows
  const uint16_t *scale_data, *offset_data;  // MXFP4: bytes
  uint32_t rows, groups, group_shift;
  bool scales_mapped;  // otherwise the copy engine cannot take them
};

// Whether a weight can be streamed, and its description. Errors: a driver without matrix copies.
bool streamable(const swy_tensor& tensor);
swy_status stream_weight(const Weight& w, StreamedWeight* out, swy_error* error);

// Layout of a block's shared memory.
struct GroupedShape {
  uint32_t stages, most_rows;  // of activations per tile; a multiple of 8
  bool staged;                 // room for a tile's result

  __host__ __device__ static constexpr uint32_t weight_bytes(swy_dtype d) {
    return kTileRowsOfWeight * (d == SWY_BF16 ? 256 : d == SWY_I8 ? 128 : 64);
  }
  __host__ __device__ static constexpr uint32_t scale_bytes(swy_dtype d) {
    return d == SWY_BF16 || d == SWY_MXFP4 ? 0 : kScaleSlots * kScaleSlotBytes;
  }
  __host__ __device__ constexpr uint32_t stage_bytes(swy_dtype d) const {
    return weight_bytes(d) + most_rows / 8 * kPanelBytes;
  }
  __host__ __device__ constexpr uint32_t staging_bytes() const { return staged ? most_rows / 8 * kPanelBytes : 0; }
  __host__ __device__ constexpr uint32_t bytes(swy_dtype d) const {
    return 1024 + stages * stage_bytes(d) + scale_bytes(d) + staging_bytes() + 256;
  }
};
// Consumers release a stage when they have the next one: with a single stage they would wait for each other.
constexpr uint32_t kLeastStages = 2;
static_assert(GroupedShape{kLeastStages, 8 * kMostTileGroups, true}.bytes(SWY_BF16) <= kHopperMemory - kHopperReserved);
inline GroupedShape grouped_shape(uint64_t block_memory, swy_dtype d, uint32_t most_rows, bool staged) {
  GroupedShape s{kLeastStages, most_rows, staged};
  while (s.stages < kMostStages && GroupedShape{s.stages + 1, most_rows, staged}.bytes(d) <= block_memory) ++s.stages;
  return s;
}

}  // namespace gpu
