// SPDX-License-Identifier: Apache-2.0
// How many tokens are drafted: simulated sequences with known costs and acceptance.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "core/draft/draft_policy.h"

namespace switchyard {
namespace {

// What is simulated.
struct Scene {
  double step_ns = 1e6;  // with a row of one sequence
  double each = 0.1;     // a further row's share of that, for the first one
  double bend = 1;       // further rows cost (rows - 1)^bend times that
  double draft = 0;      // a draft's share, where a device computes it; 0: drafts are there
  std::function<double(uint32_t place)> kept = [](uint32_t) { return 0.8; };
  uint32_t seqs = 1, proposed = 16;
  uint32_t every = 1;        // a drafter has a guess at one step in so many
  bool feeds_again = false;  // rows that stand beside others that do not are computed once more

  double ns(uint32_t rows) const { return step_ns * (1 + each * std::pow(rows - 1, bend)); }
  // Drafts of several sequences are computed together.
  double drafting_ns(const std::vector<uint32_t>& drafts) const {
    uint32_t most = 0, all = 0;
    for (const uint32_t n : drafts) most = std::max(most, n), all += n;
    return step_ns * draft * (most + 0.1 * (all - std::min(all, most)));
  }
};

struct Totals {
  double ns = 0;        // that the tokens took
  double plain_ns = 0;  // that they would have taken without drafts
  uint64_t drafted = 0, accepted = 0;
};

Totals simulate(const Scene& scene, uint32_t steps_without) {
  std::mt19937 random(1);
  const auto chance = [&](double p) { return std::uniform_real_distribution<>(0, 1)(random) < p; };
  DraftPolicy policy;
  std::vector<Acceptance> acceptance(scene.seqs);
  for (Acceptance& a : acceptance) a.start(0.7);
  std::vector<uint32_t> unfed(scene.seqs, 1);
  Totals r;
  while (r.plain_ns < steps_without * scene.ns(scene.seqs)) {
    uint32_t rows = 0;
    for (const uint32_t n : unfed) rows += n;
    DraftPolicy::Ask ask{.rows = rows,
                         .seqs = scene.seqs,
                         .undrafted = rows,
                         .tokens = static_cast<double>(scene.seqs),
                         .proposed = scene.proposed,
                         .feeds_again = scene.feeds_again};
    std::vector<uint32_t> drafts(scene.seqs), computed;
    uint32_t tokens = scene.seqs, left = 31;
    for (uint32_t s = 0; s < scene.seqs; ++s) {
      if (random() % scene.every != 0 || unfed[s] > 8) continue;
      ask.proposed = std::min(scene.proposed, left);
      if (scene.draft > 0) ask.drafting = static_cast<uint32_t>(computed.size()) + 1;
      const uint32_t n = policy.choose(ask, acceptance[s]);
      if (n == 0) acceptance[s].passed();
      if (n > 0 && scene.draft > 0) {
        computed.push_back(n);
        ask.drafting_ns += n * policy.draft_ns(ask.drafting);
      }
      ask.rows += n, ask.tokens += acceptance[s].kept(n), left -= n, drafts[s] = n;
    }
    for (uint32_t s = 0; s < scene.seqs; ++s) {
      uint32_t stand = 0;
      while (stand < drafts[s] && chance(scene.kept(stand))) ++stand;
      if (drafts[s] > 0) acceptance[s].measured(stand, stand < drafts[s]);
      unfed[s] = scene.feeds_again && stand < drafts[s] ? unfed[s] + stand + 1 : 1;
      tokens += stand;
      r.drafted += drafts[s], r.accepted += stand;
    }
    const double ns = scene.ns(ask.rows), drafting = scene.drafting_ns(computed);
    uint32_t all = 0;
    for (const uint32_t n : computed) all += n;
    policy.stepped({.rows = ask.rows,
                    .seqs = scene.seqs,
                    .tokens = tokens,
                    .ns = static_cast<uint64_t>(ns),
                    .computed = all,
                    .drafting_ns = static_cast<uint64_t>(drafting),
                    .drafting = static_cast<uint32_t>(computed.size())});
    r.ns += ns + drafting;
    r.plain_ns += scene.ns(scene.seqs) * tokens / scene.seqs;
  }
  return r;
}

std::function<double(uint32_t)> falling(double first) {
  return [first](uint32_t place) { return first * std::pow(0.9, place); };
}

// In texts of few tokens and of many, of one sequence and of several.
TEST(DraftPolicy, NeverLosesMoreThanTwoPercent) {
  for (const double each : {0.02, 0.1, 0.3, 1.0, 2.0}) {
    for (const double acceptance : {0.0, 0.3, 0.5, 0.7}) {
      for (const uint32_t seqs : {1u, 5u}) {
        for (const double draft : {0.0, 0.1, 0.6}) {
          for (const bool feeds_again : {false, true}) {
            for (const uint32_t steps : {160u, 1000u}) {
              if (each > 1 && steps < 1000) continue;  // one wrong try is more than that
              Scene scene{.each = each, .draft = draft, .kept = falling(acceptance), .seqs = seqs};
              scene.every = draft > 0 ? 1 : 5;
              scene.feeds_again = feeds_again;
              const Totals r = simulate(scene, steps);
              EXPECT_LT(r.ns, 1.02 * r.plain_ns)
                  << each << " a row, " << draft << " a draft, acceptance " << acceptance << ", " << seqs
                  << " sequences, " << steps << " steps" << (feeds_again ? ", feeds again" : "");
            }
          }
        }
      }
    }
  }
}

TEST(DraftPolicy, DraftsWhatPays) {
  const auto always = [](double p) { return [p](uint32_t) { return p; }; };
  const Totals good = simulate({.each = 0.1, .kept = always(0.95)}, 2000);
  const Totals perfect = simulate({.each = 0.1, .kept = always(1)}, 2000);
  EXPECT_LT(good.ns, 0.45 * good.plain_ns);
  EXPECT_LT(perfect.ns, 0.25 * perfect.plain_ns);
  // As dear as tokens drawn one by one: nothing is to be gained.
  EXPECT_LT(simulate({.each = 1, .kept = always(0.9)}, 2000).drafted, 400u);
}

// The cost of a model's drafts is part of the choice.
TEST(DraftPolicy, CountsTheDraftersTime) {
  const auto kept = [](uint32_t) { return 0.85; };
  const Totals cheap = simulate({.each = 0.2, .draft = 0.05, .kept = kept}, 2000);
  EXPECT_LT(cheap.ns, 0.65 * cheap.plain_ns);
  EXPECT_LT(simulate({.each = 0.2, .draft = 0.9, .kept = kept}, 2000).drafted, 100u);
}

// What is kept at the first places and not at later ones is drafted so far and no further.
TEST(DraftPolicy, FollowsTheAcceptanceByPlace) {
  const auto two = [](uint32_t place) { return place < 2 ? 0.95 : 0.05; };
  const Totals r = simulate({.each = 0.1, .kept = two, .proposed = 16}, 2000);
  EXPECT_GT(static_cast<double>(r.accepted), 0.75 * static_cast<double>(r.drafted));
  EXPECT_LT(r.ns, 0.5 * r.plain_ns);
}

// In a batch whose further rows cost as much as the others, nothing is drafted; where they cost little, all draft.
TEST(DraftPolicy, ABatchDraftsWhileItsStepHasRoom) {
  const auto kept = [](uint32_t) { return 0.8; };
  const Totals full = simulate({.each = 1, .kept = kept, .seqs = 8}, 2000);
  EXPECT_LT(full.drafted, 0.1 * 2000 * 8);
  const Totals roomy = simulate({.each = 0.02, .kept = kept, .seqs = 8}, 2000);
  EXPECT_GT(roomy.drafted, 2000u * 8);
  EXPECT_LT(roomy.ns, 0.6 * roomy.plain_ns);
}

constexpr double kMs = 1e6;

Acceptance certain() {
  Acceptance a;
  a.start(1);
  return a;
}

uint32_t chosen(const DraftPolicy& policy, uint32_t proposed) {
  return policy.choose({.rows = 1, .seqs = 1, .undrafted = 1, .tokens = 1, .proposed = proposed}, certain());
}

DraftedStep step(uint32_t rows, uint32_t tokens, double ms, bool first = false) {
  return {.rows = rows, .seqs = 1, .tokens = tokens, .ns = static_cast<uint64_t>(ms * kMs), .first = first};
}

// A size that has no plan yet is tried once the time that may be lost covers the planning.
TEST(DraftPolicy, CountsPlanning) {
  DraftPolicy policy;
  policy.stepped(step(1, 1, 50, true));
  for (int i = 0; i < 4000; ++i) policy.stepped(step(1, 1, 1));
  EXPECT_EQ(chosen(policy, 7), 0u);
  for (int i = 0; i < 2000; ++i) policy.stepped(step(1, 1, 1));
  EXPECT_EQ(chosen(policy, 7), 7u);
  policy.stepped(step(8, 8, 52, true));
  EXPECT_LT(policy.balance_ns(), -40 * kMs);
  EXPECT_EQ(chosen(policy, 7), 7u) << "it is planned now";
  EXPECT_EQ(chosen(policy, 15), 7u) << "a larger size is not";
}

// The first of them, which is often slow, does not count where the second is faster.
TEST(DraftPolicy, WaitsUntilPlainStepsWereMeasured) {
  DraftPolicy policy;
  for (const double ms : {3.0, 1.0, 1.0, 1.0, 1.0}) {
    EXPECT_EQ(chosen(policy, 8), 0u);
    policy.stepped(step(1, 1, ms));
  }
  EXPECT_GT(chosen(policy, 8), 0u);
  EXPECT_NEAR(policy.cost_ns(1, 1), 1 * kMs, 1);
}

// A plain step is measured again now and then, since steps become dearer as the text grows.
TEST(DraftPolicy, MeasuresPlainStepsAgain) {
  DraftPolicy policy;
  for (int i = 0; i < 5; ++i) policy.stepped(step(1, 1, 1));
  uint32_t wide = 0;
  while (chosen(policy, 7) > 0 && wide < 1000) policy.stepped(step(8, 8, 1.5)), ++wide;
  EXPECT_GT(wide, 50u);
  EXPECT_LT(wide, 1000u);
  policy.stepped(step(1, 1, 1));
  EXPECT_GT(chosen(policy, 7), 0u);
}

// Sizes that were not measured cost what those beside them tell.
TEST(DraftPolicy, CostsBetweenMeasuredSizes) {
  DraftPolicy policy;
  policy.stepped(step(1, 1, 1));
  policy.stepped(step(2, 2, 1.2));
  policy.stepped(step(8, 8, 1.8));
  EXPECT_NEAR(policy.cost_ns(1, 1), 1 * kMs, 1);
  EXPECT_NEAR(policy.cost_ns(2, 1), 1.2 * kMs, 1);
  EXPECT_NEAR(policy.cost_ns(5, 1), 1.5 * kMs, 1);
  EXPECT_NEAR(policy.cost_ns(15, 1), 2.6 * kMs, 1);
  EXPECT_EQ(policy.cost_ns(3, 3), 0) << "never measured";
}

TEST(Acceptance, FollowsWhatIsMeasured) {
  Acceptance a;
  a.start(0.8);
  EXPECT_NEAR(a.share(0), 0.8, 1e-9);
  for (int i = 0; i < 20; ++i) a.measured(8, false);
  EXPECT_GT(a.share(0), 0.95);
  EXPECT_GT(a.share(7), 0.99);
  EXPECT_GT(a.share(31), 0.99) << "as the last that was measured";
  for (int i = 0; i < 40; ++i) a.measured(0, true);
  EXPECT_LT(a.share(0), 0.15);
  EXPECT_GT(a.share(7), 0.9) << "it was not reached";
  for (int i = 0; i < 2000; ++i) a.passed();
  EXPECT_GT(a.share(0), 0.5);
}

TEST(Acceptance, IsOfEachPlace) {
  Acceptance a;
  a.start(0.8);
  for (int i = 0; i < 40; ++i) a.measured(2, true);
  EXPECT_GT(a.share(1), 0.9);
  EXPECT_LT(a.share(2), 0.2);
  EXPECT_NEAR(a.kept(3), a.share(0) + a.share(0) * a.share(1) * (1 + a.share(2)), 1e-9);
}

}  // namespace
}  // namespace switchyard
