// SPDX-License-Identifier: Apache-2.0
// The host's side of scaled_bytes.cuh: the layout of shared memory.
#pragma once

#include "bytes.h"

namespace gpu {

constexpr uint32_t kScaledByteRows = 64;  // of activations per tile at most

// Layout of a stage.
constexpr uint32_t kScaledBytePlane = kScaledByteRows * 4;  // bytes of a plane: one float for each row
constexpr uint32_t kScaledByteScaleAt = kByteWeights + 2 * kScaledByteRows * kSpan, kMostScalePlanes = 5;
constexpr uint32_t kScaledByteStage = (kScaledByteScaleAt + kMostScalePlanes * kScaledBytePlane + 1023) / 1024 * 1024;

// Scales of the activations: planes [scaled spans][rows], of scales and of their inverses.
struct ScaledByteScales {
  float *scale, *inverse;
};

// Layout of a block's shared memory: stages, two slots of a tile's scales of weights, staging, barriers.
struct ScaledByteShape {
  uint32_t stages, scale_slot, staging;

  __host__ __device__ constexpr uint32_t bytes() const {
    return 1024 + stages * kScaledByteStage + 2 * scale_slot + staging + 256;
  }
};
// groups: the most of a row of a weight. `stages` is 0 if two do not fit.
inline ScaledByteShape scaled_byte_shape(uint64_t block_memory, uint32_t groups, uint32_t staging) {
  ScaledByteShape s{0, kTileRowsOfWeight * 2 * groups, staging};
  while (s.stages < kMostStages && ScaledByteShape{s.stages + 1, s.scale_slot, staging}.bytes() <= block_memory)
    ++s.stages;
  if (s.stages < kLeastStages) s.stages = 0;
  return s;
}

}  // namespace gpu
