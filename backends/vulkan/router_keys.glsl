// SPDX-License-Identifier: Apache-2.0
// Floats as numbers that have their order.

// Larger floats have larger keys; none is 0.
uint float_key(float x) {
  uint bits = floatBitsToUint(x);
  return max((bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u, 1u);
}
float key_float(uint key) { return uintBitsToFloat((key & 0x80000000u) != 0 ? key ^ 0x80000000u : ~key); }
