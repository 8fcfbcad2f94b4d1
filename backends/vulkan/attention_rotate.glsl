// SPDX-License-Identifier: Apache-2.0
// Norm and rotation of a head of q or k. The including shader defines kRotary, and pushes `turns` and `bias`.
#include "rope.glsl"

// Element i of a head at `from`, normed, and rotated with its partner.
float element(uint64_t from, uint64_t norm, uint type, uint i, float scale, uint position) {
  float x = Floats(from).at[i] * scale * (bias + plain_at(norm, type, i));
  if (i >= kRotary) return x;
  const uint half_rotary = kRotary / 2;
  bool low = i < half_rotary;
  uint other = low ? i + half_rotary : i - half_rotary;
  float y = Floats(from).at[other] * scale * (bias + plain_at(norm, type, other));
  return rotated(x, y, low, low ? i : i - half_rotary, position);
}
