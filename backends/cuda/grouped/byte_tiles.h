// SPDX-License-Identifier: Apache-2.0
// The host's side of byte_tiles.cuh: the layout of a block's shared memory.
#pragma once

#include <algorithm>

#include "bytes.h"
#include "host/card.h"

namespace gpu {

constexpr uint32_t kByteTileThreads = 256, kByteTileBlocks = 2;                  // blocks of a multiprocessor
constexpr uint32_t kByteTileWeights = kTileRowsOfWeight * kSpan / 2;             // bytes of a stage, which has one span
constexpr uint32_t kByteTileChanges = kByteTileWeights + kTileRowsOfWeight * 4;  // behind two scales of each row
constexpr uint32_t kByteTileX = kByteTileChanges + 128;
constexpr uint32_t kByteTileAsked = 128;  // bytes behind the stages
constexpr uint32_t kMostByteTileRows = 48, kMostByteTileStages = 4;

// Stages: weights, their scales, changes of the scales of activations, panels of these.
struct ByteTileShape {
  uint32_t stages, rows;  // rows: of activations per tile at most, a multiple of 16

  __host__ __device__ constexpr uint32_t stage_bytes() const { return kByteTileX + rows * kSpan; }
  __host__ __device__ constexpr uint32_t bytes() const { return stages * stage_bytes() + kByteTileAsked; }
};
// As many stages as the blocks of a multiprocessor have room for: two where it has 100 KiB.
constexpr ByteTileShape byte_tile_shape(const Features& card, uint32_t rows) {
  const uint32_t room = card.processor_memory / kByteTileBlocks - card.reserved - kByteTileAsked;
  return {std::min(room / ByteTileShape{1, rows}.stage_bytes(), kMostByteTileStages), rows};
}
}  // namespace gpu
