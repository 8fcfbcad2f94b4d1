// The pieces of GATED_DELTA that are the same for every instruction set.
#pragma once

#include "kernels.h"

namespace cpu {

inline constexpr uint32_t kDeltaTokens = 64;  // tokens that run over a block of the state at a time

struct DeltaShape {
  uint32_t ratio;           // value heads per key head
  uint64_t channels;        // of the operation
  uint64_t columns;         // channels of one unit: q, k, then v of its value heads
  uint64_t columns_padded;  // stride of a token's columns; at least 32 beyond, so that whole vectors can be read
  uint64_t out_stride;
  explicit DeltaShape(const swy_gated_delta_attrs& a);
};

struct DeltaScratch {
  float* in;                 // [kernel - 1 + tokens, columns]: the inputs, with those before the first token
  float* taps;               // [kernel, columns]
  float* mixed;              // [tokens, columns]: after the convolution
  float* out;                // [tokens, value_dim]
  float* block;              // [key_dim, 2 vectors] of a state
  float *decay, *beta, *qk;  // [tokens]
  DeltaScratch(Arena& arena, const swy_gated_delta_attrs& a, const DeltaShape& shape);
};

// What the delta rule of one head reads, per token.
struct DeltaTokens {
  uint32_t tokens;
  const float *q, *k;  // normalised, [tokens] in rows of key_stride
  const float *decay, *beta, *qk;
  uint32_t key_dim, value_dim;
  uint64_t key_stride, value_stride, out_stride;
};

// The rows [first, last) of one sequence, for one key head.
struct DeltaUnit {
  const DeltaShape& shape;
  const DeltaScratch& scratch;
  uint32_t key_head;
  uint32_t first, last;
  uint32_t read_slot, write_slot;
  bool active;  // else the states stay as they are
  bool fresh;   // the states are zeros
  float* state;
  uint32_t heads;
  uint64_t head_elements;
  float* spare;  // where an inactive sequence of many tokens keeps its states meanwhile: [ratio, key_dim, value_dim]

  // Inputs of tokens [t0, t0 + tokens) behind those that came before.
  void bring_in(const swy::Call& call, uint32_t t0, uint32_t tokens) const;
  void store_conv(const swy::Call& call) const;
  // Where the tokens from t0 find a head's state (NULL: zeros) and leave it (NULL: nowhere).
  const float* state_from(uint32_t head, uint32_t t0) const;
  float* state_to(uint32_t head) const;
  float a_log(const swy::Call& call, uint32_t head) const;
  float dt_bias(const swy::Call& call, uint32_t head) const;

 private:
  void begin(const swy::Call& call) const;
  uint64_t channel(const swy_gated_delta_attrs& a, uint64_t c) const;
  float* carried(uint32_t head) const;
};

}  // namespace cpu
