// SPDX-License-Identifier: Apache-2.0
// GATED_DELTA for prompts, before the rule: mixed [rows, channels] = silu(causal convolution of qkv), q and k to unit length,
// q also times key_dim^-1/2; gate [rows, value_heads] = beta, exp(g), or with kLog beta, g. A subgroup per head of q, k or v;
// gl_WorkGroupID.y: rows. The same of pending rows that stand, from row first_pending on, pending_rows for each sequence;
// their gates are beta, exp(g).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
#include "gated_delta.glsl"
layout(local_size_x = 256) in;
layout(constant_id = 4) const bool kLog = false;
layout(push_constant, std430) uniform Push {
  uint64_t qkv, b, a, conv, a_log, dt_bias, conv_state, mixed, gate, step, pending;
  uint key_heads, value_heads;
  float l2_eps;
  uint pending_rows, first_pending, unused;
};
#include "gated_delta_inputs.glsl"

void main() {
  uint keys = key_heads * kKeyDim, channels = 2 * keys + value_heads * kValueDim;
  uint head = gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID, lane = gl_SubgroupInvocationID;
  if (head >= 2 * key_heads + value_heads) return;
  bool is_key = head < 2 * key_heads;
  uint dim = is_key ? kKeyDim : kValueDim;
  uint first = is_key ? head * kKeyDim : 2 * keys + (head - 2 * key_heads) * kValueDim;
  uint rows = Step(step).rows, all_rows = rows + Step(step).seqs * pending_rows;
  for (uint any = gl_WorkGroupID.y; any < all_rows; any += gl_NumWorkGroups.y) {
    bool own = any < rows;
    uint seq = own ? step_word(step, Step(step).row_seq_at, any) : (any - rows) / pending_rows;
    Sequence s = run_of(step, seq, pending);
    uint nth = own ? s.kept + any - s.first : (any - rows) % pending_rows;
    if (!own && (!s.live || nth >= s.kept)) continue;
    uint row = own ? any : first_pending + any - rows;
    uint64_t to = mixed + uint64_t(row) * channels * 4;
    float squares = 0;
    for (uint i = lane; i < dim; i += gl_SubgroupSize) {
      uint c = first + i;
      float sum = 0;
      for (uint t = 0; t < kTaps; ++t) {
        uint back = kTaps - 1 - t;  // rows before this one
        float x = input_of(s, int(nth) - int(back), c, channels);
        sum = fma(x, plain_at(conv, kConvType, c * kTaps + t), sum);
      }
      float u = silu(sum);
      Floats(to).at[c] = u;
      squares = fma(u, u, squares);
    }
    squares = subgroupAdd(squares);
    if (is_key) {
      float scale = inversesqrt(squares + l2_eps);
      if (head < key_heads) scale *= inversesqrt(float(kKeyDim));
      for (uint i = lane; i < dim; i += gl_SubgroupSize) Floats(to).at[first + i] *= scale;  // this lane's own writes
    } else if (lane == 0) {
      uint h = head - 2 * key_heads;
      uint64_t at = (uint64_t(row) * value_heads + h) * 4;
      uint64_t of_b = b + at, of_a = a + at;
      if (!own) {
        of_b = pending_row(s.read, nth, channels) + uint64_t(channels + h) * 4;
        of_a = of_b + value_heads * 4;
      }
      vec2 g = log_gates(Floats(of_b).at[0], Floats(of_a).at[0], plain_at(a_log, kALogType, h), plain_at(dt_bias, kBiasType, h));
      Float2s(gate + 2 * at).at[0] = vec2(g.x, kLog && own ? g.y : exp(g.y));
    }
  }
}
