// SPDX-License-Identifier: Apache-2.0
// Rotation of a pair of elements by a position. The including shader pushes `turns` and defines
//   kTable       what `turns` has for each pair: 64-bit fractions of a turn per position, or with kTable fp32 radians
//   kRopeScale   a factor of all cosines and sines

// Sine and cosine of a fraction of a turn, to about 1e-7 (minimax polynomials on an eighth of a turn).
vec2 sine_cosine(uint64_t turn) {
  int top = int(uint(turn >> 32));
  int quarter = (top + 0x20000000) >> 30;  // the nearest quarter
  float x = float(top - (quarter << 30)) * (6.283185307179586 / 4294967296.0), z = x * x;
  float s = fma(x * z, fma(z, fma(z, -1.9515295891e-4, 8.3321608736e-3), -1.6666654611e-1), x);
  float c = fma(z * z, fma(z, fma(z, 2.443315711809948e-5, -1.388731625493765e-3), 4.166664568298827e-2),
                fma(z, -0.5, 1.0));
  quarter &= 3;
  if ((quarter & 1) != 0) {
    float t = s;
    s = c;
    c = -t;
  }
  return quarter >= 2 ? vec2(-s, -c) : vec2(s, c);
}

// A number of radians, by its bits, in turns: a 64-bit fraction, with an error of 2^-54 for less than 2 radians.
uint64_t turn_of_radians(uint bits) {
  uint exponent = bits >> 23 & 255, mantissa = bits & 0x7fffffu | (exponent != 0 ? 0x800000u : 0u);
  // mantissa * 2^64 / (2 pi), without its last 32 bits
  uint64_t turn = uint64_t(mantissa) * 0x28be60dbu + (uint64_t(mantissa) * 0x9391054au >> 32);
  int shift = int(max(exponent, 1u)) - 118;
  turn = shift <= -64 || shift >= 64 ? uint64_t(0) : shift < 0 ? turn >> -shift : turn << shift;
  return bits >> 31 != 0 ? uint64_t(0) - turn : turn;
}

// Turns of a pair of rotating elements per position, as a 64-bit fraction.
uint64_t turn_of(uint pair) {
  if (kTable) return turn_of_radians(Words(turns).at[pair]);
  return uint64_t(Words(turns).at[2 * pair]) | uint64_t(Words(turns).at[2 * pair + 1]) << 32;
}

// One element u of a pair, rotated with the other, v; `low`: u is the first of the two.
float rotated(float u, float v, bool low, uint pair, uint position) {
  vec2 sc = sine_cosine(turn_of(pair) * position);
  if (kRopeScale != 1.0) sc *= kRopeScale;
  return fma(u, sc.y, low ? -v * sc.x : v * sc.x);
}
