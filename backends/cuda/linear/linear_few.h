// SPDX-License-Identifier: Apache-2.0
// How projections of a few rows are divided among blocks (linear_few.cuh).
#pragma once

#include "common/projection.cuh"
#include "linear_few_ready.h"

namespace gpu {

constexpr uint32_t kFewMostRows = 64, kFewMostWarps = 16, kFewWarpTiles = 2, kFewMostCluster = 8;
constexpr uint32_t kFewMostSlices = 8;   // of 256 columns, of a block
constexpr uint32_t kFewMostWeights = 4;  // quantized ones
constexpr uint32_t kFewMostPlain = 512;  // rows of a plain weight
constexpr uint32_t kFewPlainGroups = 2;  // that a warp with plain rows reads at once
constexpr uint32_t kFewChunks = 4;       // of the columns of rows that are ready
constexpr float kFewWeights = 0x1p-40f;  // times a weight: what wgmma multiplies

// A cluster has tiles of 16 rows of weights, and each of its blocks a share of their columns. A team of warps has one
// or two tiles each; if tiles are few, `parts` teams divide the block's columns. The clusters after the first
// `clusters` have tiles of plain weights, one per warp.
struct FewCut {
  uint32_t shift;   // blocks of a cluster, as a power of two
  uint32_t groups;  // of 64 columns, of a block
  uint32_t padded;  // rows of activations, in groups of 8: 1, 2, 4 or 8
  uint32_t tiles, team, parts, clusters;
  uint32_t plain_tiles, plain_parts, plain_clusters;
  uint32_t scales;       // of a block's columns, per row; offsets are as many
  uint32_t scale_shift;  // groups of 64 columns of one scale, as a power of two; 31: one scale per row
  bool affine;
  bool ready;  // the rows
  bool wgmma;  // teams of whole warpgroups; scales and offsets as few_factors, no sums
  bool apart;  // data that blocks push to each other has memory of its own

  __host__ __device__ uint32_t scale_bytes() const { return affine || wgmma ? 4 : 2; }
  __host__ __device__ uint32_t blocks() const { return 1u << shift; }
  __host__ __device__ uint32_t slices() const { return groups / 4; }
  __host__ __device__ uint32_t warps() const { return team * parts; }
  // Shared memory, in bytes: weights (or low terms of the activations), activations, sums of their groups, factors of
  // activations, scales; and pushed data, 512 for each 16 rows of weights by 8 of activations.
  __host__ __device__ uint32_t term_bytes() const { return groups * padded * 1024; }
  __host__ __device__ uint32_t x_at() const {
    const uint32_t weights = tiles * slices() * 2048, low = plain_clusters != 0 ? term_bytes() : 0;
    return weights > low ? weights : low;
  }
  __host__ __device__ uint32_t sums_at() const { return x_at() + term_bytes(); }
  __host__ __device__ uint32_t factors_at() const { return sums_at() + (wgmma ? 0 : groups * padded * 64); }
  __host__ __device__ uint32_t scales_at() const { return factors_at() + (ready ? 0 : groups * kFewGroup * 4); }
  __host__ __device__ uint32_t pushed_at() const {
    return apart ? (scales_at() + tiles * 16 * scales * scale_bytes() + 15) / 16 * 16 : 0;
  }
  // Pieces of 512 bytes that a block receives from each part of each block.
  __host__ __device__ uint32_t owned(bool plain) const {
    return ((plain ? plain_tiles : tiles) * padded + blocks() - 1) >> shift;
  }
  uint32_t bytes() const {
    const uint32_t all = tiles * 16 * scales * scale_bytes() + scales_at();
    const uint32_t wide = owned(false) * parts, plain = owned(true) * plain_parts;
    const uint32_t pushed = pushed_at() + (wide > plain ? wide : plain) * blocks() * 512;
    return 1024 + (all > pushed ? all : pushed);
  }
};

// first[0] counts tiles of quantized weights, first[1] those of plain ones.
struct Few {
  Projection p;
  FewRows ready;  // what to multiply, if the kernel in front has written it: then p.x is not read, and nothing normed
  FewCut cut;
  uint32_t first[2][SWY_LINEAR_MAX_WEIGHTS + 1];
  uint32_t map[SWY_LINEAR_MAX_WEIGHTS];
  Weight like;  // one of the quantized weights; all have the same encoding
};
struct FewMaps {
  CUtensorMap of[kFewMostWeights];
};

}  // namespace gpu
