// SPDX-License-Identifier: Apache-2.0
// The head of few rows leaves out ids by a bound of their noise (sampling.cuh): it must not be below the noise.
#include <gtest/gtest.h>

#include "sampling/sampling.cuh"

namespace {

// swy_gumbel of given random bits.
float noise_of(uint64_t random) { return -swy_log(swy_exponential(random | 1u), 0); }

// The bound reads the upper 32 bits alone: so each of them with the lower bits that make the noise largest and
// smallest.
void expect_bound(uint64_t upper) {
  for (const uint64_t lower : {uint64_t{0}, uint64_t{0xffffffffu}}) {
    const uint64_t random = upper << 32 | lower;
    ASSERT_GE(gpu::noise_bound(random), noise_of(random)) << "random bits " << random;
  }
}

TEST(NoiseBound, IsNotBelowTheNoise) {
  for (uint64_t upper = 0; upper <= UINT32_MAX; upper += 2039) ASSERT_NO_FATAL_FAILURE(expect_bound(upper));
  for (uint32_t shift = 0; shift < 32; ++shift) {  // small and large fractions, and those beside powers of two
    for (uint64_t i = 0; i < 512; ++i) {
      const auto small = static_cast<uint32_t>((uint64_t{1} << shift) + i);
      ASSERT_NO_FATAL_FAILURE(expect_bound(small));
      ASSERT_NO_FATAL_FAILURE(expect_bound(small - 512));
      ASSERT_NO_FATAL_FAILURE(expect_bound(UINT32_MAX - small));
    }
  }
}

TEST(NoiseBound, IsCloseToTheNoise) {  // else it would leave out no id
  double sum = 0;
  uint32_t count = 0;
  for (uint64_t upper = 0; upper <= UINT32_MAX; upper += 65521, ++count) {
    sum += gpu::noise_bound(upper << 32) - noise_of(upper << 32);
  }
  EXPECT_LT(sum / count, 0.6);
}

TEST(LogitBound, IsNotBelowTheValueOfAnyLogit) {
  gpu::LogitBound bound;
  bound.seed = 42, bound.position = 7;
  for (const float factor : {0.0f, 0x1p-20f, 0.5f, 1.0f, 3.0f, 0x1p30f}) {
    bound.factor = factor;
    for (uint32_t id = 0; id < 4096; id += 4) {
      const uint32_t ids[4] = {id, id + 1, id + 2, id + 3};
      float v[4] = {-3.5f + static_cast<float>(id) / 700, -0.0f, -INFINITY, -FLT_MAX};
      const float logits[4] = {v[0], v[1], v[2], v[3]};
      bound.apply(ids, v);
      for (int k = 0; k < 4; ++k) {
        const float noise = swy_gumbel(bound.seed, bound.position, ids[k]);
        const float value = factor == 0 ? logits[k] : swy_add(swy_mul(logits[k], factor), noise);
        ASSERT_GE(v[k], value) << "id " << ids[k] << ", factor " << factor;
        ASSERT_GT(v[k], -INFINITY);  // that stands for no id
      }
    }
  }
}

TEST(LogitBound, KeepsBadLogits) {
  for (const float factor : {0.0f, 1.0f}) {
    gpu::LogitBound bound;
    bound.factor = factor;
    const uint32_t ids[3] = {0, 1, 2};
    float v[3] = {NAN, INFINITY, -NAN};
    bound.apply(ids, v);
    for (const float x : v) EXPECT_EQ(x, INFINITY);
  }
}

}  // namespace
