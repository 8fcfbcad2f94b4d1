// SPDX-License-Identifier: Apache-2.0
// How many tokens are drafted: simulated sequences with known costs and acceptance.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <cmath>
#include <functional>
#include <random>
#include <utility>

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
  std::function<double(uint32_t place)> later = {};  // the same in the second half of the text; none: no change
  uint32_t seqs = 1, proposed = 16;
  uint32_t every = 1;        // a drafter has a guess at one step in so many
  bool feeds_again = false;  // rows that stand beside others that do not are computed once more
  double late = 0;           // a share of steps whose drafts the host learns when the step has ended

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

// Texts of one model, with sequences of their own.
Totals simulate(const Scene& scene, uint32_t steps_without, DraftPolicy& policy, uint32_t seed = 1) {
  std::mt19937 random(seed);
  const auto chance = [&](double p) { return std::uniform_real_distribution<>(0, 1)(random) < p; };
  std::vector<Acceptance> acceptance(scene.seqs);
  std::vector<DraftAccount> accounts(scene.seqs);
  Acceptance& usual = policy.usual("simulated", 0.7);
  for (Acceptance& a : acceptance) a.start(usual);
  std::vector<uint32_t> unfed(scene.seqs, 1);
  Totals r;
  const double end = steps_without * scene.ns(scene.seqs);
  while (r.plain_ns < end) {
    const auto& kept = scene.later && r.plain_ns > end / 2 ? scene.later : scene.kept;
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
      const uint32_t n = policy.choose(ask, acceptance[s], accounts[s]);
      if (n == 0) acceptance[s].passed(), usual.passed();
      if (n > 0 && scene.draft > 0) {
        computed.push_back(n);
        ask.drafting_ns += n * policy.draft_ns(ask.drafting);
      }
      ask.rows += n, ask.tokens += acceptance[s].kept(n), left -= n, drafts[s] = n;
    }
    std::vector<DraftPolicy::Part> parts(scene.seqs);
    for (uint32_t s = 0; s < scene.seqs; ++s) {
      uint32_t stand = 0;
      while (stand < drafts[s] && chance(kept(stand))) ++stand;
      if (drafts[s] > 0) acceptance[s].measured(stand, stand < drafts[s]), usual.measured(stand, stand < drafts[s]);
      parts[s] = {.rows = unfed[s] + drafts[s], .tokens = 1 + stand, .asked = scene.draft > 0 ? drafts[s] : 0};
      unfed[s] = scene.feeds_again && stand < drafts[s] ? unfed[s] + stand + 1 : 1;
      tokens += stand;
      r.drafted += drafts[s], r.accepted += stand;
    }
    const double ns = scene.ns(ask.rows), drafting = scene.drafting_ns(computed);
    uint32_t all = 0;
    for (const uint32_t n : computed) all += n;
    DraftedStep step{.rows = ask.rows,
                     .seqs = scene.seqs,
                     .tokens = tokens,
                     .ns = static_cast<uint64_t>(ns),
                     .computed = all,
                     .drafting_ns = static_cast<uint64_t>(drafting),
                     .drafting = static_cast<uint32_t>(computed.size()),
                     .asked = all};
    if (drafting > 0 && scene.late > 0 && chance(scene.late)) {
      step.drafting_ns += std::exchange(step.ns, 5000) - 5000;
    }
    const DraftedStep counted = policy.stepped(step);
    for (uint32_t s = 0; s < scene.seqs; ++s) policy.settle(accounts[s], counted, parts[s]);
    r.ns += ns + drafting;
    r.plain_ns += scene.ns(scene.seqs) * tokens / scene.seqs;
  }
  return r;
}

Totals simulate(const Scene& scene, uint32_t steps_without) {
  DraftPolicy policy;
  return simulate(scene, steps_without, policy);
}

std::function<double(uint32_t)> always(double share) {
  return [share](uint32_t) { return share; };
}

std::function<double(uint32_t)> falling(double first) {
  return [first](uint32_t place) { return first * std::pow(0.9, place); };
}

// A smaller model that reads a long prompt computes nothing meanwhile.
TEST(DraftPolicy, ReadingLeavesTheCostOfDrafts) {
  DraftPolicy policy;
  for (int i = 0; i < 8; ++i) {
    policy.stepped({.rows = 1, .seqs = 1, .tokens = 1, .ns = 1000});
    policy.stepped(
        {.rows = 2, .seqs = 1, .tokens = 2, .ns = 1300, .computed = 1, .drafting_ns = 400, .drafting = 1, .asked = 1});
  }
  const double cost = policy.draft_ns(1);
  for (int i = 0; i < 32; ++i) {
    policy.stepped({.rows = 1, .seqs = 1, .tokens = 1, .ns = 1000, .drafting_ns = 2, .drafting = 1, .asked = 1});
  }
  EXPECT_EQ(policy.draft_ns(1), cost);
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

// Nor after a long time without drafts, in which their cost cannot be measured.
TEST(DraftPolicy, NeverLosesMoreAfterAPause) {
  for (const double each : {0.3, 0.6, 1.0}) {
    for (const uint32_t pause : {100u, 1000u, 10'000u, 1'000'000u}) {
      DraftPolicy policy;
      const Scene scene{.each = each, .kept = always(0)};
      simulate(scene, 400, policy);
      for (uint32_t i = 0; i < pause; ++i) policy.stepped({.rows = 1, .seqs = 1, .tokens = 1, .ns = 1'000'000});
      const Totals r = simulate(scene, 400, policy, 2);
      EXPECT_LT(r.ns, 1.02 * r.plain_ns) << each << " a row, after " << pause;
    }
  }
}

// The rate with the best number of drafts in every step, beside that without any.
double best_rate(double each, double share) {
  double best = 1, tokens = 1, all = 1;
  for (uint32_t k = 1; k <= 16; ++k) {
    tokens += all *= share;
    best = std::max(best, tokens / (1 + each * k));
  }
  return best;
}

// Texts of 160 tokens, the first of which knows no cost. Rows of a machine that waits for memory cost a part of a step,
// those of one that computes a whole one.
TEST(DraftPolicy, ComesCloseToTheBestNumber) {
  constexpr uint32_t kTexts = 40;
  for (const double each : {0.05, 0.33, 1.0}) {
    for (const double share : {0.0, 0.3, 0.5, 0.85, 1.0}) {
      double first = 0, later = 0;
      for (uint32_t seed = 1; seed <= kTexts; ++seed) {
        DraftPolicy policy;
        const Scene scene{.each = each, .kept = always(share)};
        const Totals one = simulate(scene, 160, policy, seed), two = simulate(scene, 160, policy, seed + kTexts);
        first += one.plain_ns / one.ns / kTexts, later += two.plain_ns / two.ns / kTexts;
      }
      const double best = best_rate(each, share);
      const std::string told =
          fmt::format("{} a row, {} kept: {:.3f} and {:.3f} of {:.3f}", each, share, first, later, best);
      EXPECT_GT(first, std::max(0.98, 0.8 * best)) << told;
      EXPECT_GT(later, std::max(0.99, 0.95 * best)) << told;
    }
  }
}

// A text whose drafts are wrong, after one whose drafts were right, and the other way round.
TEST(DraftPolicy, ATextMayBeUnlikeTheOneBefore) {
  DraftPolicy policy;
  EXPECT_LT(simulate({.each = 0.33, .kept = always(0.95)}, 1000, policy).ns, 0.6 * 1000 * 1e6);
  const Totals wrong = simulate({.each = 0.33, .kept = always(0)}, 160, policy);
  EXPECT_LT(wrong.ns, 1.02 * wrong.plain_ns);
  for (int i = 0; i < 4; ++i) simulate({.each = 0.33, .kept = always(0)}, 160, policy);
  const Totals right = simulate({.each = 0.33, .kept = always(0.95)}, 1000, policy);
  EXPECT_LT(right.ns, 0.65 * right.plain_ns);
}

// A drafter that is left out is tried again after some requests: other texts may suit it.
TEST(DraftPolicy, ADrafterHasAnotherChance) {
  DraftPolicy policy;
  Acceptance& usual = policy.usual("drafter", 0.8);
  EXPECT_TRUE(policy.may_pay(usual, 4)) << "nothing is known";
  for (int i = 0; i < 5; ++i) policy.stepped({.rows = 1, .seqs = 1, .tokens = 1, .ns = 1000});
  const DraftedStep drafted{
      .rows = 2, .seqs = 1, .tokens = 1, .ns = 1300, .computed = 1, .drafting_ns = 100, .drafting = 1, .asked = 1};
  for (int i = 0; i < 2; ++i) policy.stepped(drafted);
  EXPECT_TRUE(policy.may_pay(usual, 4));
  for (int i = 0; i < 100; ++i) usual.measured(0, true);
  EXPECT_FALSE(policy.may_pay(usual, 4));
  uint32_t requests = 0;
  while (!policy.may_pay(usual, 4) && requests < 1000) usual.passed(50), ++requests;
  EXPECT_GT(requests, 5u);
  EXPECT_LT(requests, 100u);
}

// As on an H200, where some hosts are late at the first texts: the mean of many, relative to texts of a host that is
// not.
TEST(DraftPolicy, ALateHostCostsLittle) {
  constexpr uint32_t kTexts = 40;
  Scene scene{.step_ns = 0.88e6, .each = 0.34, .bend = 0.8, .draft = 0.085, .kept = always(0.85), .proposed = 8};
  double ns[2] = {};
  for (const bool late : {false, true}) {
    scene.late = late ? 0.2 : 0;
    for (uint32_t seed = 1; seed <= kTexts; ++seed) {
      DraftPolicy policy;
      ns[late] += simulate(scene, 160, policy, seed).ns;
    }
  }
  EXPECT_LT(ns[1], 1.02 * ns[0]);
}

// In the middle of a text.
TEST(DraftPolicy, FollowsAChange) {
  // At the best numbers 2.28 times as fast in one half, and as fast in the other.
  Scene scene{.each = 0.33, .kept = always(0.95), .later = always(0)};
  const Totals worse = simulate(scene, 2000);
  EXPECT_GT(worse.plain_ns / worse.ns, 1.25);
  std::swap(scene.kept, scene.later);
  const Totals better = simulate(scene, 2000);
  EXPECT_GT(better.plain_ns / better.ns, 1.2);
}

TEST(DraftPolicy, DraftsWhatPays) {
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

DraftAccount rich() {
  DraftAccount account;
  account.add(0, 1000 * kMs, 1000 * kMs);
  return account;
}

uint32_t chosen(const DraftPolicy& policy, uint32_t proposed, uint32_t listed = 1000) {
  const DraftPolicy::Ask ask{
      .rows = 1, .seqs = 1, .undrafted = 1, .tokens = 1, .proposed = proposed, .has_lists = [listed](uint32_t rows) {
        return rows <= listed;
      }};
  return policy.choose(ask, certain(), rich());
}

DraftedStep step(uint32_t rows, uint32_t tokens, double ms, bool first = false) {
  return {.rows = rows, .seqs = 1, .tokens = tokens, .ns = static_cast<uint64_t>(ms * kMs), .first = first};
}

// What drafts took is a loss, shared by whose they are.
TEST(DraftPolicy, AccountsForStepsAndDrafts) {
  DraftPolicy policy;
  for (int i = 0; i < 3; ++i) policy.stepped(step(1, 1, 1));
  DraftedStep one = step(2, 2, 1.3);
  one.computed = one.drafting = one.asked = 1, one.drafting_ns = static_cast<uint64_t>(0.4 * kMs);
  policy.stepped(one);
  EXPECT_NEAR(policy.balance_ns(), 0.3 * kMs, 1) << "two steps of one token, but for 1.3 and 0.4";
  DraftAccount account;
  policy.settle(account, one, {.rows = 2, .tokens = 2, .asked = 1});
  EXPECT_NEAR(account.balance_ns(), 0.3 * kMs, 1);

  for (int i = 0; i < 3; ++i) policy.stepped({.rows = 2, .seqs = 2, .tokens = 2, .ns = 2'000'000});
  const DraftedStep two{.rows = 5, .seqs = 2, .tokens = 4, .ns = 3'500'000};
  DraftAccount good, bad;
  policy.settle(good, two, {.rows = 3, .tokens = 3});
  policy.settle(bad, two, {.rows = 2, .tokens = 1});
  EXPECT_NEAR(good.balance_ns(), 1 * kMs, 1) << "two tokens of 1 each for two of three further rows, of 0.5 each";
  EXPECT_NEAR(bad.balance_ns(), -0.5 * kMs, 1);

  // Nothing came of the drafts of one of two sequences, which cost as much.
  const double before = policy.balance_ns();
  const DraftedStep none{
      .rows = 2, .seqs = 2, .tokens = 2, .ns = 2'000'000, .drafting_ns = 600'000, .drafting = 2, .asked = 6};
  policy.stepped(none);
  EXPECT_NEAR(policy.balance_ns(), before - 0.6 * kMs, 1);
  DraftAccount asked;
  policy.settle(asked, none, {.rows = 1, .tokens = 1, .asked = 4});
  EXPECT_NEAR(asked.balance_ns(), -0.4 * kMs, 1);

  // A step of a kind that was not measured tells nothing.
  DraftAccount saved = rich();
  const double kept = saved.balance_ns();
  policy.settle(saved, {.rows = 9, .seqs = 3, .tokens = 3, .ns = 9'000'000}, {.rows = 3, .tokens = 1});
  EXPECT_EQ(saved.balance_ns(), kept);
}

// Where nearly all of a step's time seems to be the drafts', the host was late: only the sum is known.
TEST(DraftPolicy, ALateHostLeavesTheCosts) {
  DraftPolicy policy;
  for (int i = 0; i < 3; ++i) policy.stepped(step(1, 1, 1));
  DraftedStep drafted = step(2, 2, 1.3);
  drafted.computed = drafted.drafting = drafted.asked = 1, drafted.drafting_ns = static_cast<uint64_t>(0.1 * kMs);
  for (int i = 0; i < 4; ++i) policy.stepped(drafted);
  DraftedStep late = drafted;
  late.ns = static_cast<uint64_t>(0.005 * kMs), late.drafting_ns = static_cast<uint64_t>(1.395 * kMs);
  const double before = policy.balance_ns();
  DraftAccount account;
  for (int i = 0; i < 8; ++i) policy.settle(account, policy.stepped(late), {.rows = 2, .tokens = 2, .asked = 1});
  EXPECT_NEAR(policy.cost_ns(2, 1), 1.3 * kMs, 1);
  EXPECT_NEAR(policy.draft_ns(1), 0.1 * kMs, 1);
  EXPECT_NEAR(policy.balance_ns(), before + 8 * 0.6 * kMs, 8);
  EXPECT_NEAR(account.balance_ns(), 8 * 0.6 * kMs, 8);
}

// A size that has no plan yet is tried once the time that may be lost covers the planning.
TEST(DraftPolicy, CountsPlanning) {
  DraftPolicy policy;
  policy.stepped(step(1, 1, 50, true));
  for (int i = 0; i < 8000; ++i) policy.stepped(step(1, 1, 1));
  EXPECT_EQ(chosen(policy, 7, 1), 0u);
  EXPECT_EQ(chosen(policy, 7), 7u) << "where all have lists";
  for (int i = 0; i < 3000; ++i) policy.stepped(step(1, 1, 1));
  EXPECT_EQ(chosen(policy, 7, 1), 7u);
  policy.stepped(step(8, 8, 52, true));
  EXPECT_LT(policy.balance_ns(), -40 * kMs);
  EXPECT_EQ(chosen(policy, 7, 8), 7u) << "it is planned now";
  EXPECT_EQ(chosen(policy, 15, 8), 7u) << "a larger size is not";
}

// The first of them, which is often slow, does not count where the second is faster.
TEST(DraftPolicy, WaitsUntilPlainStepsWereMeasured) {
  DraftPolicy policy;
  for (const double ms : {3.0, 1.0, 1.0}) {
    EXPECT_EQ(chosen(policy, 8), 0u);
    policy.stepped(step(1, 1, ms));
  }
  EXPECT_GT(chosen(policy, 8), 0u);
  EXPECT_NEAR(policy.cost_ns(1, 1), 1 * kMs, 1);
}

// A plain step is measured again now and then, since steps become dearer as the text grows.
TEST(DraftPolicy, MeasuresPlainStepsAgain) {
  DraftPolicy policy;
  for (int i = 0; i < 3; ++i) policy.stepped(step(1, 1, 1));
  uint32_t wide = 0;
  while (chosen(policy, 7) > 0 && wide < 1000) policy.stepped(step(8, 8, 1.5)), ++wide;
  EXPECT_LT(wide, 50u) << "few were measured";
  for (int i = 0; i < 5; ++i) policy.stepped(step(1, 1, 1));
  wide = 0;
  while (chosen(policy, 7) > 0 && wide < 1000) policy.stepped(step(8, 8, 1.5)), ++wide;
  EXPECT_GT(wide, 50u);
  EXPECT_LT(wide, 1000u);
  policy.stepped(step(1, 1, 1));
  EXPECT_GT(chosen(policy, 7), 0u);
}

// Steps after a prompt, and those at whose time something else ran, do not tell what a step costs.
TEST(DraftPolicy, DoesNotBelieveSlowSteps) {
  DraftPolicy policy;
  policy.read_prompt();
  policy.stepped(step(1, 1, 1));
  EXPECT_EQ(policy.cost_ns(1, 1), 0);
  for (int i = 0; i < 3; ++i) policy.stepped(step(1, 1, 3));
  policy.stepped(step(2, 2, 3.1));
  EXPECT_NEAR(policy.cost_ns(2, 1), 3.1 * kMs, 1);
  policy.stepped(step(1, 1, 2));
  EXPECT_NEAR(policy.cost_ns(1, 1), 2 * kMs, 1);
  EXPECT_GT(policy.cost_ns(2, 1), 2.3 * kMs) << "that a row costs little was not measured";
}

// What drafts cost is taken to be less the longer there were none, but not less than a half.
TEST(DraftPolicy, DraftsMayBecomeCheaper) {
  DraftPolicy policy;
  for (int i = 0; i < 3; ++i) policy.stepped(step(1, 1, 1));
  for (int i = 0; i < 3; ++i) policy.stepped(step(2, 2, 1.8));
  EXPECT_NEAR(policy.cost_ns(2, 1), 1.8 * kMs, 1);
  for (int i = 0; i < 200; ++i) policy.stepped(step(1, 1, 1));
  EXPECT_NEAR(policy.cost_ns(2, 1), (1 + 0.8 * 0.9 * 0.9 * 0.9) * kMs, 1);
  for (int i = 0; i < 10000; ++i) policy.stepped(step(1, 1, 1));
  EXPECT_NEAR(policy.cost_ns(2, 1), 1.4 * kMs, 1);
  policy.stepped(step(2, 2, 1.8));
  EXPECT_NEAR(policy.cost_ns(2, 1), 1.8 * kMs, 1);
}

// A drafter that takes time for every text begins with none until that is made up for.
TEST(DraftPolicy, FollowsNoTextWhileInDebt) {
  DraftPolicy policy;
  EXPECT_TRUE(policy.may_follow()) << "nothing is known";
  for (int i = 0; i < 100; ++i) policy.stepped(step(1, 1, 1));
  policy.followed(1'000'000);
  EXPECT_TRUE(policy.may_follow());
  policy.followed(4'000'000);
  EXPECT_FALSE(policy.may_follow());
  EXPECT_GT(chosen(policy, 4), 0u) << "guesses are asked for where a text is followed";
  uint32_t steps = 0;
  while (!policy.may_follow() && steps < 10000) policy.stepped(step(1, 1, 1)), ++steps;
  EXPECT_GT(steps, 300u);
  EXPECT_LT(steps, 1000u);
  policy.followed(4'000'000);
  EXPECT_FALSE(policy.may_follow());
  for (int i = 0; i < 10; ++i) policy.stepped(step(4, 4, 1.5));
  EXPECT_TRUE(policy.may_follow()) << "guesses saved more";
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
  EXPECT_LT(a.share(0), 0.3);
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
