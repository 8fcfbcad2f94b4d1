// SPDX-License-Identifier: Apache-2.0
// GATED_DELTA for prompts, by chunks: the walk through the chunks of a sequence (gated_delta_chunks.glsl).
//
// A workgroup owns 32 columns of one head's state, in shared memory. The next block of keys and queries is requested
// while this one is multiplied. gl_WorkGroupID.y: value head, .z: sequence. Writes o [rows, values], and the states.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "gated_delta.glsl"
#include "gated_delta_chunks.glsl"
layout(local_size_x = 256) in;
layout(push_constant, std430) uniform Push {
  uint64_t qkv, mixed, inverse, within, decay, conv_state, rule_state, o, step, pending;
  uint key_heads, value_heads;
  uint pending_rows, unused;
};
#include "gated_delta_inputs.glsl"

shared vec2 state[kKeyBlocks * 32 * 16];  // [keys][columns]
shared vec2 values[32 * 17];              // [rows][columns]: V - exp(G) K S, then U

uint channels, key_channel, query_channel, first, end;  // of the chunk's rows
vec4 next_k, next_q;
void ask_for(uint block, bool with_queries) {
  uint row = first + gl_LocalInvocationIndex / 8;
  next_k = four_of(mixed, channels, key_channel, row, end, block);
  if (with_queries) next_q = four_of(mixed, channels, query_channel, row, end, block);
}

// States lie [value_dim][key_dim]; a column beyond value_dim, or a key beyond key_dim, is 0.
void move_state(uint64_t at, bool read, bool fresh, uint column0) {
  for (uint i = gl_LocalInvocationIndex; i < kKeyBlocks * 32 * 32; i += 256) {
    uint c = i / (kKeyBlocks * 32), k = i % (kKeyBlocks * 32);
    bool there = column0 + c < kValueDim && k < kKeyDim;
    if (read) {
      state[k * 16 + c / 2][c % 2] = there && !fresh ? Floats(at).at[(column0 + c) * kKeyDim + k] : 0.0;
    } else if (there) {
      Floats(at).at[(column0 + c) * kKeyDim + k] = state[k * 16 + c / 2][c % 2];
    }
  }
}

// sums += rows 2 y, 2 y + 1 of a lower triangle [32, 32] by `values`. Values above the diagonal are left out, not
// multiplied by zeros: later rows may contain NaN.
void multiply_values(inout vec2 sums[2], uint x, uint y, bool by_keys) {
  for (uint j4 = 0; j4 <= y / 2; ++j4) {
    vec4 a = by_keys ? keys[2 * y * 9 + j4] : queries[2 * y * 9 + j4];
    vec4 b = by_keys ? keys[(2 * y + 1) * 9 + j4] : queries[(2 * y + 1) * 9 + j4];
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      vec2 v = values[(4 * j4 + j) * 17 + x];
      sums[0] = fma(vec2(a[j]), 4 * j4 + j <= 2 * y ? v : vec2(0), sums[0]);
      sums[1] = fma(vec2(b[j]), 4 * j4 + j <= 2 * y + 1 ? v : vec2(0), sums[1]);
    }
  }
}

// One chunk: its rows of o, and the state after it.
void walk(uint64_t slot, uint head, uint column, uint next_first, uint next_end) {
  uint thread = gl_LocalInvocationIndex, x = thread % 16, y = thread / 16, own = column + 2 * x;
  uint all_values = value_heads * kValueDim, value_channel = channels - all_values + head * kValueDim;
  vec4 t = Float4s(inverse + slot * 4096).at[thread], w = Float4s(within + slot * 4096).at[thread];
  vec2 growth[2], v[2];
  [[unroll]] for (uint a = 0; a < 2; ++a) {
    uint row = first + 2 * y + a;
    growth[a] = Float2s(decay + slot * 256).at[2 * y + a];
    [[unroll]] for (uint c = 0; c < 2; ++c) {
      bool there = row < end && own + c < kValueDim;
      v[a][c] = there ? Floats(mixed + uint64_t(row) * channels * 4).at[value_channel + own + c] : 0.0;
    }
  }
  vec2 behind = Float2s(decay + slot * 256).at[thread / 8], last = Float2s(decay + slot * 256).at[31];
  vec2 r[2] = {vec2(0), vec2(0)}, result[2] = {vec2(0), vec2(0)};
  for (uint block = 0; block < kKeyBlocks; ++block) {
    barrier();
    keys[place()] = next_k;
    queries[place()] = next_q;
    barrier();
    ask_for(block + 1 < kKeyBlocks ? block + 1 : 0, block + 1 < kKeyBlocks);
    for (uint k4 = 0; k4 < 8; ++k4) {
      vec4 ka = keys[2 * y * 9 + k4], kb = keys[(2 * y + 1) * 9 + k4];
      vec4 qa = queries[2 * y * 9 + k4], qb = queries[(2 * y + 1) * 9 + k4];
      [[unroll]] for (uint j = 0; j < 4; ++j) {
        vec2 s = state[(block * 32 + 4 * k4 + j) * 16 + x];
        r[0] = fma(vec2(ka[j]), s, r[0]);
        r[1] = fma(vec2(kb[j]), s, r[1]);
        result[0] = fma(vec2(qa[j]), s, result[0]);
        result[1] = fma(vec2(qb[j]), s, result[1]);
      }
    }
  }
  barrier();
  queries[place()] = t;
  keys[place()] = w;
  [[unroll]] for (uint a = 0; a < 2; ++a) values[(2 * y + a) * 17 + x] = v[a] - growth[a].x * r[a];
  barrier();
  vec2 u[2] = {vec2(0), vec2(0)};
  multiply_values(u, x, y, false);
  barrier();
  [[unroll]] for (uint a = 0; a < 2; ++a) values[(2 * y + a) * 17 + x] = u[a];
  barrier();
  [[unroll]] for (uint a = 0; a < 2; ++a) result[a] *= growth[a].x;
  multiply_values(result, x, y, true);
  [[unroll]] for (uint a = 0; a < 2; ++a) {
    uint row = first + 2 * y + a;
    [[unroll]] for (uint c = 0; c < 2; ++c) {
      bool there = row < end && own + c < kValueDim;
      if (there) Floats(o + uint64_t(row) * all_values * 4).at[head * kValueDim + own + c] = result[a][c];
    }
  }
  // The state, 32 keys at a time: keys 2 y and 2 y + 1 of the block.
  for (uint block = 0; block < kKeyBlocks; ++block) {
    barrier();
    keys[place()] = next_k * behind.y;
    barrier();
    if (block + 1 == kKeyBlocks) {
      first = next_first;
      end = next_end;
      ask_for(0, true);
    } else {
      ask_for(block + 1, false);
    }
    vec2 sums[2];
    [[unroll]] for (uint a = 0; a < 2; ++a) sums[a] = last.x * state[(block * 32 + 2 * y + a) * 16 + x];
    for (uint i = 0; i < kChunk; ++i) {
      vec4 four = keys[i * 9 + y / 2];
      vec2 k = y % 2 == 0 ? four.xy : four.zw, v2 = values[i * 17 + x];
      sums[0] = fma(vec2(k.x), v2, sums[0]);
      sums[1] = fma(vec2(k.y), v2, sums[1]);
    }
    [[unroll]] for (uint a = 0; a < 2; ++a) state[(block * 32 + 2 * y + a) * 16 + x] = sums[a];
  }
}

void main() {
  if (gl_WorkGroupID.z >= Step(step).seqs) return;
  Sequence s = run_of(step, gl_WorkGroupID.z, pending);
  if (!s.live) return;
  uint all_keys = key_heads * kKeyDim, head = gl_WorkGroupID.y, column = gl_WorkGroupID.x * 32;
  channels = 2 * all_keys + value_heads * kValueDim;
  query_channel = head / (value_heads / key_heads) * kKeyDim;
  key_channel = all_keys + query_channel;
  keep_inputs(s, channels);
  uint64_t slot_bytes = uint64_t(value_heads) * kValueDim * kKeyDim * 4, head_bytes = uint64_t(head) * kValueDim * kKeyDim * 4;
  uint rows_end = s.first + s.rows, slot = slot_of(s, gl_WorkGroupID.z);
  first = s.first;
  end = min(first + kChunk, rows_end);
  ask_for(0, true);
  uint from = s.kept > 0 ? s.write : s.read;  // rows that stand are applied to it already
  move_state(rule_state + from * slot_bytes + head_bytes, true, s.fresh, column);
  for (uint row = s.first; row < rows_end; row += kChunk) {
    uint next_first = row + kChunk < rows_end ? row + kChunk : row;
    walk(uint64_t(slot) * value_heads + head, head, column, next_first, min(next_first + kChunk, rows_end));
    ++slot;
  }
  barrier();
  if (s.pends) return;
  move_state(rule_state + s.write * slot_bytes + head_bytes, false, false, column);
}
