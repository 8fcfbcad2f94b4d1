// SPDX-License-Identifier: Apache-2.0
// RMS_NORM and ADD_RMS_NORM: y [rows, width] = s * rsqrt(mean(s^2) + eps) * (bias + w), s = x (+ x2, written too).
// A workgroup per row.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"
#include "weights.glsl"
layout(local_size_x = 256) in;
layout(constant_id = 0) const uint kForm = F32;  // of the weight
layout(constant_id = 1) const bool kAdd = false;
layout(push_constant, std430) uniform Push {
  uint64_t x, x2, w, sum, y, step;
  uint width, domain;
  float eps, bias;
};

const uint kHeld = 8;  // elements that a thread keeps

void main() {
  // All loads are issued before any value is used, also for rows past the step's count, which have memory, too.
  uint row = gl_WorkGroupID.x, rows = step_rows(step, domain);
  uint64_t at = uint64_t(row) * width * 4;
  float v[kHeld], more[kHeld], squares = 0;
  [[unroll]] for (uint j = 0; j < kHeld; ++j) {
    uint i = j * 256 + gl_LocalInvocationIndex;
    v[j] = i < width ? Floats(x + at).at[i] : 0.0;
    if (kAdd) more[j] = i < width ? Floats(x2 + at).at[i] : 0.0;
  }
  if (row >= rows) return;
  [[unroll]] for (uint j = 0; j < kHeld; ++j) {
    uint i = j * 256 + gl_LocalInvocationIndex;
    if (kAdd) {
      v[j] += more[j];
      if (i < width) Floats(sum + at).at[i] = v[j];
    }
    squares = fma(v[j], v[j], squares);
  }
  for (uint i = kHeld * 256 + gl_LocalInvocationIndex; i < width; i += 256) {
    float rest = Floats(x + at).at[i];
    if (kAdd) {
      rest += Floats(x2 + at).at[i];
      Floats(sum + at).at[i] = rest;
    }
    squares = fma(rest, rest, squares);
  }
  float scale = inversesqrt(workgroup_sum(squares) / float(width) + eps);
  [[unroll]] for (uint j = 0; j < kHeld; ++j) {
    uint i = j * 256 + gl_LocalInvocationIndex;
    if (i < width) Floats(y + at).at[i] = v[j] * scale * (bias + plain_at(w, kForm & 0xff, i));
  }
  for (uint i = kHeld * 256 + gl_LocalInvocationIndex; i < width; i += 256) {
    float rest = kAdd ? Floats(sum + at).at[i] : Floats(x + at).at[i];  // this thread's own writes
    Floats(y + at).at[i] = rest * scale * (bias + plain_at(w, kForm & 0xff, i));
  }
}
