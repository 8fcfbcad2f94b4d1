// SPDX-License-Identifier: Apache-2.0
// Drafted tokens change nothing: the same tokens and states as without, whatever the drafts are, on models with states
// that cannot be cut back (the demo) and on models whose states are all paged.
#include <gmock/gmock.h>

#include "core/generate/text_generation.h"
#include "core/import/convert.h"
#include "tests/engine/fixture.h"
#include "tests/support/drafted.h"
#include "tests/support/files.h"

namespace switchyard {
namespace {

TestModel tiny(const std::string& family, const std::string& backend, const ModelOptions& options) {
  const testing::TemporaryFolder out;
  ConvertOptions convert_options;
  convert_options.source = SWITCHYARD_TEST_DATA "/tiny/families/" + family;
  convert_options.output = out.path("model.swy");
  const auto report = convert(Os::real(), convert_options);
  EXPECT_TRUE(report.ok()) << report.status().message();
  ModelOptions o = options;
  o.context = 128;
  return make_model(convert_options.output, backend, o);
}

// Rows that stand are applied by the next step, or computed again.
class DraftRows : public ::testing::TestWithParam<bool> {
 protected:
  static bool pending() { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Ways, DraftRows, ::testing::Bool(),
                         [](const auto& way) { return way.param ? "Pending" : "FedAgain"; });

TEST_P(DraftRows, ChangeNothingWithRandomSettings) {
  for (const char* backend : {"reference", kFast}) {
    const bool fast = backend == std::string(kFast);
    const TestModel t = make_model(kDemo, backend, drafting(1, 7, pending()));
    ASSERT_NE(t.model, nullptr);
    ASSERT_EQ(t.model->pending_rows(), pending() ? 8u : 0u);
    EXPECT_EQ(t.model->states().slots().count(), pending() ? 1u : 2u);
    std::mt19937 random(26);
    uint64_t accepted = 0;
    for (int i = 0; i < (fast ? 5 : 1); ++i) {
      const Request r = random_request(random, t.model->vocab(), fast ? 24 : 10);
      accepted += expect_same_with_drafts(*t.model, r, fmt::format("{}, setting {}", backend, i));
    }
    EXPECT_GT(accepted, 0u);
    EXPECT_EQ(t.model->states().slots().free(), t.model->states().slots().count());
    EXPECT_EQ(t.model->states().pages().free(), t.model->states().pages().count());
  }
}

// A device that samples draws every row, or gives candidates of each, so no logits come to the host; but with penalties
// and with masks.
TEST_P(DraftRows, AreDrawnByTheDevice) {
  for (const char* backend : {kFast, "late"}) {  // the latter with reference's kernels
    const bool fast = backend == std::string(kFast);
    const TestModel t = make_model(kDemo, backend, drafting(1, 7, pending()), SWITCHYARD_FIXTURES);
    ASSERT_NE(t.model, nullptr);
    const uint64_t row = t.model->vocab() * sizeof(float);
    const Request plain = request_of(kShortPrompt, {.temperature = 1.1f, .top_p = 0.9f, .top_k = 40, .seed = 3}, 12);
    Request biased = plain, listed = plain, penalised = plain, masked = plain;
    biased.sampling.biases = {{7, 2.5f}, {90, -1}};
    listed.path = SamplingPath::candidates;
    penalised.sampling.presence_penalty = 0.5f;
    masked.mask = allow_a_third;
    const struct {
      const char* name;
      const Request& request;
      bool each_row;
    } cases[] = {{"plain", plain, true},
                 {"biased", biased, true},
                 {"candidates", listed, true},
                 {"penalties", penalised, false},
                 {"masks", masked, false}};
    for (const auto& c : cases) {
      auto session = *t.model->session();
      const Drafted without = run_drafted(*session, c.request, nullptr);
      ASSERT_EQ(without.outcome.path.path, c.request.path.value_or(SamplingPath::fused)) << backend << ", " << c.name;
      const std::vector<int32_t> whole = whole_of(c.request, without.drawn);
      for (const Guess g : kGuesses) {
        if (!fast && g != Guess::alternating) continue;
        session->reset();
        const Drafted with =
            run_drafted(*session, c.request, std::make_shared<KnowingDrafter>(whole, g, t.model->vocab(), 4));
        EXPECT_TRUE(with.drawn == without.drawn) << backend << ", " << c.name << ", " << guess_name(g);
        EXPECT_TRUE(with.states == without.states) << backend << ", " << c.name << ", " << guess_name(g);
        if (c.request.path) continue;
        EXPECT_EQ(with.outcome.read_bytes < row, c.each_row) << backend << ", " << c.name << ", " << guess_name(g);
      }
    }
  }
}

// Where few tokens are allowed, each is drawn again soon, and what is drawn depends on how often the drafts before were
// counted.
TEST_P(DraftRows, AreCountedForThePenalties) {
  const TestModel t = make_model(kDemo, kFast, drafting(1, 7, pending()));
  ASSERT_NE(t.model, nullptr);
  for (uint64_t seed = 0; seed < 3; ++seed) {
    Request r = request_of(kShortPrompt, {.temperature = 0.9f, .seed = seed}, 40);
    r.sampling.repetition_penalty = seed == 0 ? 1.3f : 1.0f;
    r.sampling.presence_penalty = seed == 1 ? 1.0f : 0.0f;
    r.sampling.frequency_penalty = seed == 2 ? 0.7f : 0.0f;
    r.mask = [](std::span<const int32_t>, std::span<uint32_t> mask) { mask[3] = 0x1f; };
    EXPECT_GT(expect_same_with_drafts(*t.model, r, fmt::format("penalty {}", seed)), 0u);
  }
}

// Forks, states that are kept or saved, and a prompt, each after a step with drafts.
TEST(Draft, KeptStatesHaveTheRowsThatStand) {
  const TestModel t = make_model(kDemo, kFast, drafting(3));
  ASSERT_NE(t.model, nullptr);
  ASSERT_GT(t.model->pending_rows(), 0u);
  const Request r = request_of(kShortPrompt, {.temperature = 1.2f, .seed = 9}, 40);
  auto session = *t.model->session();
  const std::vector<int32_t> whole = whole_of(r, run_drafted(*session, r, nullptr).drawn);
  for (uint32_t n = 2; n < 20; ++n) {
    const auto seen = std::span(whole).first(kShortPrompt.size() + n - 1), more = std::span(whole).last(10);
    session->reset();
    ASSERT_TRUE(session->feed(seen).ok());
    const std::string expected = *session->snapshot();
    ASSERT_TRUE(session->feed(more).ok());
    const std::string later = *session->snapshot();
    session->reset();
    Batch batch(*t.model);
    Request drafted = r;
    drafted.max_tokens = n;
    drafted.drafters = {std::make_shared<KnowingDrafter>(whole, Guess::alternating, t.model->vocab(), 1)};
    drafted.draft_always = true;
    ASSERT_TRUE(batch.run(*batch.add(*session, std::move(drafted))).ok());
    ASSERT_EQ(session->position(), seen.size());
    auto fork = *session->fork(), resumed = *t.model->session();
    ASSERT_TRUE(fork->feed(more).ok());
    EXPECT_TRUE(*fork->snapshot() == later) << n;
    if (n % 4 == 3) {  // requests of an odd length end with pending rows
      EXPECT_TRUE(*session->snapshot() == expected) << n << ", before anything else applies its rows";
    }
    const auto kept = *session->keep();
    EXPECT_TRUE(*kept->snapshot() == expected) << n;
    ASSERT_TRUE(resumed->resume(*kept).ok());
    EXPECT_TRUE(*resumed->snapshot() == expected) << n;
    EXPECT_TRUE(*session->snapshot() == expected) << n;
    ASSERT_TRUE(session->feed(more).ok());
    EXPECT_TRUE(*session->snapshot() == later) << n;
  }
}

TEST(Draft, CutsPagedStatesBack) {
  for (const char* family : {"qwen3_moe", "gpt_oss"}) {
    const TestModel t = tiny(family, kFast, drafting(1));
    ASSERT_NE(t.model, nullptr);
    ASSERT_FALSE(t.model->states().has_slotted());
    std::mt19937 random(27);
    for (int i = 0; i < 6; ++i) {
      const Request r = random_request(random, t.model->vocab(), 30);
      expect_same_with_drafts(*t.model, r, fmt::format("{}, setting {}", family, i));
    }
  }
}

// The rows that stand are fed once more where states can neither be cut back nor have pending rows, and not otherwise.
void expect_no_row_again(const TestModel& t) {
  ASSERT_NE(t.model, nullptr);
  ASSERT_FALSE(t.model->feeds_again());
  auto session = *t.model->session();
  const Request r = request_of({1, 2, 3}, {.seed = 1}, 12);
  const std::vector<int32_t> whole = whole_of(r, run_drafted(*session, r, nullptr).drawn);
  session->reset();
  Batch batch(*t.model);
  Request drafted = r;
  drafted.drafters = {std::make_shared<KnowingDrafter>(whole, Guess::alternating, t.model->vocab(), 1)};
  drafted.draft_always = true;
  const auto id = batch.add(*session, std::move(drafted));
  ASSERT_TRUE(id.ok());
  while (batch.running(*id)) {
    ASSERT_TRUE(batch.step().ok());
    EXPECT_EQ(session->position() + 1, 3 + batch.outcome(*id)->ids.size());
  }
}

TEST(Draft, RowsThatStandAreNotComputedAgain) {
  expect_no_row_again(tiny("qwen3_moe", kFast, drafting(1)));
  expect_no_row_again(make_model(kDemo, kFast, drafting(1)));
}

// Every place of an accepted run is one where a request can end.
TEST(Draft, EndsInsideOfAnAcceptedRun) {
  const TestModel t = make_model(kDemo, kFast, drafting(2));
  ASSERT_NE(t.model, nullptr);
  auto session = *t.model->session();
  std::mt19937 random(28);
  const Request all = request_of(random_ids(random, 20, t.model->vocab()), {.temperature = 1.5f, .seed = 4}, 30);
  const Drawn whole = run_drafted(*session, all, nullptr).drawn;
  for (const uint32_t n : {1u, 2u, 3u, 7u, 8u, 9u, 13u}) {
    Request by_length = all, by_stop = all;
    by_length.max_tokens = n;
    by_stop.sampling.stop_ids = {whole.ids[n - 1]};
    expect_same_with_drafts(*t.model, by_length, fmt::format("max_tokens {}", n));
    expect_same_with_drafts(*t.model, by_stop, fmt::format("stop id {}", n));
  }
}

// As a stop string does, or a pattern that is complete.
TEST(Draft, CallbacksEndARequestInsideOfAnAcceptedRun) {
  const TestModel t = make_model(kDemo, kFast, drafting(2));
  ASSERT_NE(t.model, nullptr);
  const Request all = request_of(kShortPrompt, {.temperature = 1.2f, .seed = 9}, 30);
  auto session = *t.model->session();
  const std::vector<int32_t> whole = whole_of(all, run_drafted(*session, all, nullptr).drawn);
  for (const bool cancels : {false, true}) {
    for (uint32_t n = 1; n < 20; ++n) {
      session->reset();
      Batch batch(*t.model);
      Request r = all;
      std::vector<int32_t> drawn;
      Batch::Id id = 0;
      r.on_token = [&](const TokenEvent& e) {
        EXPECT_EQ(e.position, kShortPrompt.size() + drawn.size());
        drawn.push_back(e.id);
        if (cancels && drawn.size() == n) batch.cancel(id);
        return cancels || drawn.size() < n;
      };
      r.drafters = {std::make_shared<KnowingDrafter>(whole, Guess::right, t.model->vocab(), 1)};
      r.draft_always = true;
      id = *batch.add(*session, std::move(r));
      ASSERT_TRUE(batch.run(id).ok());
      EXPECT_EQ(batch.outcome(id)->stopped, cancels ? StopReason::cancelled : StopReason::callback);
      EXPECT_EQ(drawn,
                std::vector<int32_t>(whole.begin() + kShortPrompt.size(), whole.begin() + kShortPrompt.size() + n));
      EXPECT_EQ(batch.take(id)->ids, drawn);
      // What the session has seen is a beginning of the text.
      ASSERT_LT(session->position(), kShortPrompt.size() + n);
      const auto there = states_after(*session, std::span(whole).first(kShortPrompt.size() + n - 1));
      auto fresh = *t.model->session();
      EXPECT_TRUE(there == states_after(*fresh, std::span(whole).first(kShortPrompt.size() + n - 1))) << n;
    }
  }
}

TEST(Draft, TheContextEndsARequest) {
  ModelOptions options = drafting(1);
  options.context = 64;
  const TestModel t = make_model(kDemo, kFast, options);
  ASSERT_NE(t.model, nullptr);
  for (uint32_t prompt = 40; prompt < 64; prompt += 3) {
    const Request r = request_of(std::vector<int32_t>(prompt, 7), {.seed = 1}, 100);
    auto session = *t.model->session();
    EXPECT_EQ(run_drafted(*session, r, nullptr).outcome.stopped, StopReason::context);
    session.reset();
    expect_same_with_drafts(*t.model, r, fmt::format("a prompt of {}", prompt));
  }
}

// A request on a fork, and one on the session that it was forked from, each with drafts.
TEST(Draft, ForksStayApart) {
  const TestModel t = make_model(kDemo, kFast, drafting(3));
  ASSERT_NE(t.model, nullptr);
  std::mt19937 random(29);
  const std::vector<int32_t> seen = random_ids(random, 70, t.model->vocab());
  auto root = *t.model->session();
  ASSERT_TRUE(root->feed(seen).ok());
  std::vector<Request> requests;
  for (int i = 0; i < 2; ++i) {
    requests.push_back(
        request_of(random_ids(random, 3, t.model->vocab()), random_params(random, t.model->vocab()), 30));
    requests.back().history = seen;
  }
  std::vector<Drafted> plain;
  for (const Request& r : requests) {
    auto fork = *root->fork();
    plain.push_back(run_drafted(*fork, r, nullptr));
  }
  for (const Guess g : kGuesses) {
    auto one = *root->fork();
    auto two = *root->fork();
    Session* const sessions[] = {one.get(), two.get()};
    Drawn drawn[2];
    Batch batch(*t.model);
    for (size_t i = 0; i < 2; ++i) {
      Request r = request_of(requests[i].prompt, requests[i].sampling, 30, &drawn[i]);
      r.history = seen;
      r.drafters = {std::make_shared<KnowingDrafter>(whole_of(requests[i], plain[i].drawn), g, t.model->vocab(), 3)};
      r.draft_always = true;
      ASSERT_TRUE(batch.add(*sessions[i], std::move(r)).ok());
    }
    ASSERT_NO_FATAL_FAILURE(run_all(batch));
    for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(drawn[i] == plain[i].drawn) << guess_name(g) << ", fork " << i;
  }
}

// Requests with drafts beside others without, prompts that come meanwhile, and cancels at any time: as each draws
// alone.
TEST_P(DraftRows, MixWithOtherRequests) {
  constexpr uint32_t kSessions = 5, kRequests = 30;
  const TestModel t = make_model(kDemo, kFast, drafting(kSessions, 7, pending()));
  ASSERT_NE(t.model, nullptr);
  std::mt19937 random(30);
  std::vector<Request> requests;
  std::vector<Drawn> expected;
  for (uint32_t i = 0; i < kRequests; ++i) {
    requests.push_back(random_request(random, t.model->vocab(), 5 + random() % 20));
    auto session = *t.model->session();
    expected.push_back(run_drafted(*session, requests.back(), nullptr).drawn);
  }
  struct Runs {
    std::unique_ptr<Session> session;
    size_t request;
    Batch::Id id = 0;
    Drawn drawn = {};
  };
  std::vector<std::unique_ptr<Runs>> running;
  Batch batch(*t.model, {.prompt_rows = 24});
  uint64_t accepted = 0, whole = 0;
  for (size_t next = 0; next < kRequests || !running.empty();) {
    while (next < kRequests && running.size() < kSessions) {
      Runs& one = *running.emplace_back(std::make_unique<Runs>(Runs{*t.model->session(), next}));
      const Request& as = requests[next];
      Request r = request_of(as.prompt, as.sampling, as.max_tokens, &one.drawn);
      r.mask = as.mask;
      r.draft_always = true;
      if (next % 3 != 0) {
        const Guess g = kGuesses[next % 4];
        r.drafters = {std::make_shared<KnowingDrafter>(whole_of(as, expected[next]), g, t.model->vocab(), 3)};
      }
      one.id = *batch.add(*one.session, std::move(r));
      ++next;
    }
    ASSERT_TRUE(batch.step().ok());
    if (random() % 16 == 0) {
      batch.pause(running[0]->id, true);
      ASSERT_TRUE(batch.step().ok());
      batch.pause(running[0]->id, false);
    }
    if (random() % 8 == 0) batch.cancel(running[random() % running.size()]->id);
    std::erase_if(running, [&](const std::unique_ptr<Runs>& one) {
      if (batch.running(one->id)) return false;
      const Outcome o = *batch.take(one->id);
      EXPECT_TRUE(o.status.ok()) << o.status.message();
      accepted += o.drafts.all_accepted();
      Drawn want = expected[one->request];
      if (o.stopped == StopReason::cancelled) {
        want.ids.resize(one->drawn.ids.size());
        EXPECT_EQ(one->drawn.ids, want.ids) << one->request;
      } else {
        ++whole;
        EXPECT_TRUE(one->drawn == want) << one->request;
      }
      return true;
    });
  }
  EXPECT_GT(accepted, 5u);
  EXPECT_GT(whole, 5u);
  EXPECT_EQ(t.model->states().slots().free(), t.model->states().slots().count());
  EXPECT_EQ(t.model->states().pages().free(), t.model->states().pages().count());
}

// On a device whose steps run ahead: a sequence waits for its tokens where it may have guesses, and runs ahead where it
// has none.
TEST(Draft, OnADeviceThatRunsAhead) {
  const TestModel t = make_model(kDemo, "late", drafting(2), SWITCHYARD_FIXTURES, {{"late", {{"delay", "100"}}}});
  ASSERT_NE(t.model, nullptr);
  ASSERT_TRUE(t.model->runner().runs_ahead());
  std::mt19937 random(31);
  for (int i = 0; i < 3; ++i) {
    const Request r = random_request(random, t.model->vocab(), 20);
    EXPECT_GT(expect_same_with_drafts(*t.model, r, fmt::format("setting {}", i)), 0u);
  }
  // Two requests, one of which never has a guess.
  const Request one = request_of(kShortPrompt, {.seed = 1}, 30), two = request_of({8, 9}, {.seed = 2}, 30);
  auto first = *t.model->session(), second = *t.model->session();
  const Drawn alone = run_drafted(*first, one, nullptr).drawn, other = run_drafted(*second, two, nullptr).drawn;
  first->reset(), second->reset();
  Drawn drawn, others;
  Batch batch(*t.model);
  Request a = request_of(one.prompt, one.sampling, 30, &drawn), b = request_of(two.prompt, two.sampling, 30, &others);
  a.drafters = {std::make_shared<KnowingDrafter>(whole_of(one, alone), Guess::random, t.model->vocab(), 1)};
  b.drafters = {std::make_shared<NgramDrafter>()};
  a.draft_always = b.draft_always = true;
  ASSERT_TRUE(batch.add(*first, std::move(a)).ok() && batch.add(*second, std::move(b)).ok());
  ASSERT_NO_FATAL_FAILURE(run_all(batch));
  EXPECT_TRUE(drawn == alone);
  EXPECT_TRUE(others == other);
}

// Without memory for a second slot, or for further pages, a step has no drafts. Pending rows need no second slot.
TEST_P(DraftRows, GoOnWithoutMemoryForDrafts) {
  ModelOptions options = drafting(1, 7, pending());
  options.checkpoints = 1;
  const TestModel roomy = make_model(kDemo, kFast, options);
  ASSERT_NE(roomy.model, nullptr);
  const Request r = request_of(kShortPrompt, {.seed = 3}, 40);
  auto first = *roomy.model->session();
  const std::vector<int32_t> whole = whole_of(r, run_drafted(*first, r, nullptr).drawn);
  first->reset();
  // The checkpoints of a long text take the slots.
  std::vector<std::unique_ptr<StateCheckpoint>> kept;
  ASSERT_TRUE(first->feed(kShortPrompt).ok());
  while (roomy.model->states().slots().free() > 0) {
    kept.push_back(*first->keep());
    const int32_t id = 5;
    ASSERT_TRUE(first->feed({&id, 1}).ok());
  }
  first->reset();
  kept.resize(roomy.model->states().slots().count() - 1);
  ASSERT_EQ(roomy.model->states().slots().free(), 1u);
  const Drafted d =
      run_drafted(*first, r, std::make_shared<KnowingDrafter>(whole, Guess::right, roomy.model->vocab(), 1));
  EXPECT_EQ(whole_of(r, d.drawn), whole);
  EXPECT_EQ(d.outcome.drafts.all_drafted() > 0, pending());
}

// A mask that allows nothing ends the request where it would without drafts, and says so.
TEST(Draft, MasksThatAllowNothingEndARequestInTheirTurn) {
  const TestModel t = make_model(kDemo, kFast, drafting(1));
  ASSERT_NE(t.model, nullptr);
  const Request all = request_of(kShortPrompt, {.seed = 3}, 20);
  auto session = *t.model->session();
  const std::vector<int32_t> whole = whole_of(all, run_drafted(*session, all, nullptr).drawn);
  for (const Guess g : kGuesses) {
    for (size_t n = 0; n < 12; ++n) {
      session->reset();
      Batch batch(*t.model);
      Request r = all;
      r.mask = [n](std::span<const int32_t> drawn, std::span<uint32_t> mask) {
        if (drawn.size() < n) std::fill(mask.begin(), mask.end(), UINT32_MAX);
      };
      r.drafters = {std::make_shared<KnowingDrafter>(whole, g, t.model->vocab(), 2)};
      r.draft_always = true;
      const auto id = batch.add(*session, std::move(r));
      ASSERT_TRUE(batch.run(*id).ok());
      const Outcome o = *batch.take(*id);
      EXPECT_EQ(o.ids.size(), n);
      EXPECT_THAT(std::string(o.status.message()), ::testing::HasSubstr(fmt::format("after {} generated tokens", n)));
    }
  }
}

// Allows everything up to a number of tokens, which is a limit.
class LimitedTokens final : public TokenConstraint {
 public:
  explicit LimitedTokens(size_t most) : most_(most) {}
  void allow(std::span<const int32_t> drawn, std::span<uint32_t> mask) override {
    if (drawn.size() >= most_) failed_ = true;
    if (!failed_) std::fill(mask.begin(), mask.end(), UINT32_MAX);
  }
  bool finished(std::span<const int32_t>) override { return false; }
  Status fault() const override { return failed_ ? error(Code::unsupported, "too large to follow") : Status(); }
  void hold() override { held_ = failed_; }
  void back() override { failed_ = held_; }
  std::string likely(std::span<const int32_t>, size_t) override { return {}; }
  std::string name() const override { return "a test"; }

 private:
  size_t most_;
  bool failed_ = false, held_ = false;
};

// A limit that a draft's mask reaches is told like one that a drawn token's reaches.
TEST(Draft, LimitsOfConstraintsKeepTheirMessage) {
  const TestModel t = make_model(kDemo, kFast, drafting(1));
  ASSERT_NE(t.model, nullptr);
  const Request all = request_of(kShortPrompt, {.seed = 3}, 20);
  TextOptions options;
  options.max_tokens = 20;
  options.sampling = all.sampling;
  options.ignore_eos = true;
  auto session = *t.model->session();
  const std::vector<int32_t> whole = whole_of(all, run_drafted(*session, all, nullptr).drawn);
  for (size_t n = 0; n < 24; ++n) {
    session->reset();
    Batch batch(*t.model);
    auto text = *TextGeneration::create(*t.model, nullptr, options, {}, std::make_shared<LimitedTokens>(n / 2));
    Request r = text->request(all.prompt);
    const Guess g = n % 2 == 0 ? Guess::right : Guess::alternating;
    r.drafters = {std::make_shared<KnowingDrafter>(whole, g, t.model->vocab(), 2)};
    r.draft_always = true;
    const auto id = batch.add(*session, std::move(r));
    ASSERT_TRUE(batch.run(*id).ok());
    const Outcome o = *batch.take(*id);
    EXPECT_EQ(o.ids.size(), n / 2);
    EXPECT_TRUE(std::equal(o.ids.begin(), o.ids.end(), whole.begin() + kShortPrompt.size()));
    EXPECT_EQ(text->failure(o).message(), "too large to follow") << n;
  }
}

// Notes the hidden rows that it is given, by the index of their token.
class HiddenReader final : public Drafter {
 public:
  HiddenReader(std::shared_ptr<Drafter> drafter, uint32_t width) : drafter_(std::move(drafter)), width_(width) {}
  void saw(std::span<const int32_t> ids) override {
    text_.insert(text_.end(), ids.begin(), ids.end());
    if (drafter_ != nullptr) drafter_->saw(ids);
  }
  Status propose(uint32_t most, Guesses& guesses) override {
    EXPECT_EQ(rows.size(), text_.size() - 1) << "all but the last token, whose row comes next";
    return drafter_ == nullptr ? Status() : drafter_->propose(most, guesses);
  }
  bool may_propose_after(uint32_t) const override { return true; }
  std::string_view name() const override { return "reader"; }
  double expected_acceptance() const override { return 0.5; }
  bool wants_hidden() const override { return true; }
  Status saw_hidden(uint32_t position, std::span<const int32_t> ids, std::span<const float> all) override {
    EXPECT_LE(position, rows.size()) << "there is a gap";
    EXPECT_EQ(all.size(), ids.size() * width_);
    rows.resize(std::max(rows.size(), position + ids.size()));
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_TRUE(position + i >= text_.size() || ids[i] == text_[position + i]);
      rows[position + i].assign(all.begin() + static_cast<ptrdiff_t>(i * width_),
                                all.begin() + static_cast<ptrdiff_t>((i + 1) * width_));
    }
    return {};
  }

  std::vector<std::vector<float>> rows;

 private:
  std::shared_ptr<Drafter> drafter_;
  size_t width_;
  std::vector<int32_t> text_;
};

// The hidden rows of every token that stands, the prompt's included, are the same whatever was drafted.
TEST(Draft, GivesHiddenRowsOfWhatStands) {
  ModelOptions options = drafting(1);
  options.hidden = true;
  options.chunk = 64;  // the prompt takes two steps
  const TestModel t = make_model(kDemo, kFast, options);
  ASSERT_NE(t.model, nullptr);
  ASSERT_GT(t.model->hidden_width(), 0u);
  std::mt19937 random(32);
  const Request all = request_of(random_ids(random, 70, t.model->vocab()), {.temperature = 1.2f, .seed = 9}, 30);
  auto session = *t.model->session();
  const auto plain = std::make_shared<HiddenReader>(nullptr, t.model->hidden_width());
  const std::vector<int32_t> whole = whole_of(all, run_drafted(*session, all, plain).drawn);
  ASSERT_GE(plain->rows.size(), 98u);
  EXPECT_NE(plain->rows[80], plain->rows[81]);
  for (const Guess g : kGuesses) {
    session->reset();
    const auto reader = std::make_shared<HiddenReader>(std::make_shared<KnowingDrafter>(whole, g, t.model->vocab(), 3),
                                                       t.model->hidden_width());
    EXPECT_EQ(whole_of(all, run_drafted(*session, all, reader).drawn), whole);
    ASSERT_GE(reader->rows.size(), 98u);
    for (size_t i = 0; i < 98; ++i) ASSERT_EQ(reader->rows[i], plain->rows[i]) << guess_name(g) << ", token " << i;
  }
}

// How many are drafted follows what was measured; the tokens do not.
TEST(Draft, ThePolicyChangesNoToken) {
  const TestModel t = make_model(kDemo, kFast, drafting(1, 31));
  ASSERT_NE(t.model, nullptr);
  const Request r = request_of(kShortPrompt, {.temperature = 1.3f, .seed = 12}, 300);
  auto session = *t.model->session();
  const std::vector<int32_t> whole = whole_of(r, run_drafted(*session, r, nullptr).drawn);
  for (const Guess g : kGuesses) {
    session->reset();
    Batch batch(*t.model);
    Request drafted = r;
    drafted.drafters = {std::make_shared<KnowingDrafter>(whole, g, t.model->vocab(), 2)};
    const auto id = batch.add(*session, std::move(drafted));
    ASSERT_TRUE(batch.run(*id).ok());
    EXPECT_TRUE(std::equal(whole.begin() + kShortPrompt.size(), whole.end(), batch.outcome(*id)->ids.begin()));
    std::printf("%s: %llu of %llu drafts accepted, %.1f ms saved\n", guess_name(g),
                static_cast<unsigned long long>(batch.outcome(*id)->drafts.all_accepted()),
                static_cast<unsigned long long>(batch.outcome(*id)->drafts.all_drafted()),
                t.model->draft_policy().balance_ns() / 1e6);
  }
}

}  // namespace
}  // namespace switchyard
