// SPDX-License-Identifier: Apache-2.0
// CAUSAL_CONV: y [rows, channels] = silu of the causal convolution of x, and the state's last inputs. A thread has a channel
// of a sequence, and keeps the inputs that its taps see in registers. gl_WorkGroupID.y: sequence.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
#include "gated_delta.glsl"
layout(local_size_x = 256) in;
layout(push_constant, std430) uniform Push {
  uint64_t x, conv, state, y, step;
  uint channels, unused;
};

void main() {
  const uint keep = kTaps - 1;
  uint c = gl_GlobalInvocationID.x;
  if (c >= channels || gl_WorkGroupID.y >= Step(step).seqs) return;
  Sequence s = sequence_of(step, gl_WorkGroupID.y);
  float taps[kTaps], seen[kTaps];  // seen: the inputs before a row, oldest first, then the row's own
  uint64_t slot = uint64_t(channels) * keep * 4;
  for (uint t = 0; t < kTaps; ++t) taps[t] = plain_at(conv, kConvType, c * kTaps + t);
  for (uint t = 0; t < keep; ++t) seen[t] = s.fresh ? 0.0 : Floats(state + s.read * slot).at[c * keep + t];
  for (uint row = s.first; row < s.first + s.rows; ++row) {
    uint64_t at = uint64_t(row) * channels * 4;
    seen[keep] = Floats(x + at).at[c];
    float sum = 0;
    for (uint t = 0; t < kTaps; ++t) sum = fma(seen[t], taps[t], sum);
    Floats(y + at).at[c] = silu(sum);
    for (uint t = 0; t < keep; ++t) seen[t] = seen[t + 1];
  }
  if (!s.live) return;
  for (uint t = 0; t < keep; ++t) Floats(state + s.write * slot).at[c * keep + t] = seen[t];
}
