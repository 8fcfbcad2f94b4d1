// SPDX-License-Identifier: Apache-2.0
// GATED_DELTA for prompts, by chunks: T, W and the decays of one chunk and head (gated_delta_chunks.glsl).
// gl_WorkGroupID.x: slot; .y: value head.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "gated_delta.glsl"
#include "gated_delta_chunks.glsl"
layout(local_size_x = 256) in;
layout(push_constant, std430) uniform Push {
  uint64_t mixed, gate, inverse, within, decay, step;
  uint key_heads, value_heads;
};

shared uint chunk_seq;
shared float beta[32], log_decay[32], total[32];
shared float lower[32 * 33];

// The sequence that a slot belongs to, if any.
bool find_sequence(uint slot, out Sequence s, out uint nth) {
  uint seqs = Step(step).seqs;
  if (gl_LocalInvocationIndex == 0) chunk_seq = seqs;
  barrier();
  for (uint seq = gl_LocalInvocationIndex; seq < seqs; seq += 256) {
    Sequence t = sequence_of(step, seq);
    uint first = slot_of(t, seq);
    if (t.live && slot >= first && slot < first + (t.rows + kChunk - 1) / kChunk) chunk_seq = seq;
  }
  barrier();
  if (chunk_seq == seqs) return false;
  s = sequence_of(step, chunk_seq);
  nth = slot - slot_of(s, chunk_seq);
  return true;
}

// Rows of (I + A)^-1, a column by eight lanes, each with every eighth row in registers.
void invert(uint64_t to) {
  uint column = gl_LocalInvocationIndex / 8, part = gl_LocalInvocationIndex % 8;
  float x[4] = {0, 0, 0, 0};
  [[unroll]] for (uint n = 0; n < 4; ++n) {
    for (uint j = 0; j < 8; ++j) {
      uint row = 8 * n + j;
      float sum = 0;
      [[unroll]] for (uint m = 0; m < 4; ++m) {
        if (8 * m + part < row) sum = fma(lower[row * 33 + 8 * m + part], x[m], sum);
      }
      [[unroll]] for (uint d = 1; d < 8; d *= 2) sum += subgroupShuffleXor(sum, d);
      if (part == j) x[n] = row == column ? 1.0 : row > column ? -sum : 0.0;
    }
  }
  [[unroll]] for (uint n = 0; n < 4; ++n) {
    Floats(to).at[(8 * n + part) * 32 + column] = 8 * n + part >= column ? x[n] * beta[column] : 0.0;
  }
}

void main() {
  Sequence s;
  uint nth;
  if (!find_sequence(gl_WorkGroupID.x, s, nth)) return;
  uint thread = gl_LocalInvocationIndex, x = thread % 16, y = thread / 16, head = gl_WorkGroupID.y;
  uint all_keys = key_heads * kKeyDim, channels = 2 * all_keys + value_heads * kValueDim;
  uint key_channel = head / (value_heads / key_heads) * kKeyDim;
  uint first = s.first + nth * kChunk, end = min(first + kChunk, s.first + s.rows);
  if (thread < 32) {
    vec2 g = first + thread < end ? Float2s(gate + (uint64_t(first + thread) * value_heads + head) * 8).at[0] : vec2(0);
    beta[thread] = g.x;
    log_decay[thread] = g.y < -100.0 ? -100.0 : g.y;  // differences of sums stay numbers; exp(-100) is nothing
  }
  float kk[4] = {0, 0, 0, 0}, qk[4] = {0, 0, 0, 0};
  for (uint block = 0; block < kKeyBlocks; ++block) {
    vec4 k = four_of(mixed, channels, all_keys + key_channel, first + thread / 8, end, block);
    vec4 q = four_of(mixed, channels, key_channel, first + thread / 8, end, block);
    barrier();
    keys[place()] = k;
    queries[place()] = q;
    barrier();
    for (uint k4 = 0; k4 < 8; ++k4) {
      vec4 left[2] = {keys[2 * y * 9 + k4], keys[(2 * y + 1) * 9 + k4]};
      vec4 right[2] = {keys[2 * x * 9 + k4], keys[(2 * x + 1) * 9 + k4]};
      vec4 query[2] = {queries[2 * y * 9 + k4], queries[(2 * y + 1) * 9 + k4]};
      [[unroll]] for (uint e = 0; e < 4; ++e) {
        kk[e] += dot(left[e / 2], right[e % 2]);
        qk[e] += dot(query[e / 2], right[e % 2]);
      }
    }
  }
  if (thread < 32) {
    float sum = 0;
    for (uint j = 0; j <= thread; ++j) sum += log_decay[j];
    total[thread] = sum;
  }
  barrier();
  uint64_t slot = uint64_t(gl_WorkGroupID.x) * value_heads + head;
  [[unroll]] for (uint e = 0; e < 4; ++e) {
    uint i = 2 * y + e / 2, j = 2 * x + e % 2;
    float decay_between = exp(total[i] - total[j]);  // above the diagonal of no use, and perhaps no number
    lower[i * 33 + j] = beta[i] * decay_between * kk[e];
    Floats(within + slot * 4096).at[i * 32 + j] = j <= i ? decay_between * qk[e] : 0.0;
  }
  if (thread < 32) Float2s(decay + slot * 256).at[thread] = vec2(exp(total[thread]), exp(total[31] - total[thread]));
  barrier();
  invert(inverse + slot * 4096);
}
