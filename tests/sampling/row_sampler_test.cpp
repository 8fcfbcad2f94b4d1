// The fast sampler against the reference: the same status, token, id and log-probability, bit for bit, in every build.
#include "core/sampling/row_sampler.h"

#include <gtest/gtest.h>

#include "tests/sampling/random_rows.h"

namespace switchyard {
namespace {

using testing::RandomRow;

class Kernels : public ::testing::TestWithParam<const RowKernels*> {};

void expect_same(RowSampler& fast, const RandomRow& row, int index) {
  swy_sample_row_out want{}, got{};
  const int32_t status = row.expected(want);
  ASSERT_EQ(status, fast.sample(row.params, row.in, got)) << "row " << index;
  ASSERT_EQ(want.token, got.token) << "row " << index << ", vocab " << row.in.vocab;
  ASSERT_EQ(want.id, got.id) << "row " << index;
  ASSERT_EQ(swy_float_bits(want.logprob), swy_float_bits(got.logprob)) << "row " << index;
}

TEST_P(Kernels, DrawTheReferencesTokens) {
  std::mt19937_64 random(1);
  RowSampler fast(3000, *GetParam());
  for (int i = 0; i < 15000; ++i) {
    const RandomRow row(random, testing::random_vocab(random, i % 10 == 0 ? 3000 : 400));
    ASSERT_NO_FATAL_FAILURE(expect_same(fast, row, i));
  }
}

TEST_P(Kernels, DrawTheReferencesTokensFromLargeRows) {
  std::mt19937_64 random(2);
  RowSampler fast(248320, *GetParam());
  for (int i = 0; i < 12; ++i) {
    const RandomRow row(random, i % 2 == 0 ? 248320 : 151936);
    ASSERT_NO_FATAL_FAILURE(expect_same(fast, row, i));
  }
}

TEST_P(Kernels, GiveTheReferencesTopLogprobs) {
  std::mt19937_64 random(3);
  RowSampler fast(1000, *GetParam());
  for (int i = 0; i < 500; ++i) {
    const RandomRow row(random, testing::random_vocab(random, 1000));
    swy_sample_row_out out{};
    if (fast.sample(row.params, row.in, out) != SWY_SAMPLE_OK) continue;
    const uint32_t n = 1 + static_cast<uint32_t>(random() % 20);
    std::vector<uint64_t> workspace(row.in.vocab);
    std::vector<int32_t> want_ids(n), ids(n);
    std::vector<float> want(n), got(n);
    swy_row_top_logprobs(row.in.logits, row.in.vocab, n, workspace.data(), want_ids.data(), want.data());
    fast.top_logprobs(row.logits, ids, got);
    ASSERT_EQ(want_ids, ids) << i;
    ASSERT_EQ(want, got) << i;
  }
}

// The screen must never hide an id that could win, wherever the random word lies.
TEST_P(Kernels, BoundTheNoise) {
  std::mt19937_64 random(4);
  std::array<uint32_t, kGroup> ids{};
  std::array<float, kGroup> z{}, bounds{};
  for (int round = 0; round < 3000; ++round) {
    const uint64_t seed = random(), position = random();
    for (uint32_t j = 0; j < kGroup; ++j) {
      ids[j] = static_cast<uint32_t>(random());
      z[j] = static_cast<float>(static_cast<int64_t>(random() % 2000001) - 1000000) * (round % 3 == 0 ? 1e25f : 1e-4f);
    }
    const float highest = GetParam()->noise_bounds(seed, position, ids.data(), z.data(), bounds.data());
    ASSERT_EQ(highest, *std::max_element(bounds.begin(), bounds.end()));
    for (uint32_t j = 0; j < kGroup; ++j) {
      const float noisy = swy_add(z[j], swy_gumbel(seed, position, ids[j]));
      ASSERT_GE(bounds[j], noisy);
      ASSERT_LE(bounds[j] - noisy, 2.0f + std::abs(z[j]) * 1e-6f + 40.0f * (noisy < z[j] ? 1 : 0));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Kernels, ::testing::ValuesIn(row_kernels().begin(), row_kernels().end()),
                         [](const auto& one) { return std::string(one.param->name); });

TEST(RowSampler, RefusesWhatTheReferenceRefuses) {
  RowSampler fast(100);
  const std::vector<float> logits(129);
  swy_sample_params p{};
  swy_sample_params_init(&p);
  swy_sample_row_in in{};
  in.logits = logits.data();
  in.vocab = 100;
  swy_sample_row_out out{};
  EXPECT_EQ(SWY_SAMPLE_BAD_ARGUMENT, fast.sample(p, in, out)) << "not normalised";
  ASSERT_EQ(1, swy_sample_params_normalise(&p, nullptr));
  EXPECT_EQ(SWY_SAMPLE_OK, fast.sample(p, in, out));
  in.vocab = 129;
  EXPECT_EQ(SWY_SAMPLE_BAD_ARGUMENT, fast.sample(p, in, out)) << "more than its workspace holds";
  in.vocab = 0;
  EXPECT_EQ(SWY_SAMPLE_BAD_ARGUMENT, fast.sample(p, in, out));
  in.vocab = 100;
  in.bias_count = 1;
  EXPECT_EQ(SWY_SAMPLE_BAD_ARGUMENT, fast.sample(p, in, out));
  in.bias_count = 0;
  in.logits = nullptr;
  EXPECT_EQ(SWY_SAMPLE_BAD_ARGUMENT, fast.sample(p, in, out));
}

}  // namespace
}  // namespace switchyard
