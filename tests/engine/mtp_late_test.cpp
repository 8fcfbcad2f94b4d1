// SPDX-License-Identifier: Apache-2.0
// The multi-token prediction layer on a device that works in its own time, and draws its guesses: the same guesses as
// on a synchronous one, also where what the layer has begun to read ahead is of no use.
#include <algorithm>
#include <cstring>

#include "core/engine/mtp_drafter.h"
#include "core/engine/prepare.h"
#include "tests/engine/fixture.h"
#include "tests/engine/fixtures/late.h"
#include "tests/support/drafted.h"

namespace switchyard {
namespace {

// The request again, with two guesses of the session's layer in every step.
Request guessing(const Request& r, Session& session, Drawn* drawn) {
  Request as = request_of(r.prompt, r.sampling, r.max_tokens, drawn);
  as.drafters = {std::make_shared<MtpDrafter>(session, 2)};
  as.draft_always = true;
  return as;
}

// The layer guesses; the first steps verify guesses from elsewhere in place of its own.
class ReplacingDrafter final : public ForwardingDrafter {
 public:
  ReplacingDrafter(Session& session, std::shared_ptr<Drafter> known)
      : ForwardingDrafter(std::make_shared<MtpDrafter>(session, 2)), session_(session), known_(std::move(known)) {}
  void saw(std::span<const int32_t> ids) override {
    inner_->saw(ids), known_->saw(ids);
    if (!ids.empty()) last_ = ids.back();
  }
  Status propose(uint32_t most, Guesses& guesses) override {
    if (++steps_ > kReplaced) return inner_->propose(most, guesses);
    const auto rows = guesses.device_rows(std::min(most, inner_->most_drafts()));
    if (rows.empty()) return {};
    SWY_TRY(session_.submit_drafts(last_, rows).status());
    return known_->propose(static_cast<uint32_t>(rows.size()), guesses);
  }

 private:
  Session& session_;
  std::shared_ptr<Drafter> known_;
  int32_t last_ = -1;
  static constexpr uint32_t kReplaced = 6;
  uint32_t steps_ = 0;
};

// Counts heads that were submitted apart: those of guesses that go on from what was read ahead.
struct HeadsApart final : StepObserver {
  uint64_t heads = 0;
  void stretch(const char*, uint64_t, uint64_t) override {}
  void submitting(const Plan&, const PlanSegment& segment) override { heads += segment.head ? 1 : 0; }
  void submitted(const Plan&, const PlanSegment&, uint64_t, uint64_t) override {}
  void stepped() override {}
};

// On a device that works in its own time, nothing waits between the layer's guesses and the step that verifies them.
TEST(Mtp, GuessesOfADeviceThatRunsBehind) {
  const ModelOptions options = with_layer(drafting(2));
  const TestModel sync = make_model(kDemo, "reference", options), without = make_model(kDemo, "reference", drafting(2)),
                  late = make_model(kDemo, "late", options, SWITCHYARD_FIXTURES);
  ASSERT_TRUE(without.model != nullptr && sync.model != nullptr && late.model != nullptr &&
              late.model->mtp() != nullptr);
  ASSERT_TRUE(late.model->mtp()->draws());
  uint64_t accepted = 0;
  for (const float temperature : {0.0f, 0.7f}) {
    const Request r = request_of(kShortPrompt, {.temperature = temperature, .seed = 3}, 20);
    auto here = *sync.model->session(), there = *late.model->session(), plain = *without.model->session();
    const Drafted a = run_drafted(*here, r, std::make_shared<MtpDrafter>(*here)),
                  b = run_drafted(*there, r, std::make_shared<MtpDrafter>(*there)), c = run_drafted(*plain, r, nullptr);
    EXPECT_TRUE(a.drawn == b.drawn && b.drawn == c.drawn) << temperature;
    const auto trunk = [&](const Drafted& d) { return trunk_of(d.states, c.states.size()); };
    EXPECT_TRUE(trunk(a) == trunk(c) && trunk(b) == trunk(c)) << temperature;
    EXPECT_EQ(a.outcome.drafts.drafted, b.outcome.drafts.drafted) << temperature;
    EXPECT_EQ(a.outcome.drafts.accepted, b.outcome.drafts.accepted) << temperature;
    accepted += b.outcome.drafts.all_accepted();
  }
  EXPECT_GT(accepted, 0u);
}

// A step's guesses are one list. Of the rows that are read ahead only those that the device finds to be the last ones
// that stand have a mixture.
TEST(Mtp, GuessesAreOneList) {
  const ModelOptions options = with_layer(drafting(1));
  const TestModel sync = make_model(kDemo, "reference", options),
                  late = make_model(kDemo, "late", options, SWITCHYARD_FIXTURES);
  ASSERT_TRUE(sync.model != nullptr && late.model != nullptr);
  const Status prepared = prepare_decoding(*late.model, {});
  ASSERT_TRUE(prepared.ok()) << prepared.message();
  const PlanDevice& device = late.model->mtp()->planner().devices()[0];
  const auto& report = *static_cast<const LateReport*>(device.api->get_extension(device.handle, kLateReport));
  for (const float temperature : {0.0f, 0.7f}) {
    const Request r = request_of(kShortPrompt, {.temperature = temperature, .seed = 3}, 40);
    const Drawn expected = draw_alone(*sync.model, r, SamplingPath::fused);
    for (const uint32_t most : {1u, 2u, 3u, 5u}) {
      SCOPED_TRACE(most);
      const uint64_t joined = report.joined, spoiled = report.spoiled;
      const auto run = [&](const TestModel& m) {
        auto session = *m.model->session();
        return run_drafted(*session, r, std::make_shared<MtpDrafter>(*session, most));
      };
      const Drafted a = run(sync), b = run(late);
      EXPECT_TRUE(a.drawn == expected && b.drawn == expected);
      EXPECT_EQ(a.outcome.drafts.drafted, b.outcome.drafts.drafted);
      EXPECT_EQ(a.outcome.drafts.accepted, b.outcome.drafts.accepted);
      EXPECT_GT(b.outcome.drafts.all_accepted(), 0u);
      EXPECT_GE(report.joined - joined, most > 1 ? b.outcome.drafts.steps - 2 : 0);  // the last steps have fewer
      EXPECT_GE(report.spoiled - spoiled, b.outcome.drafts.steps - 1);
    }
  }
  EXPECT_EQ(report.violations, 0u);
}

// The layer reads the rows of a step ahead whatever guesses the step has, if its states are there for all before.
TEST(Mtp, ReadsAheadOfOtherGuesses) {
  const ModelOptions options = with_layer(drafting(1));
  const TestModel sync = make_model(kDemo, "reference", options),
                  late = make_model(kDemo, "late", options, SWITCHYARD_FIXTURES);
  ASSERT_TRUE(sync.model != nullptr && late.model != nullptr);
  const Request r = request_of(kShortPrompt, {.temperature = 0.7f, .seed = 3}, 40);
  const Drawn expected = draw_alone(*sync.model, r, SamplingPath::fused);
  HeadsApart counts;
  late.model->mtp()->observe(&counts);
  for (const Guess g : {Guess::right, Guess::alternating, Guess::wrong}) {
    SCOPED_TRACE(guess_name(g));
    const auto run = [&](const TestModel& t) {
      auto session = *t.model->session();
      const auto known = std::make_shared<KnowingDrafter>(whole_of(r, expected), g, t.model->vocab(), 5);
      return run_drafted(*session, r, std::make_shared<ReplacingDrafter>(*session, known));
    };
    const uint64_t before = counts.heads;
    const Drafted a = run(sync), b = run(late);
    EXPECT_TRUE(a.drawn == expected && b.drawn == expected);
    EXPECT_EQ(a.outcome.drafts.drafted, b.outcome.drafts.drafted);
    EXPECT_EQ(a.outcome.drafts.accepted, b.outcome.drafts.accepted);
    EXPECT_GT(b.outcome.drafts.all_accepted(), 0u);
    EXPECT_EQ(counts.heads - before, b.outcome.drafts.steps - 1);  // all but the first
  }
  late.model->mtp()->observe(nullptr);
}

// Where another sequence's rows come between the layer's reading ahead and its guess, it reads again.
TEST(Mtp, GuessesBesideOthersOfADeviceThatRunsBehind) {
  const ModelOptions options = with_layer(drafting(2));
  const auto run = [&](const TestModel& t) {
    Batch batch(*t.model);
    std::vector<std::unique_ptr<Session>> sessions;
    std::vector<Batch::Id> ids;
    for (uint64_t i = 0; i < 2; ++i) {
      sessions.push_back(*t.model->session());
      Request r = request_of(kShortPrompt, {.temperature = 0.5f, .seed = i}, i == 0 ? 30 : 12);
      r.drafters = {std::make_shared<MtpDrafter>(*sessions.back(), 2)};
      r.draft_always = true;
      ids.push_back(*batch.add(*sessions.back(), std::move(r)));
      for (int step = 0; step < 4; ++step) EXPECT_TRUE(batch.step().ok());
    }
    run_all(batch);
    std::vector<std::pair<std::vector<int32_t>, DraftCounts>> found;
    for (const Batch::Id id : ids) found.emplace_back(batch.outcome(id)->ids, batch.outcome(id)->drafts);
    return found;
  };
  const TestModel sync = make_model(kDemo, "reference", options),
                  late = make_model(kDemo, "late", options, SWITCHYARD_FIXTURES);
  ASSERT_TRUE(sync.model != nullptr && late.model != nullptr);
  const auto expected = run(sync), found = run(late);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(found[i].first, expected[i].first) << i;
    EXPECT_EQ(found[i].second.drafted, expected[i].second.drafted) << i;
    EXPECT_EQ(found[i].second.accepted, expected[i].second.accepted) << i;
  }
}

// Whichever list is refused, the layer's reading ahead too, its step is collected, and the session can go on.
TEST(Mtp, ARefusedListOfADeviceThatRunsBehind) {
  const ModelOptions options = with_layer(drafting(1));
  const TestModel without = make_model(kDemo, "reference", drafting(1));
  ASSERT_NE(without.model, nullptr);
  const Request r = request_of(kShortPrompt, {.seed = 3}, 12);
  const Drawn expected = draw_alone(*without.model, r, SamplingPath::fused);
  for (const char* list : {"2", "3", "4", "5", "6", "7"}) {
    SCOPED_TRACE(list);
    const TestModel late =
        make_model(kDemo, "late", options, SWITCHYARD_FIXTURES, {{"late", {{"refuse", list}, {"delay", "300"}}}});
    ASSERT_NE(late.model, nullptr);
    auto session = *late.model->session();
    for (const bool again : {false, true}) {
      Batch batch(*late.model);
      Drawn drawn;
      const auto id = batch.add(*session, guessing(r, *session, &drawn));
      ASSERT_TRUE(id.ok()) << id.status().message();
      EXPECT_EQ(batch.run(*id).ok() && batch.outcome(*id)->status.ok(), again);
      EXPECT_TRUE(drawn == expected || !again);
      EXPECT_EQ(late.model->runner().in_flight(), 0u);
      if (!again) session->reset();
    }
  }
}

struct PlansMade final : StepObserver {
  uint64_t made = 0;
  void stretch(const char* what, uint64_t, uint64_t) override { made += std::strcmp(what, "plan and record") == 0; }
  void submitting(const Plan&, const PlanSegment&) override {}
  void submitted(const Plan&, const PlanSegment&, uint64_t, uint64_t) override {}
  void stepped() override {}
};

// Whether the device draws the guesses or the host, the layer's lists are made in advance.
TEST(Mtp, NothingIsPlannedForGuesses) {
  const TestModel late = make_model(kDemo, "late", with_layer(drafting(1)), SWITCHYARD_FIXTURES);
  ASSERT_NE(late.model, nullptr);
  const Status prepared = prepare_decoding(*late.model, {});
  ASSERT_TRUE(prepared.ok()) << prepared.message();
  PlansMade plans;
  late.model->mtp()->observe(&plans);
  for (const SamplingPath path : {SamplingPath::fused, SamplingPath::logits}) {
    Request r = request_of(kShortPrompt, {.seed = 3}, 10);
    r.path = path;
    auto session = *late.model->session();
    const Drafted d = run_drafted(*session, r, std::make_shared<MtpDrafter>(*session, 2));
    EXPECT_GT(d.outcome.drafts.all_drafted(), 4u) << path_name(path);
    EXPECT_EQ(plans.made, 0u) << path_name(path);
  }
  late.model->mtp()->observe(nullptr);
}

// What the layer has begun to read ahead is read again then.
TEST(Mtp, ListsMayBeForgottenBetweenSteps) {
  const TestModel without = make_model(kDemo, "reference", drafting(1)),
                  late = make_model(kDemo, "late", with_layer(drafting(1)), SWITCHYARD_FIXTURES);
  ASSERT_TRUE(without.model != nullptr && late.model != nullptr);
  const Request r = request_of(kShortPrompt, {.seed = 3}, 20);
  const Drawn expected = draw_alone(*without.model, r, SamplingPath::fused);
  auto session = *late.model->session();
  Batch batch(*late.model);
  Drawn drawn;
  const auto id = batch.add(*session, guessing(r, *session, &drawn));
  ASSERT_TRUE(id.ok()) << id.status().message();
  while (batch.running(*id)) {
    const auto stepped = batch.step();
    ASSERT_TRUE(stepped.ok()) << stepped.status().message();
    late.model->forget_lists();
  }
  EXPECT_TRUE(batch.outcome(*id)->status.ok()) << batch.outcome(*id)->status.message();
  EXPECT_TRUE(drawn == expected);
}

// A sequence with the device's guesses has no memory for its rows, and the step has another one's, whose guesses are
// another drafter's and may end while its masks are made.
TEST(Mtp, ReadsAheadOnlyWhatItGuessed) {
  const TestModel without = make_model(kDemo, "reference", drafting(2));
  ASSERT_NE(without.model, nullptr);
  std::mt19937 random(36);
  const Request long_one = request_of(random_ids(random, 58, without.model->vocab()), {.seed = 3}, 20),
                short_one = request_of(kShortPrompt, {.seed = 4}, 40);
  const Drawn expected = draw_alone(*without.model, long_one, SamplingPath::fused),
              beside = draw_alone(*without.model, short_one, SamplingPath::logits);
  ModelOptions o = with_layer(drafting(2));
  TestModel late = make_model(kDemo, "late", o, SWITCHYARD_FIXTURES);
  ASSERT_NE(late.model, nullptr);
  const StatePool& states = late.model->states();
  o.state_bytes = states.slots().count() * states.slot_bytes() + 2 * states.page_bytes();
  late = {};
  late = make_model(kDemo, "late", o, SWITCHYARD_FIXTURES);
  ASSERT_NE(late.model, nullptr);
  ASSERT_EQ(late.model->states().pages().count(), 2u);
  auto first = *late.model->session(), second = *late.model->session();
  BatchOptions waits;
  waits.wait_for_memory = true;
  Batch batch(*late.model, waits);
  Drawn drawn, drawn_beside;
  Request a = request_of(long_one.prompt, long_one.sampling, long_one.max_tokens, &drawn),
          b = request_of(short_one.prompt, short_one.sampling, short_one.max_tokens, &drawn_beside);
  a.drafters = {std::make_shared<MtpDrafter>(*first, 2)};
  b.drafters = {std::make_shared<LimitedDrafter>(
      std::make_shared<KnowingDrafter>(whole_of(short_one, beside), Guess::alternating, late.model->vocab(), 1), 2)};
  a.draft_always = b.draft_always = true;
  b.path = SamplingPath::logits;
  Batch::Id id = 0;
  b.mask = [&](std::span<const int32_t> before, std::span<uint32_t> mask) {
    std::fill(mask.begin(), mask.end(), UINT32_MAX);
    if (before.size() >= 20) batch.cancel(id);
  };
  ASSERT_TRUE(batch.add(*first, std::move(a)).ok());
  id = *batch.add(*second, std::move(b));
  uint32_t starved = 0;
  while (batch.running(id)) {
    const auto stepped = batch.step();
    ASSERT_TRUE(stepped.ok()) << stepped.status().message();
    starved += batch.starved().empty() ? 0 : 1;
  }
  EXPECT_GT(starved, 1u);
  ASSERT_GE(drawn_beside.ids.size(), 15u);
  EXPECT_TRUE(std::equal(drawn_beside.ids.begin(), drawn_beside.ids.end(), beside.ids.begin()));
  second.reset();
  run_all(batch);
  EXPECT_TRUE(drawn == expected);
}

}  // namespace
}  // namespace switchyard
