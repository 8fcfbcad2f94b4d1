// SPDX-License-Identifier: Apache-2.0
// DELTA_RULE (kTaps is 1), and the rule of GATED_DELTA for prompts, token by token:
// S *= exp(g); d = beta (v - S^T k); S += k d^T; o = S^T q. With kStands only that of pending rows that stand, before
// the kernel of chunks.
//
// A workgroup owns 32 columns of one head's state, in registers: eight lanes per column, each with kN groups of four keys.
// gl_WorkGroupID.y: value head, .z: sequence. Writes o [rows, values], and the convolution's last inputs.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "gated_delta.glsl"
layout(local_size_x = 256) in;
layout(constant_id = 4) const bool kStands = false;
layout(push_constant, std430) uniform Push {
  uint64_t qkv, mixed, gate, conv_state, rule_state, o, step, pending;
  uint key_heads, value_heads;
  uint pending_rows, first_pending;  // of a slot; where rows that stand begin in `mixed` and `gate`
};
const uint kN = (kKeyDim + 31) / 32;

#include "gated_delta_inputs.glsl"

// Inputs of one row. The next row's are requested while this one is processed.
vec4 next_q[kN], next_k[kN];
float next_v;
vec2 next_gate;
void ask_for(uint row, uint head, uint column, uint part, uint keys, uint channels) {
  uint64_t from = mixed + uint64_t(row) * channels * 4;
  uint key_head = head / (value_heads / key_heads);
  [[unroll]] for (uint n = 0; n < kN; ++n) {
    uint i = n * 32 + part * 4;
    next_q[n] = i < kKeyDim ? Float4s(from + (key_head * kKeyDim + i) * 4).at[0] : vec4(0);
    next_k[n] = i < kKeyDim ? Float4s(from + (keys + key_head * kKeyDim + i) * 4).at[0] : vec4(0);
  }
  next_v = column < kValueDim ? Floats(from).at[2 * keys + head * kValueDim + column] : 0.0;
  next_gate = Float2s(gate + (uint64_t(row) * value_heads + head) * 8).at[0];
}

// Where row i of the run lies in `mixed` and `gate`.
uint place_of(Sequence s, uint i) {
  return i < s.kept ? first_pending + gl_WorkGroupID.z * pending_rows + i : s.first + i - s.kept;
}

void main() {
  if (gl_WorkGroupID.z >= Step(step).seqs) return;
  Sequence s = run_of(step, gl_WorkGroupID.z, pending);
  if (!s.live && kTaps > 1) return;  // what follows GATED_DELTA's rule clears its rows
  uint keys = key_heads * kKeyDim, values = value_heads * kValueDim, channels = 2 * keys + values;
  bool moves = s.fresh || s.read != s.write;  // the states of a sequence that applies no row
  if (kStands && s.kept == 0 && !(s.pends && moves)) return;
  if (s.live && !kStands) keep_inputs(s, channels);
  uint head = gl_WorkGroupID.y, part = gl_LocalInvocationIndex % 8;
  uint column = gl_WorkGroupID.x * 32 + gl_LocalInvocationIndex / 8;
  bool there = column < kValueDim;
  if (!s.live) {
    for (uint row = s.first; there && part == 0 && row < s.first + s.rows; ++row) {
      Floats(o + uint64_t(row) * values * 4).at[head * kValueDim + column] = 0;
    }
    return;
  }
  uint64_t at = (uint64_t(head) * kValueDim + (there ? column : 0)) * kKeyDim * 4, slot = uint64_t(values) * kKeyDim * 4;
  vec4 state[kN];
  [[unroll]] for (uint n = 0; n < kN; ++n) {
    uint k = n * 32 + part * 4;
    bool there_too = there && k < kKeyDim && !s.fresh;
    state[n] = there_too ? Float4s(rule_state + s.read * slot + at + k * 4).at[0] : vec4(0);
  }
  uint run = kStands ? s.kept : s.kept + s.rows, applied = kStands ? s.kept : applied_of(s);
  uint64_t to = rule_state + s.write * slot + at;
  if (applied == 0 && moves) {
    [[unroll]] for (uint n = 0; n < kN; ++n) {
      uint k = n * 32 + part * 4;
      if (there && k < kKeyDim) Float4s(to + k * 4).at[0] = state[n];
    }
  }
  if (run == 0) return;
  ask_for(place_of(s, 0), head, column, part, keys, channels);
  for (uint i = 0; i < run; ++i) {
    vec4 q[kN], k[kN];
    [[unroll]] for (uint n = 0; n < kN; ++n) {
      q[n] = next_q[n];
      k[n] = next_k[n];
    }
    float v = next_v;
    vec2 g = next_gate;
    ask_for(place_of(s, min(i + 1, run - 1)), head, column, part, keys, channels);
    float sum = 0, result = 0;
    [[unroll]] for (uint n = 0; n < kN; ++n) {
      state[n] *= g.y;
      [[unroll]] for (uint j = 0; j < 4; ++j) sum = fma(state[n][j], k[n][j], sum);
    }
    [[unroll]] for (uint x = 1; x < 8; x *= 2) sum += subgroupShuffleXor(sum, x);
    float delta = g.x * (v - sum);
    [[unroll]] for (uint n = 0; n < kN; ++n) {
      [[unroll]] for (uint j = 0; j < 4; ++j) {
        state[n][j] = fma(k[n][j], delta, state[n][j]);
        result = fma(state[n][j], q[n][j], result);
      }
    }
    [[unroll]] for (uint x = 1; x < 8; x *= 2) result += subgroupShuffleXor(result, x);
    if (there && part == 0 && i >= s.kept) {
      Floats(o + uint64_t(s.first + i - s.kept) * values * 4).at[head * kValueDim + column] = result;
    }
    if (i + 1 != applied) continue;
    [[unroll]] for (uint n = 0; n < kN; ++n) {
      uint k = n * 32 + part * 4;
      if (there && k < kKeyDim) Float4s(to + k * 4).at[0] = state[n];
    }
  }
}
