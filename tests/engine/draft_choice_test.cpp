// SPDX-License-Identifier: Apache-2.0
// Which drafters a model and its requests have: none that cannot pay.
#include <gmock/gmock.h>

#include <chrono>
#include <thread>

#include "core/engine/mtp_drafter.h"
#include "core/engine/prepare.h"
#include "tests/engine/fixture.h"
#include "tests/support/drafted.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;

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

// A model that speculates as `auto` does, on the fixture `late`.
ModelOptions automatic() {
  ModelOptions o = options_for(1);
  auto program = Program::load(Os::real(), kDemo);
  EXPECT_TRUE(program.ok() && add_speculation(Speculation::automatic, *program, o).ok());
  return o;
}

TestModel late_model(const ModelOptions& options, uint64_t memory = 0) {
  return make_model(kDemo, "late", options, SWITCHYARD_FIXTURES, {{"late", {{"memory", std::to_string(memory)}}}});
}

// Where steps run ahead those of several sessions would wait for the layer, so that the model has none unless it is
// asked for.
TEST(Drafters, NoLayerWhereStepsRunAhead) {
  const auto program = Program::load(Os::real(), kDemo);
  ASSERT_TRUE(program.ok());
  for (const auto& [speculation, sessions] :
       {std::pair{Speculation::automatic, 1u}, {Speculation::automatic, 2u}, {Speculation::mtp, 2u}}) {
    for (const char* backend : {"late", kFast}) {
      ModelOptions o = options_for(sessions);
      ASSERT_TRUE(add_speculation(speculation, *program, o).ok());
      const TestModel t = make_model(kDemo, backend, o, SWITCHYARD_FIXTURES);
      ASSERT_NE(t.model, nullptr);
      const bool ahead = t.model->runner().runs_ahead(),
                 left_out = ahead && sessions > 1 && speculation != Speculation::mtp;
      EXPECT_EQ(ahead, backend == std::string("late"));
      EXPECT_EQ(t.model->mtp() == nullptr, left_out);
      EXPECT_EQ(t.model->hidden_width() == 0, left_out);
      EXPECT_THAT(t.model->mtp_left_out(), HasSubstr(left_out ? "late:0 begins each step before the last" : ""));
      EXPECT_EQ(t.model->mtp_left_out().empty(), !left_out);
    }
  }
  ModelOptions o = automatic();
  o.device_sampling = false;
  const TestModel t = late_model(o);
  ASSERT_NE(t.model, nullptr);
  EXPECT_FALSE(t.model->runner().runs_ahead());
  EXPECT_NE(t.model->mtp(), nullptr) << "nothing has to wait";
  EXPECT_EQ(t.model->mtp_left_out(), "");
}

// What is known before anything is loaded: the layer's keys and values do not fit beside the others.
TEST(Drafters, NoLayerWhereItsStatesDoNotFit) {
  ModelOptions o = automatic();
  o.context = 4096, o.sessions = 4, o.chunk = 64;
  const TestModel whole = make_model(kDemo, kFast, o);
  ASSERT_TRUE(whole.model != nullptr && whole.model->mtp() != nullptr);
  const MemoryNeed& need = whole.model->memory().at(0);
  o.host_bytes = need.weights + need.states() - 1;
  const TestModel t = make_model(kDemo, kFast, o);
  ASSERT_NE(t.model, nullptr);
  EXPECT_EQ(t.model->mtp(), nullptr);
  EXPECT_THAT(t.model->mtp_left_out(), HasSubstr("the states of 4 sessions of 4096 tokens take"));
  EXPECT_LT(t.model->memory().at(0).states(), need.states());
  o.mtp_if_it_fits = false;
  auto selection = t.registry->select(kFast);
  ASSERT_TRUE(selection.ok());
  auto program = Program::load(Os::real(), kDemo);
  ASSERT_TRUE(program.ok());
  const auto refused = Model::create(std::make_shared<const Program>(std::move(*program)),
                                     std::move(selection->devices), selection->policy, o);
  EXPECT_EQ(refused.status().code(), Code::out_of_device_memory);
}

// What turns out as memory is allocated: the layer goes, and all that is its own; the other weights stay.
TEST(Drafters, NoLayerWhereMemoryRunsOut) {
  ModelOptions o = automatic();
  o.device_sampling = false;  // else steps run ahead
  o.chunk = 64;
  uint64_t loaded = 0;
  o.progress = [&](uint64_t, uint64_t) { return ++loaded > 0; };
  ModelOptions plain = o;
  plain.mtp = plain.hidden = false;
  const auto made = [&](const ModelOptions& options, uint64_t memory = 0) {
    loaded = 0;
    return late_model(options, memory);
  };
  const uint64_t before = device_memory().now;
  const auto bytes = [&] { return device_memory().now - before; };
  TestModel t = made(plain);
  ASSERT_NE(t.model, nullptr);
  const uint64_t least = bytes();
  t = {};
  t = made(o);
  ASSERT_TRUE(t.model != nullptr && t.model->mtp() != nullptr);
  const uint64_t most = bytes(), weights = loaded;
  t = {};
  t = made(o, most - 1);
  ASSERT_NE(t.model, nullptr);
  EXPECT_EQ(t.model->mtp(), nullptr);
  EXPECT_THAT(t.model->mtp_left_out(), HasSubstr("there is no more memory"));
  EXPECT_EQ(loaded, weights) << "no weight was loaded twice";
  EXPECT_LT(bytes(), (least + 3 * most) / 4) << "weights, states and steps of the layer were freed";
  auto session = *t.model->session();
  EXPECT_TRUE(session->feed(kShortPrompt).ok());
  std::printf("late: %llu bytes without the layer, %llu with it, %llu where it was left out\n",
              static_cast<unsigned long long>(least), static_cast<unsigned long long>(most),
              static_cast<unsigned long long>(bytes()));
}

}  // namespace
}  // namespace switchyard
