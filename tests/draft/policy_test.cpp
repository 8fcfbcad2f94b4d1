// SPDX-License-Identifier: Apache-2.0
// How many tokens are drafted: simulated sequences with known costs and acceptance.
#include <gtest/gtest.h>

#include <random>

#include "core/draft/draft_policy.h"

namespace switchyard {
namespace {

struct Model {
  double step_ns;  // with one row
  double each;     // a further row's share of that
  double ns(uint32_t rows) const { return step_ns * (1 + each * (rows - 1)); }
};

struct Totals {
  double ns = 0;        // that the tokens took
  double plain_ns = 0;  // that they would have taken without drafts
  uint64_t drafted = 0, accepted = 0;
};

// One sequence, in which a drafter has a guess of `proposed` tokens at each step in `every`.
// `feeds_again`: rows that stand beside others that do not are computed once more.
Totals simulate(const Model& model, double acceptance, uint32_t tokens, uint32_t proposed, uint32_t every = 1,
                bool feeds_again = false) {
  std::mt19937 random(1);
  DraftPolicy policy;
  Acceptance a;
  a.start(0.8);
  Totals r;
  uint32_t unfed = 1;
  for (uint32_t drawn = 0; drawn < tokens;) {
    uint32_t n = 0, stand = 0;
    if (random() % every == 0 && unfed <= 8) {
      n = policy.choose(unfed, 1, 1, proposed, a.share(), feeds_again);
      if (n == 0) a.passed();
    }
    while (stand < n && std::uniform_real_distribution<>(0, 1)(random) < acceptance) ++stand;
    if (n > 0) a.measured(stand, stand < n);
    const double ns = model.ns(unfed + n);
    policy.stepped(unfed + n, 1, 1 + stand, static_cast<uint64_t>(ns));
    unfed = feeds_again && stand < n ? unfed + stand + 1 : 1;
    r.ns += ns;
    r.drafted += n, r.accepted += stand;
    drawn += 1 + stand;
    r.plain_ns += model.step_ns * (1 + stand);
  }
  return r;
}

TEST(DraftPolicy, NeverLosesMoreThanTwoPercent) {
  for (const double each : {0.02, 0.1, 0.3, 0.6, 1.0, 2.0}) {
    for (const double acceptance : {0.0, 0.1, 0.3, 0.5, 0.7}) {
      for (const uint32_t every : {1u, 7u}) {
        for (const bool feeds_again : {false, true}) {
          const Totals r = simulate({1e6, each}, acceptance, 2000, 16, every, feeds_again);
          EXPECT_LT(r.ns, 1.02 * r.plain_ns) << each << " a row, acceptance " << acceptance << ", every " << every
                                             << (feeds_again ? ", feeds again" : "");
        }
      }
    }
  }
}

TEST(DraftPolicy, DraftsWhatPays) {
  const Totals good = simulate({1e6, 0.1}, 0.95, 2000, 16), perfect = simulate({1e6, 0.1}, 1, 2000, 16);
  EXPECT_LT(good.ns, 0.45 * good.plain_ns);
  EXPECT_LT(perfect.ns, 0.25 * perfect.plain_ns);
  // As dear as tokens drawn one by one: nothing is to be gained.
  EXPECT_LT(simulate({1e6, 1.0}, 0.9, 2000, 16).drafted, 400u);
}

// A size that has no plan yet is tried once the time that may be lost covers the planning.
TEST(DraftPolicy, CountsPlanning) {
  DraftPolicy policy;
  policy.stepped_first(1, 1, 1, 50'000'000);
  for (int i = 0; i < 4000; ++i) policy.stepped(1, 1, 1, 1'000'000);
  EXPECT_EQ(policy.choose(1, 1, 1, 7, 1), 0u);
  for (int i = 0; i < 1500; ++i) policy.stepped(1, 1, 1, 1'000'000);
  EXPECT_EQ(policy.choose(1, 1, 1, 7, 1), 7u);
  policy.stepped_first(8, 1, 8, 52'000'000);
  EXPECT_LT(policy.balance_ns(), -40e6);
  EXPECT_EQ(policy.choose(1, 1, 1, 7, 1), 7u) << "it is planned now";
  EXPECT_EQ(policy.choose(1, 1, 1, 15, 1), 7u) << "a larger size is not";
}

TEST(DraftPolicy, WaitsUntilAPlainStepWasMeasured) {
  DraftPolicy policy;
  EXPECT_EQ(policy.choose(1, 1, 1, 8, 0.9), 0u);
  policy.stepped(1, 1, 1, 1000);
  EXPECT_GT(policy.choose(1, 1, 1, 8, 0.9), 0u);
}

// A plain step is measured again now and then, since steps become dearer as the text grows.
TEST(DraftPolicy, MeasuresPlainStepsAgain) {
  DraftPolicy policy;
  policy.stepped(1, 1, 1, 1000);
  uint32_t wide = 0;
  while (policy.choose(1, 1, 1, 7, 1) > 0 && wide < 1000) policy.stepped(8, 1, 8, 1500), ++wide;
  EXPECT_GT(wide, 50u);
  EXPECT_LT(wide, 1000u);
  policy.stepped(1, 1, 1, 1000);
  EXPECT_GT(policy.choose(1, 1, 1, 7, 1), 0u);
}

TEST(Acceptance, FollowsWhatIsMeasured) {
  Acceptance a;
  a.start(0.8);
  for (int i = 0; i < 20; ++i) a.measured(8, false);
  EXPECT_GT(a.share(), 0.98);
  for (int i = 0; i < 20; ++i) a.measured(0, true);
  EXPECT_LT(a.share(), 0.05);
  for (int i = 0; i < 2000; ++i) a.passed();
  EXPECT_GT(a.share(), 0.5);
}

}  // namespace
}  // namespace switchyard
