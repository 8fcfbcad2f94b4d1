// SPDX-License-Identifier: Apache-2.0
// GATED_DELTA where every sequence has one row: the whole step in one launch.
//
// A workgroup serves one value head of one sequence: convolution, norms, gates, rule, gated norm. Its state is in
// registers: kColumns at a time, eight lanes per column, each with kN groups of four keys. Pending rows that stand come
// before the step's own. The value heads of one key head read the same old inputs of the convolution and the same
// pending rows; the last one to read them writes the new ones of q and k.
// gl_WorkGroupID.x: value head, .y: sequence.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
#include "gated_delta.glsl"
layout(constant_id = 4) const uint kThreads = 256;
layout(constant_id = 5) const uint pending_rows = 0;
layout(local_size_x_id = 4) in;
layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer Counters { uint at[]; };
layout(push_constant, std430) uniform Push {
  uint64_t qkv, z, b, a, conv, a_log, dt_bias, norm, conv_state, rule_state, y, counters, step, pending;
  uint key_heads, value_heads;
  float norm_eps, l2_eps;
};
const uint kColumns = kThreads / 8, kN = (kKeyDim + 31) / 32, kRounds = (kValueDim + kColumns - 1) / kColumns;
const uint kChannels = 2 * kKeyDim + kValueDim;            // of this workgroup: q, k, v
const uint kPerThread = (kChannels + kThreads - 1) / kThreads;

shared vec2 squares_of_keys[32];  // of each subgroup: q, k
shared float squares_of_outputs[32];
shared float mixed[kChannels];  // after the convolution
shared float outputs[kRounds * kColumns];
shared bool last;

// Index of channel j of this workgroup among all channels.
uint channel_of(uint j, uint key_head, uint head, uint keys) {
  return j < kKeyDim       ? key_head * kKeyDim + j
         : j < 2 * kKeyDim ? keys + key_head * kKeyDim + j - kKeyDim
                           : 2 * keys + head * kValueDim + j - 2 * kKeyDim;
}
#include "gated_delta_inputs.glsl"
vec4 mixed_at(uint i) { return vec4(mixed[i], mixed[i + 1], mixed[i + 2], mixed[i + 3]); }

// Global: glslang 12 compiles calls with an array of a size that is specialized only at times (it compares addresses).
vec4 state[kRounds * kN];

// A head's state, or zeros.
void put_state(uint64_t to, bool zeros) {
  [[unroll]] for (uint r = 0; r < kRounds; ++r) {
    uint column = r * kColumns + gl_LocalInvocationIndex / 8;
    [[unroll]] for (uint n = 0; n < kN; ++n) {
      uint k = n * 32 + gl_LocalInvocationIndex % 8 * 4;
      vec4 x = zeros ? vec4(0) : state[r * kN + n];
      if (column < kValueDim && k < kKeyDim) Float4s(to + (uint64_t(column) * kKeyDim + k) * 4).at[0] = x;
    }
  }
}

void main() {
  if (gl_WorkGroupID.y >= Step(step).seqs) return;
  Sequence s = run_of(step, gl_WorkGroupID.y, pending);
  if (pending_rows == 0) s.kept = 0, s.pends = false;  // so that revision 1 is compiled without them
  if (s.rows == 0) return;
  uint keys = key_heads * kKeyDim, values = value_heads * kValueDim, channels = 2 * keys + values;
  uint head = gl_WorkGroupID.x, thread = gl_LocalInvocationIndex, part = thread % 8;
  uint per_key = value_heads / key_heads, key_head = head / per_key;
  if (!s.live) {
    for (uint i = thread; i < kValueDim; i += kThreads) Floats(y + uint64_t(s.first) * values * 4).at[head * kValueDim + i] = 0;
    return;
  }
  uint64_t slot = uint64_t(values) * kKeyDim * 4;
  [[unroll]] for (uint r = 0; r < kRounds; ++r) {
    uint column = r * kColumns + thread / 8;
    uint64_t from = rule_state + (s.fresh ? s.write : s.read) * slot + (uint64_t(head) * kValueDim + column) * kKeyDim * 4;
    [[unroll]] for (uint n = 0; n < kN; ++n) {
      uint k = n * 32 + part * 4;
      bool there = column < kValueDim && k < kKeyDim;  // of a fresh sequence the slot to write, and not used
      state[r * kN + n] = there ? Float4s(from + k * 4).at[0] : vec4(0);
    }
  }
  // Requests the inputs that are used after the sums, too; threads beyond the values request one and ignore it.
  uint64_t row = uint64_t(s.first) * values * 4;
  float own_log = plain_at(a_log, kALogType, head), own_bias = plain_at(dt_bias, kBiasType, head);
  uint mine = min(thread, kValueDim - 1);
  float own_z = Floats(z + row).at[head * kValueDim + mine], own_norm = plain_at(norm, kNormType, mine);
  uint applied = applied_of(s);
  uint64_t to = rule_state + s.write * slot + uint64_t(head) * kValueDim * kKeyDim * 4;
  if (applied == 0 && (s.fresh || s.read != s.write)) put_state(to, s.fresh);
  const uint keep = kTaps - 1;
  float old[kPerThread * kTaps], squares = 0;
  uint counter = gl_WorkGroupID.y * key_heads + key_head, ticket = 0;
  for (uint i = 0; i <= s.kept; ++i) {
    bool own = i == s.kept;
    uint64_t of_b = b + (uint64_t(s.first) * value_heads + head) * 4, of_a = a + (uint64_t(s.first) * value_heads + head) * 4;
    if (!own) {
      of_b = pending_row(s.read, i, channels) + uint64_t(channels + head) * 4;
      of_a = of_b + value_heads * 4;
    }
    float row_b = Floats(of_b).at[0], row_a = Floats(of_a).at[0];
    // The convolution, and the sums of squares of q and k.
    float squares_q = 0, squares_k = 0;
    [[unroll]] for (uint p = 0; p < kPerThread; ++p) {
      uint j = p * kThreads + thread, c = channel_of(j, key_head, head, keys);
      if (j >= kChannels) continue;
      float sum = 0;
      [[unroll]] for (uint t = 0; t < kTaps; ++t) {
        float x = input_of(s, int(i + t) - int(keep), c, channels);
        old[p * kTaps + t] = x;
        sum = fma(x, plain_at(conv, kConvType, c * kTaps + t), sum);
      }
      float u = silu(sum);
      mixed[j] = u;
      if (j < kKeyDim) squares_q = fma(u, u, squares_q);
      if (j >= kKeyDim && j < 2 * kKeyDim) squares_k = fma(u, u, squares_k);
    }
    vec2 squares_qk = subgroupAdd(vec2(squares_q, squares_k));
    if (subgroupElect()) squares_of_keys[gl_SubgroupID] = squares_qk;
    barrier();
    squares_qk = vec2(0);
    for (uint g = 0; g < gl_NumSubgroups; ++g) squares_qk += squares_of_keys[g];
    float scale_q = inversesqrt(squares_qk.x + l2_eps) * inversesqrt(float(kKeyDim));
    float scale_k = inversesqrt(squares_qk.y + l2_eps);
    // With the last row all threads have read their old inputs.
    if (own && thread == 0 && per_key != 1) ticket = atomicAdd(Counters(counters).at[counter], 1u);
    vec2 g = gates(row_b, row_a, own_log, own_bias);
    vec4 q[kN], k[kN];
    [[unroll]] for (uint n = 0; n < kN; ++n) {
      uint at = n * 32 + part * 4;
      q[n] = at < kKeyDim ? mixed_at(at) * scale_q : vec4(0);
      k[n] = at < kKeyDim ? mixed_at(kKeyDim + at) * scale_k : vec4(0);
    }
    [[unroll]] for (uint r = 0; r < kRounds; ++r) {
      uint column = r * kColumns + thread / 8;
      bool there = column < kValueDim;
      float sum = 0, o = 0;
      [[unroll]] for (uint n = 0; n < kN; ++n) {
        state[r * kN + n] = s.fresh ? vec4(0) : state[r * kN + n] * g.y;
        [[unroll]] for (uint j = 0; j < 4; ++j) sum = fma(state[r * kN + n][j], k[n][j], sum);
      }
      [[unroll]] for (uint x = 1; x < 8; x *= 2) sum += subgroupShuffleXor(sum, x);
      float delta = g.x * ((there ? mixed[2 * kKeyDim + column] : 0.0) - sum);
      [[unroll]] for (uint n = 0; n < kN; ++n) {
        [[unroll]] for (uint j = 0; j < 4; ++j) {
          state[r * kN + n][j] = fma(k[n][j], delta, state[r * kN + n][j]);
          o = fma(state[r * kN + n][j], q[n][j], o);
        }
      }
      [[unroll]] for (uint x = 1; x < 8; x *= 2) o += subgroupShuffleXor(o, x);
      if (part == 0 && own) {
        outputs[column] = there ? o : 0.0;
        if (there) squares = fma(o, o, squares);
      }
    }
    if (i + 1 == applied) put_state(to, false);
    if (!own) barrier();  // before `mixed` and the sums of squares are written again
  }
  if (thread == 0) {
    last = per_key == 1 || ticket + 1 == per_key;
    if (last && per_key != 1) Counters(counters).at[counter] = 0;
  }
  squares = subgroupAdd(squares);
  if (subgroupElect()) squares_of_outputs[gl_SubgroupID] = squares;
  barrier();
  squares = 0;
  for (uint i = 0; i < gl_NumSubgroups; ++i) squares += squares_of_outputs[i];
  float scale = inversesqrt(squares / float(kValueDim) + norm_eps);
  if (thread < kValueDim) {
    Floats(y + row).at[head * kValueDim + thread] = outputs[thread] * scale * own_norm * silu(own_z);
  }
  // Writes the new inputs: each head those of v, the last one those of q and k. Those of a row that stays pending are
  // beside the states.
  uint64_t inputs = uint64_t(channels) * keep * 4, kept_row = s.pends ? pending_row(s.write, 0, channels) : 0;
  [[unroll]] for (uint p = 0; p < kPerThread; ++p) {
    uint j = p * kThreads + thread, c = channel_of(j, key_head, head, keys);
    if (j >= kChannels || (j < 2 * kKeyDim && !last)) continue;
    [[unroll]] for (uint t = 0; t < keep; ++t) {
      Floats(conv_state + s.write * inputs).at[c * keep + t] = old[p * kTaps + t + (s.pends ? 0 : 1)];
    }
    if (s.pends) Floats(kept_row).at[c] = old[p * kTaps + keep];
  }
  if (s.pends && thread == 0) {
    uint64_t at = (uint64_t(s.first) * value_heads + head) * 4;
    Floats(kept_row).at[channels + head] = Floats(b + at).at[0];
    Floats(kept_row).at[channels + value_heads + head] = Floats(a + at).at[0];
  }
}
