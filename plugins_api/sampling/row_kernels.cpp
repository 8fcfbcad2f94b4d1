// SPDX-License-Identifier: Apache-2.0
// Compiled once per instruction set, with SWY_ROW_KERNELS naming the table and SWY_ROW_KERNELS_NAME the build. Nothing
// with external linkage but the table may be in here: the linker would keep one build's copy of it for all.
#include "switchyard/sdk/row_kernels.hpp"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace swy {
namespace {

constexpr float kDead = -__builtin_inff();

// Floats as integers of the same order, and back: integer maxima are vectorised without -ffast-math.
inline int32_t ordered(float x) {
  const uint32_t bits = swy_float_bits(x);
  return static_cast<int32_t>(bits ^ ((0u - (bits >> 31)) & 0x7fffffffu));
}
inline float unordered(int32_t key) {
  const uint32_t bits = static_cast<uint32_t>(key);
  return swy_bits_float(bits ^ ((0u - (bits >> 31)) & 0x7fffffffu));
}

// One group's inputs; the last group's are padded copies.
struct Group {
  const float* logits;
  const uint32_t* counts;  // NULL: none
  uint32_t allowed[2];
};

inline bool any(const uint32_t* words) {
  uint32_t all = 0;
  for (uint32_t j = 0; j < kGroup; ++j) all |= words[j];
  return all != 0;
}

inline void apply_mask(const uint32_t allowed[2], float* z) {
  for (uint32_t w = 0; w < 2; ++w) {
    const uint32_t word = allowed[w];
    if (word == UINT32_MAX) continue;
    for (uint32_t j = 0; j < 32; ++j) {
      const uint32_t live = 0u - ((word >> j) & 1u);
      z[w * 32 + j] = swy_bits_float((swy_float_bits(z[w * 32 + j]) & live) | (SWY_BITS_NEG_INF & ~live));
    }
  }
}

// Returns 1 when a logit is bad.
inline uint32_t scale_group(const swy_sample_params& p, const Group& g, float* z, float* max) {
  const float* x = g.logits;
  uint32_t bad = 0;
  for (uint32_t j = 0; j < kGroup; ++j) bad |= static_cast<uint32_t>(swy_is_bad_logit(x[j]));
  if (g.counts != nullptr && any(g.counts)) {
    for (uint32_t j = 0; j < kGroup; ++j) z[j] = swy_scale(&p, swy_adjust(&p, x[j], g.counts[j], 0.0f));
  } else {
    for (uint32_t j = 0; j < kGroup; ++j) z[j] = swy_scale(&p, swy_clamp(x[j]));
  }
  for (uint32_t j = 0; j < kGroup; ++j) z[j] = swy_float_bits(x[j]) == SWY_BITS_NEG_INF ? kDead : z[j];
  apply_mask(g.allowed, z);
  int32_t best = INT32_MIN;
  for (uint32_t j = 0; j < kGroup; ++j) best = ordered(z[j]) > best ? ordered(z[j]) : best;
  *max = unordered(best);
  return bad;
}

uint32_t scale_tail(const swy_sample_params& p, const swy_sample_row_in& in, uint32_t first, const float* given,
                    float* z, float* max) {
  float logits[kGroup];
  uint32_t counts[kGroup];
  const uint32_t n = in.vocab - first;
  for (uint32_t j = 0; j < kGroup; ++j) {
    logits[j] = j < n ? given[j] : kDead;
    counts[j] = j < n && in.counts != nullptr ? in.counts[first + j] : 0;
  }
  Group g{logits, counts, {UINT32_MAX, UINT32_MAX}};
  if (in.mask != nullptr) {
    g.allowed[0] = in.mask[first / 32];
    if (n > 32) g.allowed[1] = in.mask[first / 32 + 1];
  }
  return scale_group(p, g, z, max);
}

bool scale(const swy_sample_params& given, const swy_sample_row_in& in, uint32_t first, uint32_t n, const float* logits,
           float* z, float* group_max) {
  swy_sample_params p = given;
  if (p.inv_temperature == 0.0f) p.inv_temperature = 1.0f;  // greedy: scaling by 1 changes no clamped value
  uint32_t bad = 0;
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t g = first + i;
    if (in.vocab - g * kGroup < kGroup) {
      bad |= scale_tail(p, in, g * kGroup, logits + i * kGroup, z + i * kGroup, group_max + i);
      continue;
    }
    Group group{logits + i * kGroup, in.counts == nullptr ? nullptr : in.counts + g * kGroup, {}};
    group.allowed[0] = in.mask == nullptr ? UINT32_MAX : in.mask[2 * g];
    group.allowed[1] = in.mask == nullptr ? UINT32_MAX : in.mask[2 * g + 1];
    bad |= scale_group(p, group, z + i * kGroup, group_max + i);
  }
  return bad == 0;
}

uint32_t live(const float* z, uint32_t groups) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < groups * kGroup; ++i) n += swy_float_bits(z[i]) != SWY_BITS_NEG_INF ? 1 : 0;
  return n;
}

void weights(const float* z, uint32_t n, float max, uint32_t* out) {
  for (uint32_t i = 0; i < n; ++i) out[i] = swy_weight(swy_add(z[i], -max));
}

uint64_t total_weight(const float* z, const float* group_max, uint32_t groups, float max) {
  uint64_t total = 0;
  for (uint32_t g = 0; g < groups; ++g) {
    if (swy_weight(swy_add(group_max[g], -max)) == 0) continue;
    const float* x = z + g * kGroup;
    uint32_t low = 0, high = 0;  // halves of the weights: 64 of each fit 32 bits
    for (uint32_t j = 0; j < kGroup; ++j) {
      const uint32_t w = swy_weight(swy_add(x[j], -max));
      low += w & 0xffffu;
      high += w >> 16;
    }
    total += (uint64_t{high} << 16) + low;
  }
  return total;
}

// 32-bit words in the low halves of 64-bit lanes; the product ignores the high halves. The compiler does not find this
// instruction by itself.
#if defined(__AVX512F__)
constexpr uint32_t kLanes = 8;
#elif defined(__AVX2__)
constexpr uint32_t kLanes = 4;
#else
constexpr uint32_t kLanes = 2;
#endif
typedef uint64_t Lanes __attribute__((vector_size(kLanes * 8)));

inline Lanes product(Lanes a, uint32_t b) {
  const Lanes factor = Lanes{} + b;
#if defined(__AVX512F__)
  return reinterpret_cast<Lanes>(_mm512_mul_epu32(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(factor)));
#elif defined(__AVX2__)
  return reinterpret_cast<Lanes>(_mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(factor)));
#elif defined(__SSE2__)
  return reinterpret_cast<Lanes>(_mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(factor)));
#else
  return (a & 0xffffffffu) * factor;
#endif
}

// Word 0 of swy_philox4x32_10 in the low half of every element, in place of the ids.
void first_words(uint64_t seed, uint64_t position, uint64_t* ids) {
  for (uint32_t j = 0; j < kGroup; j += kLanes) {
    Lanes c0 = Lanes{} + position, c1 = Lanes{} + (position >> 32), c2, c3{};
    memcpy(&c2, ids + j, sizeof c2);
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const Lanes p0 = product(c0, 0xD2511F53u), p1 = product(c2, 0xCD9E8D57u);
      c0 = (p1 >> 32) ^ c1 ^ k0;
      c2 = (p0 >> 32) ^ c3 ^ k1;
      c1 = p1;
      c3 = p0;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    memcpy(ids + j, &c0, sizeof c0);
  }
}

// E >= u >= h 2^-32 for the high word h of the random bits, so g = -ln E <= ln 2 (31 - log2(h >> 1)). The exponent and
// the mantissa of a float, read as a number, are a log2 that is never too high; a thousandth covers all roundings.
float noise_bounds(uint64_t seed, uint64_t position, const uint32_t* ids, const float* z, float* bounds) {
  uint64_t words[kGroup];
  for (uint32_t j = 0; j < kGroup; ++j) words[j] = ids[j];
  first_words(seed, position, words);
  for (uint32_t j = 0; j < kGroup; ++j) {
    const float h = static_cast<float>(static_cast<int32_t>(static_cast<uint32_t>(words[j]) >> 1));
    const float log2_h = static_cast<float>(static_cast<int32_t>(swy_float_bits(h))) * 0x1p-23f - 127.0f;
    bounds[j] = z[j] + ((31.0f - log2_h) * 0x1.62e43p-1f + 0.001f);
  }
  int32_t best = INT32_MIN;
  for (uint32_t j = 0; j < kGroup; ++j) best = ordered(bounds[j]) > best ? ordered(bounds[j]) : best;
  return unordered(best);
}

float highest(const float* logits, uint32_t n) {
  int32_t best = ordered(-0x1p100f);
  for (uint32_t i = 0; i < n; ++i) {
    const int32_t x = ordered(swy_clamp(logits[i]));
    best = x > best ? x : best;
  }
  return unordered(best);
}

uint64_t logprob_total(const float* logits, uint32_t n, float max) {
  uint64_t total = 0;
  for (uint32_t first = 0; first < n; first += kGroup) {
    const uint32_t count = n - first < kGroup ? n - first : kGroup;
    const float* x = logits + first;
    uint32_t low = 0, high = 0;  // swy_logprob_weight in two parts of 20 bits and more, both exact
    for (uint32_t j = 0; j < count; ++j) {
      const uint32_t live = swy_float_bits(x[j]) == SWY_BITS_NEG_INF ? 0u : ~0u;
      const float w = swy_mul(swy_exp(swy_add(swy_clamp(x[j]), -max)), 0x1p40f);
      const int32_t top = static_cast<int32_t>(w * 0x1p-20f);
      high += static_cast<uint32_t>(top) & live;
      low += static_cast<uint32_t>(static_cast<int32_t>(w - static_cast<float>(top) * 0x1p20f)) & live;
    }
    total += (uint64_t{high} << 20) + low;
  }
  return total;
}

}  // namespace

extern const RowKernels SWY_ROW_KERNELS;
const RowKernels SWY_ROW_KERNELS = {SWY_ROW_KERNELS_NAME, kLanes * 8, scale,        total_weight, live, weights,
                                    noise_bounds,         highest,    logprob_total};

}  // namespace swy
