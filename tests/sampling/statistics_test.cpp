// SPDX-License-Identifier: Apache-2.0
// The samples follow the distribution that the chain defines, and streams of noise are independent. STATISTICS_DRAWS
// samples per setting; every seed is fixed, so a pass is permanent.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "switchyard/sdk/row_sampler.hpp"
#include "tests/support/statistics.h"

#if !defined(STATISTICS_DRAWS)
#define STATISTICS_DRAWS 100000
#endif

namespace switchyard {
namespace {

struct Setting {
  const char* name;
  uint32_t vocab;
  float temperature, top_p, min_p;
  int32_t top_k;
};

std::vector<float> logits_of(uint32_t vocab) {
  std::vector<float> x(vocab);
  for (uint32_t i = 0; i < vocab; ++i) x[i] = 3 * std::sin(static_cast<float>(i) * 12.9898f);
  return x;
}

// The distribution of a setting, in fp64 and without using the sampler.
std::vector<double> wanted(const Setting& s) {
  const std::vector<float> x = logits_of(s.vocab);
  std::vector<double> p(s.vocab);
  std::vector<uint32_t> order(s.vocab);
  std::iota(order.begin(), order.end(), 0);
  for (uint32_t i = 0; i < s.vocab; ++i) p[i] = std::exp(static_cast<double>(x[i]) / s.temperature);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return p[a] > p[b]; });
  size_t kept = s.top_k > 0 ? std::min<size_t>(static_cast<size_t>(s.top_k), s.vocab) : s.vocab;
  double total = 0, sum = 0;
  for (size_t i = 0; i < kept; ++i) total += p[order[i]];
  size_t n = 0;
  while (n < kept && sum < s.top_p * total) sum += p[order[n++]];
  while (n > 1 && p[order[n - 1]] < s.min_p * p[order[0]]) sum -= p[order[--n]];
  for (size_t i = n; i < s.vocab; ++i) p[order[i]] = 0;
  for (double& v : p) v /= sum;
  return p;
}

class Statistics : public ::testing::TestWithParam<Setting> {};

TEST_P(Statistics, DrawsFitTheDistribution) {
  const Setting& s = GetParam();
  const std::vector<float> logits = logits_of(s.vocab);
  swy_sample_params p{};
  swy_sample_params_init(&p);
  p.temperature = s.temperature;
  p.top_p = s.top_p;
  p.min_p = s.min_p;
  p.top_k = s.top_k;
  p.seed = 20240607;
  ASSERT_EQ(1, swy_sample_params_normalise(&p, nullptr));
  swy_sample_row_in in{};
  in.logits = logits.data();
  in.vocab = s.vocab;
  swy_sample_row_out out{};
  swy::RowSampler sampler(s.vocab);
  std::vector<uint64_t> counts(s.vocab);
  for (in.position = 0; in.position < STATISTICS_DRAWS; ++in.position) {
    ASSERT_EQ(SWY_SAMPLE_OK, sampler.sample(p, in, out));
    ++counts[static_cast<size_t>(out.token)];
  }
  const std::vector<double> probability = wanted(s);
  for (uint32_t i = 0; i < s.vocab; ++i) {
    EXPECT_TRUE(probability[i] > 0 || counts[i] == 0) << "id " << i << " was truncated, and drawn";
  }
  EXPECT_LT(std::abs(fit(counts, probability)), 4);
}

INSTANTIATE_TEST_SUITE_P(Settings, Statistics,
                         ::testing::Values(Setting{"plain", 512, 1, 1, 0, 0}, Setting{"flat", 257, 50, 1, 0, 0},
                                           Setting{"sharp", 512, 0.3f, 1, 0, 0}, Setting{"two", 2, 1, 1, 0, 0},
                                           Setting{"top_k", 512, 1, 1, 0, 40}, Setting{"top_p", 512, 0.9f, 0.8f, 0, 0},
                                           Setting{"min_p", 511, 1, 1, 0.1f, 0},
                                           Setting{"all", 300, 1.2f, 0.9f, 0.02f, 100}),
                         [](const auto& one) { return std::string(one.param.name); });

// Tokens of two streams over 8 equal ids; independent ones fit the product of two uniforms.
template <class First, class Second>
double joint_fit(First first, Second second) {
  std::vector<uint64_t> counts(64);
  for (uint64_t i = 0; i < STATISTICS_DRAWS; ++i) ++counts[first(i) * 8 + second(i)];
  return fit(counts, std::vector<double>(64, 1.0 / 64));
}

uint32_t draw(uint64_t seed, uint64_t position, uint32_t first_id = 0) {
  uint32_t best = 0;
  float highest = -100;
  for (uint32_t id = 0; id < 8; ++id) {
    const float g = swy_gumbel(seed, position, first_id + id);
    if (g > highest) best = id;
    highest = std::max(highest, g);
  }
  return best;
}

TEST(Streams, NeighbouringSeedsAreIndependent) {
  EXPECT_LT(std::abs(joint_fit([](uint64_t i) { return draw(7, i); }, [](uint64_t i) { return draw(8, i); })), 4);
  EXPECT_LT(std::abs(joint_fit([](uint64_t i) { return draw(7, i); }, [](uint64_t i) { return draw(8, i + 1); })), 4);
  EXPECT_LT(std::abs(joint_fit([](uint64_t i) { return draw(i, 3); }, [](uint64_t i) { return draw(i + 1, 3); })), 4);
  const auto high = [](uint64_t i) { return draw(7 + (uint64_t{1} << 32), i); };
  EXPECT_LT(std::abs(joint_fit([](uint64_t i) { return draw(7, i); }, high)), 4);
}

TEST(Streams, NeighbouringPositionsAreIndependent) {
  EXPECT_LT(std::abs(joint_fit([](uint64_t i) { return draw(7, i); }, [](uint64_t i) { return draw(7, i + 1); })), 4);
  const auto far = [](uint64_t i) { return draw(7, i + (uint64_t{1} << 32)); };
  EXPECT_LT(std::abs(joint_fit([](uint64_t i) { return draw(7, i); }, far)), 4);
}

TEST(Streams, IdsAreIndependent) {
  EXPECT_LT(std::abs(joint_fit([](uint64_t i) { return draw(7, i); }, [](uint64_t i) { return draw(7, i, 8); })), 4);
}

// Seeds s and s + 1 share no random word over 512 ids and many positions.
TEST(Streams, NeighbouringSeedsShareNoNoise) {
  std::vector<uint64_t> words;
  for (const uint64_t seed : {uint64_t{41}, uint64_t{42}}) {
    for (uint64_t position = 0; position < 400; ++position) {
      for (uint32_t id = 0; id < 512; ++id) words.push_back(swy_random_bits(seed, position, id));
    }
  }
  std::sort(words.begin(), words.end());
  EXPECT_EQ(words.end(), std::adjacent_find(words.begin(), words.end()));
}

}  // namespace
}  // namespace switchyard
