// SPDX-License-Identifier: Apache-2.0
// Norm and rotation of a head of q or k. The including shader defines kRotary and what rope.glsl needs, and pushes
// `turns` and `bias`.
#include "rope.glsl"

// Element i of a head at `from`, normed unless the type of the norm's weight is 0.
float normed(uint64_t from, uint64_t norm, uint type, uint i, float scale) {
  float x = Floats(from).at[i];
  return type == 0 ? x : x * scale * (bias + plain_at(norm, type, i));
}

// The same, and rotated with its partner.
float element(uint64_t from, uint64_t norm, uint type, uint i, float scale, uint position) {
  float x = normed(from, norm, type, i, scale);
  if (i >= kRotary) return x;
  const uint half_rotary = kRotary / 2;
  bool low = i < half_rotary;
  uint other = low ? i + half_rotary : i - half_rotary;
  float y = normed(from, norm, type, other, scale);
  return rotated(x, y, low, low ? i : i - half_rotary, position);
}
