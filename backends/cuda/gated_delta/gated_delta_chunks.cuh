// SPDX-License-Identifier: Apache-2.0
// Data that the kernels of GATED_DELTA for prompts pass to each other.
//
// The delta rule over chunks of 64 rows (Yang et al. 2024, "Gated Delta Networks", section 3.3). Let K, Q [64, key_dim]
// and V [64, value_dim] be a chunk's rows, G_i the sum of log decays up to row i, S [key_dim, value_dim] the state
// before the chunk, and L_ij = beta_i (k_i . k_j) exp(G_i - G_j) for j < i, else 0. Then
//   U = (I + L)^-1 diag(beta) (V - diag(exp G) K S)
//   O = diag(exp G) Q S + W U,   W_ij = (q_i . k_j) exp(G_i - G_j) for j <= i, else 0
//   S' = exp(G_64) S + K^T diag(exp(G_64 - G)) U
//
// All decays are exp of differences that are not positive.
//
// With pending rows, those that stand are applied first, by a kernel of its own. The chunks are of the step's own rows.
#pragma once

#include "common/parts.cuh"
#include "gated_delta.cuh"
#include "grouped/bytes.h"

namespace gpu {

constexpr uint32_t kChunk = 64;
constexpr uint32_t kChunkTile = kChunk * kChunk;  // elements
constexpr uint32_t kSlice = 32;                   // columns of v in a tile

struct Chunks {
  Delta d;
  // Tiles (matrix.cuh) in bf16. A chunk's slot: its part_number().
  uint16_t *q, *k;    // [slots, key_heads] tiles [64, key_dim]; rows beyond a chunk's are not written
  uint16_t* v;        // [slots, value_heads, slices] tiles [64, kSlice]; later o, unnormed
  uint16_t* inverse;  // [slots, value_heads] tiles [64, 64]: (I + L)^-1 diag(beta), lower 16 x 16 blocks only
  uint16_t* within;   // [slots, value_heads] tiles [64, 64]: W, lower 16 x 16 blocks only
  float2* decay;      // [slots, value_heads, 64]: exp(G_i), exp(G_64 - G_i)
  uint32_t slots;     // for the bucket
  uint32_t few;       // sequences of at most so many rows are walked through token by token

  __host__ __device__ bool pends() const { return d.pending != nullptr; }
  __host__ __device__ uint32_t slices() const { return (d.value_dim + kSlice - 1) / kSlice; }
};

// Rows that stand: their states, in the write slots. Only with pending rows.
swy_status record_stands(const Recording& r, const Delta& d);
// The state that the step's own rows go on from. With rows that stand it is not that of an earlier step.
__device__ inline uint64_t begins_in(const Run& s) { return s.kept > 0 ? s.write : s.read; }
// Per chunk: q, k and v, which are the inputs after convolution, SiLU and, q and k, norms; inverse, within and decay.
swy_status record_triangles(const Recording& r, const Chunks& c);
// Walks through the chunks of each sequence of more than `few` rows: o and the state.
swy_status record_chunks(const Recording& r, const Chunks& c);
// The same for the other sequences, token by token.
swy_status record_few(const Recording& r, const Chunks& c);
// Bytes of shared memory that a block needs.
uint32_t least_block_memory();
// y = rms_norm(o) * w * silu(z). It also keeps the last inputs of the convolution; with pending rows, those that stay
// pending.
swy_status record_gated_norm(const Recording& r, const Chunks& c);
// The same, of which only `to` gets y.
swy_status record_heads_to_bytes(const Recording& r, const Chunks& c, const ByteRows& to);

}  // namespace gpu
