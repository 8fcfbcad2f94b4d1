// SPDX-License-Identifier: Apache-2.0
// The fast sampler against the reference: the same status, token, id and log-probability, bit for bit, in every build.
#include "switchyard/sdk/row_sampler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <thread>

#include "tests/sampling/random_rows.h"

namespace switchyard {
namespace {

using testing::RandomRow;

class Kernels : public ::testing::TestWithParam<const swy::RowKernels*> {};

void expect_same(swy::RowSampler& fast, const RandomRow& row, int index) {
  swy_sample_row_out want{}, got{};
  const int32_t status = row.expected(want);
  ASSERT_EQ(status, fast.sample(row.params, row.in, got)) << "row " << index;
  ASSERT_EQ(want.token, got.token) << "row " << index << ", vocab " << row.in.vocab;
  ASSERT_EQ(want.id, got.id) << "row " << index;
  ASSERT_EQ(swy_float_bits(want.logprob), swy_float_bits(got.logprob)) << "row " << index;
}

TEST_P(Kernels, DrawTheReferencesTokens) {
  std::mt19937_64 random(1);
  swy::RowSampler fast(3000, *GetParam());
  for (int i = 0; i < 15000; ++i) {
    const RandomRow row(random, testing::random_vocab(random, i % 10 == 0 ? 3000 : 400));
    ASSERT_NO_FATAL_FAILURE(expect_same(fast, row, i));
  }
}

TEST_P(Kernels, DrawTheReferencesTokensFromLargeRows) {
  std::mt19937_64 random(2);
  swy::RowSampler fast(248320, *GetParam());
  for (int i = 0; i < 12; ++i) {
    const RandomRow row(random, i % 2 == 0 ? 248320 : 151936);
    ASSERT_NO_FATAL_FAILURE(expect_same(fast, row, i));
  }
}

TEST_P(Kernels, GiveTheReferencesTopLogprobs) {
  std::mt19937_64 random(3);
  swy::RowSampler fast(1000, *GetParam());
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

// One likely id and many light ones: top-p reaches far into those, which weigh less than a thousandth of it each.
TEST_P(Kernels, TopPReachesTheLightIds) {
  std::mt19937_64 random(5);
  swy::RowSampler fast(2000, *GetParam());
  RandomRow row(random, 2000);
  swy_sample_params_init(&row.params);
  row.params.top_p = 0.9f;
  ASSERT_EQ(swy_sample_params_normalise(&row.params, nullptr), 1);
  row.in.mask = row.in.counts = nullptr;
  row.in.bias_count = 0;
  for (float& x : row.logits) x = static_cast<float>(random() % 100) * 0.01f;
  row.logits[700] = 9;
  int light = 0;
  for (uint64_t i = 0; i < 100; ++i) {
    row.params.seed = i;
    ASSERT_NO_FATAL_FAILURE(expect_same(fast, row, static_cast<int>(i)));
    swy_sample_row_out out{};
    light += row.expected(out) == SWY_SAMPLE_OK && out.token != 700 ? 1 : 0;
  }
  EXPECT_GT(light, 10);
}

// The screen must never hide an id that could win, wherever the random word lies.
TEST_P(Kernels, BoundTheNoise) {
  std::mt19937_64 random(4);
  std::array<uint32_t, swy::kGroup> ids{};
  std::array<float, swy::kGroup> z{}, bounds{};
  for (int round = 0; round < 3000; ++round) {
    const uint64_t seed = random(), position = random();
    for (uint32_t j = 0; j < swy::kGroup; ++j) {
      ids[j] = static_cast<uint32_t>(random());
      z[j] = static_cast<float>(static_cast<int64_t>(random() % 2000001) - 1000000) * (round % 3 == 0 ? 1e25f : 1e-4f);
    }
    const float highest = GetParam()->noise_bounds(seed, position, ids.data(), z.data(), bounds.data());
    ASSERT_EQ(highest, *std::max_element(bounds.begin(), bounds.end()));
    for (uint32_t j = 0; j < swy::kGroup; ++j) {
      const float noisy = swy_add(z[j], swy_gumbel(seed, position, ids[j]));
      ASSERT_GE(bounds[j], noisy);
      ASSERT_LE(bounds[j] - noisy, 2.0f + std::abs(z[j]) * 1e-6f + 40.0f * (noisy < z[j] ? 1 : 0));
    }
  }
}

// A team of threads over one memory; `part` is run by every member with its view.
template <class Part>
void with_team(uint32_t size, uint32_t vocab, const swy::RowKernels& kernels, const Part& part) {
  std::vector<char> memory(swy::RowSampler::bytes(vocab, size) + 64);
  char* aligned = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  std::barrier<> barrier(size);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const swy_team team{sizeof(swy_team), size, rank, 0, &barrier, [](const swy_team* t) {
                            static_cast<std::barrier<>*>(t->ctx)->arrive_and_wait();
                          }};
      swy::RowSampler member(vocab, aligned, team, kernels);
      part(member, rank);
    });
  }
  for (std::thread& t : threads) t.join();
}

// Rows of every kind, and flat ones with and without ties, whose lists are too long to be gathered.
void flatten(RandomRow& row, std::mt19937_64& random) {
  const float step = std::array{0.0f, 0.25f, 1.0f}[random() % 3], spread = std::array{0.0f, 0.3f, 1.0f}[random() % 3];
  std::normal_distribution<float> normal;
  for (float& x : row.logits) {
    x = normal(random) * spread;
    if (step > 0) x = std::round(x / step) * step;
  }
}

struct Answer {
  int32_t status = 0;
  swy_sample_row_out out{};
  bool operator==(const Answer& b) const {
    return status == b.status && out.token == b.out.token && out.id == b.out.id &&
           swy_float_bits(out.logprob) == swy_float_bits(b.out.logprob);
  }
};

TEST_P(Kernels, DrawTheReferencesTokensAsATeam) {
  for (const uint32_t size : {2u, 7u}) {
    constexpr uint32_t kRows = 200;
    std::mt19937_64 random(5 + size);
    std::vector<std::unique_ptr<RandomRow>> rows;
    std::vector<Answer> want(kRows);
    for (uint32_t i = 0; i < kRows; ++i) {
      rows.push_back(std::make_unique<RandomRow>(
          random, i % 4 == 0 ? 20000 + static_cast<uint32_t>(random() % 99) : testing::random_vocab(random, 1000)));
      if (i % 8 == 0) flatten(*rows[i], random);
      want[i].status = rows[i]->expected(want[i].out);
    }
    std::vector<std::vector<Answer>> got(size, std::vector<Answer>(kRows));
    with_team(size, 20100, *GetParam(), [&](swy::RowSampler& member, uint32_t rank) {
      for (uint32_t i = 0; i < kRows; ++i)
        got[rank][i].status = member.sample(rows[i]->params, rows[i]->in, got[rank][i].out);
    });
    for (uint32_t rank = 0; rank < size; ++rank) {
      for (uint32_t i = 0; i < kRows; ++i) {
        ASSERT_TRUE(want[i] == got[rank][i])
            << "row " << i << ", member " << rank << " of " << size << ": token " << got[rank][i].out.token
            << " instead of " << want[i].out.token << ", vocab " << rows[i]->in.vocab;
      }
    }
  }
}

struct Listed {
  std::vector<int32_t> ids, top_ids;
  std::vector<float> logits, logprobs;
  swy_candidates_result result{};
  explicit Listed(uint32_t n) : ids(n, 7), top_ids(n, 7), logits(n, 7.0f), logprobs(n, 7.0f) {}
};

bool same(const swy_candidates_result& a, const swy_candidates_result& b) {
  return a.status == b.status && a.id == b.id && a.live == b.live && a.total == b.total &&
         swy_float_bits(a.max_logit) == swy_float_bits(b.max_logit) && a.logprob_total == b.logprob_total;
}

// Alone, and as a team: candidates and the most likely tokens.
TEST_P(Kernels, ListTheReferencesCandidates) {
  for (const uint32_t size : {1u, 2u, 5u}) {
    constexpr uint32_t kRows = 80;
    std::mt19937_64 random(50 + size);
    std::vector<std::unique_ptr<RandomRow>> rows;
    std::vector<Listed> want, got;
    for (uint32_t i = 0; i < kRows; ++i) {
      rows.push_back(std::make_unique<RandomRow>(
          random, i % 5 == 0 ? 20000 + static_cast<uint32_t>(random() % 99) : testing::random_vocab(random, 1000)));
      RandomRow& row = *rows[i];
      if (i % 10 == 0) flatten(row, random);
      got.emplace_back(i % 3 == 0 ? 1 : 1 + static_cast<uint32_t>(random() % 200));
      Listed& w = want.emplace_back(static_cast<uint32_t>(got[i].ids.size()));
      std::vector<uint64_t> workspace(row.in.vocab);
      const auto n = static_cast<uint32_t>(w.ids.size());
      swy_row_candidates(&row.params, &row.in, n, workspace.data(), w.ids.data(), w.logits.data(), &w.result);
      if (w.result.status != SWY_SAMPLE_OK) continue;
      swy_row_top_logprobs(row.in.logits, row.in.vocab, n, workspace.data(), w.top_ids.data(), w.logprobs.data());
    }
    with_team(size, 20100, *GetParam(), [&](swy::RowSampler& member, uint32_t) {
      for (uint32_t i = 0; i < kRows; ++i) {
        Listed& g = got[i];
        member.candidates(rows[i]->params, rows[i]->in, g.ids, g.logits, g.result);
        if (want[i].result.status == SWY_SAMPLE_OK) member.top_logprobs(rows[i]->logits, g.top_ids, g.logprobs);
      }
    });
    for (uint32_t i = 0; i < kRows; ++i) {
      ASSERT_TRUE(same(want[i].result, got[i].result))
          << i << " of " << size << ": status " << got[i].result.status << ", live " << got[i].result.live;
      ASSERT_EQ(want[i].ids, got[i].ids) << i << " of " << size;
      ASSERT_EQ(want[i].logits, got[i].logits) << i << " of " << size;
      ASSERT_EQ(want[i].top_ids, got[i].top_ids) << i << " of " << size;
      ASSERT_EQ(want[i].logprobs, got[i].logprobs) << i << " of " << size;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Kernels, ::testing::ValuesIn(swy::row_kernels().begin(), swy::row_kernels().end()),
                         [](const auto& one) { return std::string(one.param->name); });

TEST(RowSampler, RefusesWhatTheReferenceRefuses) {
  swy::RowSampler fast(100);
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
