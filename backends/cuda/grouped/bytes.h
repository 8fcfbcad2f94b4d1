// SPDX-License-Identifier: Apache-2.0
// The host's side of bytes.cuh: weights whose products are those of bytes, and the layout of shared memory.
#pragma once

#include "grouped.h"
#include "host/tensor_map.h"

namespace gpu {

constexpr uint32_t kByteRows = 8 * kMostTileGroups;  // of activations per tile at most
constexpr uint32_t kBytePanel = 8 * kSpan;           // bytes of a span of eight rows
constexpr uint32_t kByteGroup = 64;                  // elements of a factor
constexpr uint32_t kByteColumns = 2 * kSpan;         // of a stage: 128 bytes of each row of a weight
constexpr uint32_t kByteConsumers = kConsumers<1>, kByteThreads = kGroupedThreads<1>;
constexpr uint32_t kByteWeights = kTileRowsOfWeight * kByteColumns / 2;        // bytes of a stage
constexpr uint32_t kByteScales = kByteRows * 4, kByteChanges = kByteRows * 2;  // bytes

// Stages, and spans with what fills up the last one, of `width` elements.
__host__ __device__ constexpr uint32_t byte_stages(uint32_t width) { return (width + kByteColumns - 1) / kByteColumns; }
__host__ __device__ constexpr uint32_t byte_spans(uint32_t width) { return 2 * byte_stages(width); }

// 4-bit weights without offsets, in groups of whole 64s.
bool multiplied_as_bytes(const swy_tensor& tensor);
swy_status stream_bytes(const Weight& w, StreamedWeight* out, swy_error* error);

// Scales of the activations' bytes. The elements of a row have the same scale but for powers of two, which may change
// from stage to stage.
struct ByteScales {
  float* last;        // [rows]: of the last stage
  uint16_t* changes;  // [stages][rows]: bits by which sums are shifted at a stage's beginning, left | right << 8
  uint64_t rows;      // a multiple of 8
};

inline ByteScales take_scales(Arena& arena, uint64_t rows, uint32_t width) {
  float* last = arena.take<float>(rows);
  return {last, arena.take<uint16_t>(byte_stages(width) * rows), rows};
}

// Rows of activations as bytes (byte_rows.cuh), which products of bytes read.
struct ByteRows {
  uint8_t* panels;
  uint32_t groups;  // of eight rows
  ByteScales scales;
};

inline ByteRows take_byte_rows(Arena& arena, uint32_t rows, uint32_t width) {
  const uint32_t groups = ceil_div(rows, 8);
  auto* panels = arena.take<uint8_t>(uint64_t{byte_spans(width)} * groups * kBytePanel);
  return {panels, groups, take_scales(arena, uint64_t{groups} * 8, width)};
}

// Rows of the norm of some x.
struct NormOfBytes {
  bool normed;
  Weight norm;
  float eps, bias;
  float* inverse;  // [rows]: gets the factors that the bytes lack and their scales have
};
struct NormedBytes {
  ByteRows rows;
  NormOfBytes norm;
};

// Layout of a block's shared memory: stages, changes of their scales, scales of the tiles that are under way (one more
// than stages), factors of a tile's weights, barriers.
struct ByteShape {
  uint32_t stages, rows, factors;  // rows: of activations per tile at most; factors: bytes

  __host__ __device__ constexpr uint32_t stage_bytes() const { return kByteWeights + rows * kByteColumns; }
  __host__ __device__ constexpr uint32_t bytes() const {
    return stages * (stage_bytes() + kByteChanges + kByteScales) + kByteScales + factors + 2 * kMostStages * 8;
  }
};
// width: the most elements of a row. `stages` is 0 if two do not fit.
inline ByteShape byte_shape(uint64_t block_memory, uint32_t width, uint32_t rows) {
  ByteShape s{0, rows, kTileRowsOfWeight * 2 * byte_stages(width) * (kByteColumns / kByteGroup)};
  while (s.stages < kMostStages && ByteShape{s.stages + 1, rows, s.factors}.bytes() <= block_memory) ++s.stages;
  if (s.stages < kLeastStages) s.stages = 0;
  return s;
}

}  // namespace gpu
