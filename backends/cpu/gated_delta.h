// SPDX-License-Identifier: Apache-2.0
// The parts of GATED_DELTA and DELTA_RULE that are the same for every instruction set.
#pragma once

#include "causal_conv.h"

namespace cpu {

using DeltaRule = swy::Operands<SWY_OP_DELTA_RULE>;

inline constexpr uint32_t kDeltaTokens = 64;  // tokens that run over a block of the state at a time
inline constexpr uint32_t kChunkLeast = 16;   // tokens from which the form on tiles is faster

struct DeltaShape {
  uint32_t ratio;           // value heads per key head
  uint64_t channels;        // of the operation
  uint64_t columns;         // channels of one unit: q, k, then v of its value heads
  uint64_t columns_padded;  // stride of a token's columns; at least 32 beyond, so that whole vectors can be read
  uint64_t out_stride;
  explicit DeltaShape(const swy_gated_delta_attrs& a);
};

struct DeltaScratch {
  ConvScratch conv;
  float* mixed;                          // [tokens, columns]: after the convolution
  float* out;                            // [tokens, value_dim]
  float* block;                          // [key_dim, 2 vectors] of a state
  float *log_decay, *decay, *beta, *qk;  // [tokens]
  DeltaScratch(Arena& arena, const swy_gated_delta_attrs& a, const DeltaShape& shape);
};

// The delta rule's inputs of one head, per token.
struct DeltaTokens {
  uint32_t tokens;
  const float *q, *k;  // normalised, [tokens] in rows of key_stride
  const float *log_decay, *decay, *beta, *qk;
  uint32_t key_dim, value_dim;
  uint64_t key_stride, value_stride, out_stride;
};

// Scratch of the form on tiles, in their layouts (tile_blocks.h).
struct ChunkScratch {
  // Of a key head: keys, then queries as two-term left operand [2 * 64, key_dim]; keys as two-term right operand
  // [key_dim, 64] and as left operand [key_dim, 64]; products of keys and of queries with keys [2 * 64, 64].
  uint8_t *rows, *keys_right, *keys_left;
  float* products;
  // Of a value head, left operands over tokens: the inverses of both halves, the contribution of the first half to the
  // second, the mix of updates in the outputs.
  uint8_t *solve, *carry, *mix;
  // Of 32 of its columns: the state as two-term right operand [key_dim, 32]; right operands and results [64, 32].
  uint8_t *state, *right, *updates, *later;
  float *applied, *solved, *decayed;   // [2 * 64, 32], [64, 32], [key_dim, 32]
  float* inverse;                      // [2, 32, 32]
  float *sum, *before, *after, *beta;  // [64]
  ChunkScratch(Arena& arena, const swy_gated_delta_attrs& a);
};

// At most 64 tokens at once on tiles, between tiles_begin(64) and tiles_end(); dims are multiples of 32. First the keys
// and queries of a key head, then each of its value heads: from `from` (NULL: zeros) to `to` (NULL: dropped).
void chunk_keys(const DeltaTokens& in, const ChunkScratch& s);
void chunk_head(const DeltaTokens& in, const ChunkScratch& s, const float* from, float* to, const float* v, float* o);

// The run of one sequence, for one key head.
struct DeltaUnit {
  const DeltaShape& shape;
  const DeltaScratch& scratch;
  const ChunkScratch* chunk;  // NULL: token by token
  bool whole;                 // GATED_DELTA, not DELTA_RULE: with convolution, gates and norm
  ConvBlock conv;             // its pieces are q, k and v; for DELTA_RULE they are copied
  uint32_t key_head;
  float* state;
  uint32_t heads;
  uint64_t head_elements;
  float* spare;  // where rows that no state gets keep its states meanwhile: [ratio, key_dim, value_dim]

  // A head's state before row t0 of the run, which a block of rows begins with; NULL: zeros.
  const float* state_from(uint32_t head, uint64_t t0) const;
  float* written(uint32_t head) const;  // the state that it gets
  float* dropped(uint32_t head) const { return spare + (head % shape.ratio) * head_elements; }
  // Where no row is applied, the state goes to the slot that is written as it is.
  void move_states() const;
  // Keeps the inputs of rows that stay pending: qkv, then b and a of every value head.
  void keep_pending(const swy::Call& call) const;
};

// The run of a sequence: which rows stand before its own, and whether these stay pending.
SequenceRows run_of(const swy::Call& call, uint32_t seq);

}  // namespace cpu
