// SPDX-License-Identifier: Apache-2.0
// Intervals and verdicts on samples whose truth is known.
#include "bench/statistics.h"

#include <gmock/gmock.h>

#include <cmath>
#include <random>

namespace switchyard::bench {
namespace {

constexpr uint32_t kSteps = 20;

// Turns of a machine that drifts: what disturbs it lasts for several turns and hits both sides alike, single steps are
// interrupted now and then, and the first turn of each process is slow. `factor`: how much longer a step takes.
struct Machine {
  explicit Machine(uint64_t seed) : random(seed) {}
  std::mt19937_64 random;
  std::normal_distribution<double> normal;
  double drift = 0;

  void pass() { drift = 0.9 * drift + 0.1 * normal(random); }
  Turn turn(uint32_t round, double factor) {
    Turn t{0, round, {}};
    const double own = 0.03 * normal(random);
    for (uint32_t i = 0; i < kSteps; ++i) {
      const double late = random() % 50 == 0 ? 5e-3 : 0;
      t.seconds.push_back(1e-3 * factor * std::exp(drift + own + 0.02 * normal(random)) + late);
    }
    return t;
  }
};

Ratio compared(uint64_t seed, double factor, uint32_t rounds) {
  Machine machine(seed);
  std::vector<Turn> a, b;
  for (uint32_t round = 0; round < rounds; ++round) {
    machine.pass();
    if (round % 2 == 0) {
      a.push_back(machine.turn(round, 1));
      b.push_back(machine.turn(round, factor));
    } else {
      b.push_back(machine.turn(round, factor));
      a.push_back(machine.turn(round, 1));
    }
  }
  return ratio_of(a, b, 1, 1);
}

TEST(Statistics, MedianOfEvenAndOddCounts) {
  EXPECT_EQ(median_of(std::vector<double>{}), 0);
  EXPECT_EQ(median_of(std::vector<double>{3, 1, 2}), 2);
  EXPECT_EQ(median_of(std::vector<double>{4, 1, 3, 2}), 2.5);
}

TEST(Statistics, TheSameSamplesGiveTheSameInterval) {
  const Ratio one = compared(1, 1.05, 50), two = compared(1, 1.05, 50);
  EXPECT_EQ(one.low, two.low);
  EXPECT_EQ(one.high, two.high);
}

TEST(Statistics, IdenticalBuildsAreNoDifference) {
  int wrong = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) wrong += compared(seed, 1, 120).verdict() != Verdict::no_difference;
  EXPECT_LE(wrong, 1);
}

TEST(Statistics, FivePercentSlowerIsSeen) {
  int seen = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) seen += compared(seed, 1.05, 120).verdict() == Verdict::slower;
  EXPECT_GE(seen, 39);
  EXPECT_NEAR(compared(1, 1.05, 120).ratio, 1 / 1.05, 0.02);
}

TEST(Statistics, IntervalsHoldTheTruthOverDriftingTurns) {
  int outside = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Ratio r = compared(seed, 1.03, 60);
    outside += r.low > 1 / 1.03 || r.high < 1 / 1.03;
  }
  EXPECT_LE(outside, 4) << "99% of them should";
}

TEST(Statistics, OnePairSaysNothingAndFewSayLittle) {
  const auto turns = [](std::initializer_list<double> seconds) {
    std::vector<Turn> all;
    for (const double s : seconds) all.push_back({0, static_cast<uint32_t>(all.size()), {s}});
    return all;
  };
  EXPECT_EQ(ratio_of(turns({1}), turns({2}), 1, 1).pairs, 1u);
  EXPECT_EQ(ratio_of(turns({1}), turns({2}), 1, 1).verdict(), Verdict::no_difference);
  EXPECT_EQ(ratio_of(turns({1, 1.1, 0.9}), turns({1.1, 1.2, 1.2}), 1, 1).verdict(), Verdict::no_difference);
  EXPECT_EQ(ratio_of(turns({1, 1.1, 0.9}), turns({100, 102, 99}), 1, 1).verdict(), Verdict::slower);
}

TEST(Statistics, StartsThatDisagreeAreNoDifference) {
  std::vector<Turn> a, b;
  for (uint32_t sitting = 0; sitting < 3; ++sitting) {
    for (uint32_t round = 0; round < 40; ++round) {
      a.push_back({sitting, round, {1 + 1e-4 * round}});
      b.push_back({sitting, round, {(sitting == 1 ? 1.0 : 0.9) * (1 + 1e-4 * round)}});
    }
  }
  const Ratio r = ratio_of(a, b, 1, 1);
  EXPECT_GT(r.ratio, 1.1) << "two of three";
  EXPECT_LE(r.low, 1.0001);
  EXPECT_EQ(r.verdict(), Verdict::no_difference);
}

TEST(Statistics, PairsOnlyTurnsOfTheSameRound) {
  const std::vector<Turn> a = {{0, 0, {1}}, {0, 2, {1}}}, b = {{0, 1, {1}}, {0, 2, {2}}, {1, 0, {1}}};
  EXPECT_EQ(ratio_of(a, b, 1, 1).pairs, 1u);
}

TEST(Statistics, RatesTurnTheInterval) {
  const Interval rate = rate_of({2, 1, 4}, 8);
  EXPECT_EQ(rate.median, 4);
  EXPECT_EQ(rate.low, 2);
  EXPECT_EQ(rate.high, 8);
}

TEST(Statistics, TheIntervalOfOneTurnIsItsRanks) {
  const std::vector<Turn> one = {{0, 0, {5, 1, 4, 2, 3}}};
  const Interval i = median_interval(one);
  EXPECT_EQ(i.median, 3);
  EXPECT_EQ(i.low, 1);
  EXPECT_EQ(i.high, 5);
}

}  // namespace
}  // namespace switchyard::bench
