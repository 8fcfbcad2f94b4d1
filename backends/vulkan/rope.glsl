// SPDX-License-Identifier: Apache-2.0
// Rotation of a pair of elements by a position. The including shader pushes `turns`.

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

// Turns of a pair of rotating elements per position, as a 64-bit fraction.
uint64_t turn_of(uint pair) { return uint64_t(Words(turns).at[2 * pair]) | uint64_t(Words(turns).at[2 * pair + 1]) << 32; }

// One element u of a pair, rotated with the other, v; `low`: u is the first of the two.
float rotated(float u, float v, bool low, uint pair, uint position) {
  vec2 sc = sine_cosine(turn_of(pair) * position);
  return fma(u, sc.y, low ? -v * sc.x : v * sc.x);
}
