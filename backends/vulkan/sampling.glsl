// SPDX-License-Identifier: Apache-2.0
// The arithmetic of sampling_math.h, to the bit: every multiplication and addition is rounded separately.

float mul(float a, float b) {
  precise float r = a * b;
  return r;
}
float add(float a, float b) {
  precise float r = a + b;
  return r;
}

const uint kPosInf = 0x7f800000u, kNegInf = 0xff800000u;
const uint kSampleOk = 0, kBadLogit = 1, kNoToken = 2;
const uint kNoSlot = 0xffffffffu, kTopPOff = 32768, kWantsLogprob = 1, kSeenInPrompt = 0x80000000u;

bool is_bad_logit(float x) {
  uint bits = floatBitsToUint(x);
  return bits == kPosInf || (bits & 0x7fffffffu) > kPosInf;
}
float clamp_value(float x) {
  uint bits = floatBitsToUint(x), magnitude = bits & 0x7fffffffu;
  uint big = magnitude > 0x71800000u ? (bits & 0x80000000u) | 0x71800000u : bits;
  return uintBitsToFloat(magnitude < 0x0d800000u ? 0u : big);
}
float negate(float x) { return uintBitsToFloat(floatBitsToUint(x) ^ 0x80000000u); }
uint float_key(float x) {
  uint bits = floatBitsToUint(x);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
float float_of_key(uint key) { return uintBitsToFloat((key & 0x80000000u) != 0 ? key ^ 0x80000000u : ~key); }
uint64_t order_key(uint rank, uint id) { return uint64_t(rank) << 32 | uint64_t(~id); }
uint id_of(uint64_t key) { return ~uint(key & 0xffffffffu); }

// r * 2^-64, cut to 24 significant bits. r is not 0.
float unit(uint64_t r) {
  uint high = uint(r >> 32), low = uint(r & 0xffffffffu);
  int zeros = high != 0 ? 31 - findMSB(high) : 63 - findMSB(low);
  return uintBitsToFloat(uint(126 - zeros) << 23 | uint((r << zeros) >> 40) & 0x007fffffu);
}
float log_core(float f, int exponent) {
  float e = float(exponent), s = mul(f, f);
  float p = uintBitsToFloat(0xbda115a4u);
  p = add(mul(p, f), uintBitsToFloat(0x3e03e20fu));
  p = add(mul(p, f), uintBitsToFloat(0xbe06672cu));
  p = add(mul(p, f), uintBitsToFloat(0x3e1137beu));
  p = add(mul(p, f), uintBitsToFloat(0xbe2a3d5cu));
  p = add(mul(p, f), uintBitsToFloat(0x3e4cd2c9u));
  p = add(mul(p, f), uintBitsToFloat(0xbe80010bu));
  p = add(mul(p, f), uintBitsToFloat(0x3eaaaaa5u));
  p = mul(mul(f, s), p);
  p = add(p, mul(e, uintBitsToFloat(0xb95e8083u)));
  p = add(p, mul(s, -0.5));
  return add(add(f, p), mul(e, uintBitsToFloat(0x3f318000u)));
}
float log_of(float x, int shift) {
  uint bits = floatBitsToUint(x);
  int e = int((bits + (0x3f800000u - 0x3f3504f3u)) >> 23) - 127;
  return log_core(add(uintBitsToFloat(bits - (uint(e) << 23)), -1.0), e + shift);
}
float exp_of(float x) {
  float t = x < -80.0 ? -80.0 : x;
  int n = int(add(mul(t, uintBitsToFloat(0x3fb8aa3bu)), -0.5));
  float k = float(n), r = add(add(t, mul(k, uintBitsToFloat(0xbf318000u))), mul(k, uintBitsToFloat(0x395e8083u)));
  float p = uintBitsToFloat(0x3ab6d9f0u);
  p = add(mul(p, r), uintBitsToFloat(0x3c091da7u));
  p = add(mul(p, r), uintBitsToFloat(0x3d2aaa2fu));
  p = add(mul(p, r), uintBitsToFloat(0x3e2aaa48u));
  p = add(mul(p, r), 0.5);
  p = add(add(r, mul(mul(r, r), p)), 1.0);
  return x >= -80.0 ? mul(p, uintBitsToFloat(uint(n + 127) << 23)) : 0.0;
}
uint weight_of_distance(float d) { return uint(int(mul(exp_of(d), 1073741824.0))); }

// Philox4x32-10, words 0 and 1.
uint64_t random_bits(uvec2 seed, uvec2 position, uint id) {
  uvec4 c = uvec4(position, id, 0);
  uvec2 k = seed;
  for (int round = 0; round < 10; ++round) {
    uint high0, low0, high1, low1;
    umulExtended(0xD2511F53u, c.x, high0, low0);
    umulExtended(0xCD9E8D57u, c.z, high1, low1);
    c = uvec4(high1 ^ c.y ^ k.x, low1, high0 ^ c.w ^ k.y, low0);
    k += uvec2(0x9E3779B9u, 0xBB67AE85u);
  }
  return uint64_t(c.x) << 32 | uint64_t(c.y | 1u);
}
float gumbel(uvec2 seed, uvec2 position, uint id) {
  uint64_t r = random_bits(seed, position, id);
  float e = (r >> 62) != 0 ? negate(log_of(unit(~r + 1ul), 0)) : negate(log_core(negate(unit(r)), 0));
  return negate(log_of(e, 0));
}

uint64_t logprob_weight(float d) { return uint64_t(int64_t(mul(exp_of(d), 1099511627776.0))); }
float logprob_of(float logit, float highest, uint64_t total) {
  return add(add(clamp_value(logit), negate(highest)), negate(log_of(unit(total), 24)));
}
uint64_t top_p_need(uint top_p_q15, uint64_t total) {
  return (total >> 15) * top_p_q15 + (((total & 32767ul) * top_p_q15 + 32767ul) >> 15);
}
uint count_output(uint word) { return (word & ~kSeenInPrompt) < 16777216u ? word + 1 : word; }

float adjust(float repetition, float inv_repetition, float presence, float frequency, float logit, uint count, float bias) {
  float y = clamp_value(logit);
  uint seen = count & ~kSeenInPrompt;
  if (count != 0) y = clamp_value(mul(y, y > 0.0 ? inv_repetition : repetition));
  if (seen != 0) {
    seen = min(seen, 16777216u);
    y = add(y, negate(mul(frequency, float(seen))));
    y = clamp_value(add(y, negate(presence)));
  }
  return clamp_value(add(y, clamp_value(bias)));
}
