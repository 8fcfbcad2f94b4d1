// SPDX-License-Identifier: Apache-2.0
// Which drafters a model and its requests have: none that cannot pay.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "core/engine/mtp_drafter.h"
#include "core/engine/prepare.h"
#include "tests/engine/fixture.h"
#include "tests/support/drafted.h"

namespace switchyard {
namespace {

// Guesses that a device computes, which are wrong.
class Computing final : public Drafter {
 public:
  void saw(std::span<const int32_t>) override {}
  Status propose(uint32_t, Guesses& guesses) override {
    ++asked;
    if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    guesses.add(0);
    return {};
  }
  bool may_propose_after(uint32_t) const override { return true; }
  std::string_view name() const override { return "computing"; }
  double expected_acceptance() const override { return 0.8; }
  bool computes() const override { return true; }
  uint32_t most_drafts() const override { return 4; }
  bool wants_hidden() const override { return true; }
  Status saw_hidden(uint32_t, std::span<const int32_t>, std::span<const float>) override {
    ++rows;
    return {};
  }

  uint32_t asked = 0, rows = 0;
  bool slow = false;
};

void run(Model& model, const std::shared_ptr<Drafter>& drafter, uint32_t tokens = 12) {
  auto session = *model.session();
  Batch batch(model);
  Request r = request_of(kShortPrompt, {}, tokens);
  r.drafters = {drafter};
  const auto id = batch.add(*session, std::move(r));
  ASSERT_TRUE(id.ok()) << id.status().message();
  ASSERT_TRUE(batch.run(*id).ok());
  EXPECT_EQ(batch.take(*id)->ids.size(), tokens);
}

DraftedStep measured(uint32_t rows, uint32_t computed, double ms) {
  DraftedStep s{.rows = rows, .seqs = 1, .tokens = 1, .ns = static_cast<uint64_t>(ms * 1e6)};
  s.computed = s.asked = computed, s.drafting = computed > 0 ? 1 : 0, s.drafting_ns = computed * s.ns;
  return s;
}

// What was measured in earlier requests tells: the drafter gets no rows, so that its text costs nothing.
TEST(Drafters, ThoseThatCannotPayAreLeftOut) {
  ModelOptions o = drafting(1);
  o.hidden = true;
  const TestModel t = make_model(kDemo, kFast, o);
  ASSERT_NE(t.model, nullptr);
  DraftPolicy& policy = t.model->draft_policy();
  const auto rows_of_text = [&](double draft_ms, double kept) {
    policy = DraftPolicy();
    for (int i = 0; i < 5; ++i) policy.stepped(measured(1, 0, 1e3));
    DraftedStep drafted = measured(2, 1, 1.01e3);
    drafted.tokens = 2, drafted.drafting_ns = static_cast<uint64_t>(draft_ms * 1e6);
    for (int i = 0; i < 4; ++i) policy.stepped(drafted);
    policy.usual("computing", 1).start(kept);
    const auto drafter = std::make_shared<Computing>();
    run(*t.model, drafter);
    return drafter->rows;
  };
  EXPECT_EQ(rows_of_text(1e3, 0.8), 0u) << "a draft takes as long as a step";
  EXPECT_GT(rows_of_text(10, 0.8), 0u) << "it is cheap";
  EXPECT_EQ(rows_of_text(10, 0), 0u) << "none of its guesses was kept";
}

// In the middle of a text, too.
TEST(Drafters, ThoseThatDoNotPayStopFollowing) {
  ModelOptions o = drafting(1);
  o.hidden = true;
  const TestModel t = make_model(kDemo, kFast, o);
  ASSERT_NE(t.model, nullptr);
  ASSERT_TRUE(prepare_decoding(*t.model, {}).ok());  // no guess waits for a plan
  const auto drafter = std::make_shared<Computing>();
  drafter->slow = true;
  run(*t.model, drafter, 300);
  EXPECT_GT(drafter->asked, 0u) << "a first guess is tried";
  EXPECT_LT(drafter->asked, 10u);
  EXPECT_LT(drafter->rows, 290u) << "a guess takes longer than many steps";
}

// Where steps run ahead they would wait for the layer, so that the model has none unless it is asked for.
TEST(Drafters, NoLayerWhereStepsRunAhead) {
  const auto program = Program::load(Os::real(), kDemo);
  ASSERT_TRUE(program.ok());
  for (const Speculation speculation : {Speculation::automatic, Speculation::mtp}) {
    for (const char* backend : {"late", kFast}) {
      ModelOptions o = options_for(1);
      ASSERT_TRUE(add_speculation(speculation, *program, o).ok());
      const TestModel t = make_model(kDemo, backend, o, SWITCHYARD_FIXTURES);
      ASSERT_NE(t.model, nullptr);
      const bool ahead = t.model->runner().runs_ahead();
      EXPECT_EQ(ahead, backend == std::string("late"));
      EXPECT_EQ(t.model->mtp() != nullptr, !ahead || speculation == Speculation::mtp);
      EXPECT_EQ(t.model->hidden_width() > 0, t.model->mtp() != nullptr);
    }
  }
}

}  // namespace
}  // namespace switchyard
