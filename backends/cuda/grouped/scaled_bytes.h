// SPDX-License-Identifier: Apache-2.0
// The host's side of scaled_bytes.cuh: the layout of shared memory, and of activations with their scales.
#pragma once

#include "bytes.h"

namespace gpu {

constexpr uint32_t kScaledByteRows = 64;           // of activations per tile at most
constexpr uint32_t kScaledPanel = 2 * kBytePanel;  // bytes of a stage of eight rows: its two spans
constexpr uint32_t kScaleFloats = 16;              // of eight rows in the columns of one scale

// Scales of the activations: [stages or spans][groups of eight rows][2][8]. First what a row's sums so far are
// multiplied with where the scale begins (scaled_bytes.cuh), or 16 over the scales; then a sixteenth of the scales,
// since the weights in products are 16 times as large.
struct ScaledByteScales {
  float* floats;
  uint32_t groups;

  __host__ __device__ uint64_t at(uint32_t n, uint32_t group) const {
    return (uint64_t{n} * groups + group) * kScaleFloats;
  }
};
// count: of scales of a row.
inline ScaledByteScales take_scaled_scales(Arena& arena, uint32_t groups, uint32_t count) {
  return {arena.take<float>(uint64_t{count} * groups * kScaleFloats), groups};
}

// Layout of a block's shared memory: stages, slots of a tile's scales, staging, barriers. A slot has the scales of the
// weights, and then those of the activations.
struct ScaledByteShape {
  uint32_t staged_row;                 // bytes
  uint32_t weight_scales, row_scales;  // weight_scales: bytes; row_scales: of a row of activations at most
  uint32_t slots, stages;

  __host__ __device__ constexpr uint32_t stage_bytes() const {
    return kByteWeights + kScaledByteRows / 8 * kScaledPanel;
  }
  // Of the nth scales of a tile's activations.
  __host__ __device__ constexpr uint32_t scale_bytes() const { return kScaledByteRows / 8 * kScaleFloats * 4; }
  __host__ __device__ constexpr uint32_t slot_bytes() const { return weight_scales + row_scales * scale_bytes(); }
  __host__ __device__ constexpr uint32_t bytes() const {
    return 1024 + stages * stage_bytes() + slots * slot_bytes() + kScaledByteRows * staged_row + 256;
  }
};
constexpr uint32_t kMostScaleSlots = 4;
// groups: the most of a row of a weight; row_scales: of the activations. Where tiles are short, the ring has stages of
// several, so there are more slots. `stages` is 0 if two do not fit.
inline ScaledByteShape scaled_byte_shape(uint64_t block_memory, uint32_t groups, uint32_t row_scales,
                                         uint32_t staged_row) {
  ScaledByteShape s{staged_row, kTileRowsOfWeight * 2 * groups, row_scales, row_scales <= 4 ? kMostScaleSlots : 2, 0};
  const auto fits = [&](uint32_t stages) {
    ScaledByteShape of = s;
    of.stages = stages;
    return of.bytes() <= block_memory;
  };
  while (s.stages < kMostStages && fits(s.stages + 1)) ++s.stages;
  if (s.stages < kLeastStages) s.stages = 0;
  return s;
}

}  // namespace gpu
