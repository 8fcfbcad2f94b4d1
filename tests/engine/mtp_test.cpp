// SPDX-License-Identifier: Apache-2.0
// The multi-token prediction layer: its logits are those of NumPy; its drafts change no token and no state; and what it
// guesses does not depend on how the session came to where it is.
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/engine/mtp_drafter.h"
#include "core/import/convert.h"
#include "tests/engine/fixture.h"
#include "tests/support/drafted.h"
#include "tests/support/files.h"
#include "tests/support/noted_drafter.h"

namespace switchyard {
namespace {

const std::string kTiny = SWITCHYARD_TEST_DATA "/tiny/";

TestModel tiny(const std::string& name, const std::string& backend) {
  const testing::TemporaryFolder out;
  ConvertOptions convert_options;
  convert_options.source = kTiny + name;
  convert_options.output = out.path("model.swy");
  const auto report = convert(Os::real(), convert_options);
  EXPECT_TRUE(report.ok()) << report.status().message();
  ModelOptions o = with_layer(drafting(1));
  o.context = 128;
  return make_model(convert_options.output, backend, o);
}

struct Recorded {
  std::vector<int32_t> ids, drafts;
  std::vector<float> logits;  // of the layer at each position, and of three drafts
};

std::vector<Recorded> recorded(const std::string& name, uint32_t vocab) {
  std::vector<Recorded> all;
  const auto expected = nlohmann::json::parse(std::ifstream(kTiny + name + "/expected.json"));
  for (const auto& prompt : expected["prompts"]) {
    Recorded& r = all.emplace_back();
    r.ids = prompt["ids"].get<std::vector<int32_t>>();
    const auto greedy = prompt["greedy_ids"].get<std::vector<int32_t>>();
    r.drafts.assign(greedy.begin(), greedy.begin() + 3);
    r.logits.resize((r.ids.size() + 2) * vocab);
    std::ifstream in(kTiny + name + "/" + prompt["name"].get<std::string>() + ".mtp.f32", std::ios::binary);
    in.read(reinterpret_cast<char*>(r.logits.data()), static_cast<std::streamsize>(r.logits.size() * sizeof(float)));
    EXPECT_TRUE(in.good());
  }
  return all;
}

// Feeds tokens in parts of at most `part`, and gives the trail the rows.
void feed(Model& model, Session& session, std::span<const int32_t> ids, size_t part) {
  while (!ids.empty()) {
    const size_t n = std::min(part, ids.size());
    const uint32_t at = session.position();
    ASSERT_TRUE(session.feed(ids.first(n)).ok());
    std::vector<float> rows(n * model.hidden_width());
    ASSERT_TRUE(model.read_hidden(0, rows).ok());
    session.trail().saw(at, ids.first(n), rows);
    ids = ids.subspan(n);
  }
}

// The largest difference from what was recorded, as a share of the largest logit.
double difference(const Result<std::span<const float>>& found, std::span<const float> wanted) {
  EXPECT_TRUE(found.ok()) << found.status().message();
  if (!found.ok() || found->size() != wanted.size()) return 1e9;
  double most = 0, largest = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    most = std::max(most, std::abs(double{(*found)[i]} - wanted[i]));
    largest = std::max(largest, std::abs(double{wanted[i]}));
  }
  EXPECT_GT(largest, 1);
  return most / largest;
}

class MtpLogits : public ::testing::TestWithParam<std::string> {};

TEST_P(MtpLogits, AreThoseOfNumpy) {
  for (const char* backend : {"reference", kFast}) {
    const TestModel t = tiny(GetParam(), backend);
    ASSERT_NE(t.model, nullptr);
    ASSERT_NE(t.model->mtp(), nullptr);
    const double limit = backend == std::string("reference") ? 1e-4 : 0.02;
    const uint32_t vocab = t.model->vocab();
    for (const Recorded& r : recorded(GetParam(), vocab)) {
      const auto row = [&](size_t i) { return std::span(r.logits).subspan(i * vocab, vocab); };
      for (const size_t part : {size_t{1}, size_t{5}, r.ids.size()}) {
        auto session = *t.model->session();
        for (const size_t n : {size_t{1}, size_t{2}, size_t{33}, size_t{64}, r.ids.size() - 1}) {
          if (n >= r.ids.size() || n <= session->position()) continue;
          const auto next = std::span(r.ids).first(n).subspan(session->position());
          feed(*t.model, *session, next, part);
          EXPECT_LT(difference(session->draft_row(r.ids[n]), row(n - 1)), limit) << backend << " " << n;
        }
        for (size_t d = 0; d < r.drafts.size(); ++d) {
          const auto logits = session->next_draft_row(r.drafts[d]);
          EXPECT_LT(difference(logits, row(r.ids.size() - 1 + d)), limit) << backend << " draft " << d;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, MtpLogits, ::testing::Values("mtp", "mtp-stacked"), [](const auto& param) {
  return param.param == "mtp" ? std::string("experts_apart") : std::string("experts_stacked");
});

TEST(Mtp, DraftsChangeNothingWithRandomSettings) {
  for (const char* backend : {"reference", kFast}) {
    const bool fast = backend == std::string(kFast);
    const TestModel plain = make_model(kDemo, backend, drafting(1)),
                    t = make_model(kDemo, backend, with_layer(drafting(1)));
    ASSERT_NE(plain.model, nullptr);
    ASSERT_NE(t.model, nullptr);
    ASSERT_NE(t.model->mtp(), nullptr);
    std::mt19937 random(31);
    uint64_t accepted = 0;
    for (int i = 0; i < (fast ? 6 : 1); ++i) {
      const Request r = random_request(random, t.model->vocab(), fast ? 24 : 8);
      auto without = *plain.model->session(), with = *t.model->session();
      const Drafted a = run_drafted(*without, r, nullptr);
      const Drafted b = run_drafted(*with, r, std::make_shared<MtpDrafter>(*with));
      EXPECT_TRUE(a.drawn == b.drawn) << backend << ", setting " << i;
      EXPECT_TRUE(trunk_of(a.states, a.states.size()) == trunk_of(b.states, a.states.size())) << backend << " " << i;
      EXPECT_EQ(a.outcome.stopped, b.outcome.stopped);
      EXPECT_TRUE(a.drawn.ids.size() < 3 || b.outcome.drafts.all_drafted() > 0);
      with->reset();
      const Drafted again = run_drafted(*with, r, std::make_shared<MtpDrafter>(*with));
      EXPECT_EQ(again.outcome.drafts.all_drafted(), b.outcome.drafts.all_drafted());
      EXPECT_EQ(again.outcome.drafts.all_accepted(), b.outcome.drafts.all_accepted());
      accepted += b.outcome.drafts.all_accepted();
    }
    EXPECT_GT(accepted, 0u);
    EXPECT_EQ(t.model->states().slots().free(), t.model->states().slots().count());
    EXPECT_EQ(t.model->states().pages().free(), t.model->states().pages().count());
  }
}

// Of the layer.
std::shared_ptr<Drafter> noted(Session& session, GuessesMade& made, uint32_t every = 1, uint32_t most = 4) {
  return std::make_shared<NotedDrafter>(std::make_shared<MtpDrafter>(session, most), made, every,
                                        &session.model().runner());
}

class Guessing : public ::testing::Test {
 protected:
  void SetUp() override {
    t_ = make_model(kDemo, kFast, options());
    ASSERT_NE(t_.model, nullptr);
    prompt_ = random_ids(random_, 100, t_.model->vocab());
    session_ = *t_.model->session();
    ASSERT_EQ(run(*session_, prompt_, {}, fresh_).size(), 30u);
  }
  static ModelOptions options() {
    ModelOptions o = with_layer(drafting(3));
    o.checkpoints = 8;
    return o;
  }

  // Draws after `seen`, which the session has seen, and `rest`. `every`: steps to a draft.
  std::vector<int32_t> run(Session& session, std::vector<int32_t> rest, std::vector<int32_t> seen, GuessesMade& made,
                           uint32_t every = 1, uint32_t tokens = 30, std::optional<SamplingPath> path = {}) {
    Drawn drawn;
    Batch batch(*t_.model);
    Request r = request_of(std::move(rest), {.temperature = 0.7f, .seed = 5}, tokens, &drawn);
    r.history = std::move(seen);
    r.path = path;
    r.drafters = {noted(session, made, every)};
    r.draft_always = true;
    r.cuts = cuts_;
    r.on_cut = [&](uint32_t) { kept_.push_back(*session.keep()); };
    const auto id = batch.add(session, std::move(r));
    EXPECT_TRUE(id.ok()) << id.status().message();
    EXPECT_TRUE(batch.run(*id).ok());
    const Outcome o = *batch.take(*id);
    EXPECT_TRUE(o.status.ok()) << o.status.message();
    return drawn.ids;
  }
  std::vector<int32_t> first(size_t n) const { return {prompt_.begin(), prompt_.begin() + static_cast<ptrdiff_t>(n)}; }
  std::vector<int32_t> after(size_t n) const { return {prompt_.begin() + static_cast<ptrdiff_t>(n), prompt_.end()}; }

  TestModel t_;
  std::mt19937 random_{32};
  std::vector<int32_t> prompt_;
  std::vector<uint32_t> cuts_;
  std::vector<std::unique_ptr<StateCheckpoint>> kept_;
  std::unique_ptr<Session> session_;
  GuessesMade fresh_;
};

// The host draws them from the layer's logits, or the device draws one after the other.
TEST_F(Guessing, DoesNotDependOnWhoDraws) {
  ASSERT_TRUE(t_.model->mtp()->draws());
  for (const SamplingPath path : {SamplingPath::logits, SamplingPath::fused}) {
    GuessesMade made;
    session_->reset();
    run(*session_, prompt_, {}, made, 1, 30, path);
    expect_same_guesses(made, fresh_, 30, path_name(path));
  }
}

// Steps without drafts leave no gap in the layer's states.
TEST_F(Guessing, DoesNotDependOnHowOftenOneDrafts) {
  for (const uint32_t every : {2u, 5u, 11u}) {
    GuessesMade made;
    session_->reset();
    run(*session_, prompt_, {}, made, every);
    expect_same_guesses(made, fresh_, 4, fmt::format("every {}", every));
  }
}

// At a position inside of a page, at the end of one, and where another request has gone on from there.
TEST_F(Guessing, DoesNotDependOnPrefixesThatWereKept) {
  cuts_ = {33, 64, 97};
  session_->reset();
  GuessesMade made;
  run(*session_, prompt_, {}, made);
  expect_same_guesses(made, fresh_, 20, "with cuts");
  cuts_.clear();
  ASSERT_EQ(kept_.size(), 3u);
  auto other = *t_.model->session();
  for (const bool disturbed : {false, true}) {
    for (const auto& kept : kept_) {
      if (disturbed) {
        ASSERT_TRUE(other->resume(*kept).ok());
        GuessesMade ignored;
        run(*other, random_ids(random_, 7, t_.model->vocab()), first(kept->position()), ignored);
      }
      ASSERT_TRUE(session_->resume(*kept).ok());
      GuessesMade after_hit;
      run(*session_, after(kept->position()), first(kept->position()), after_hit);
      EXPECT_EQ(after_hit.begin()->first, fresh_.begin()->first);
      expect_same_guesses(after_hit, fresh_, 20, fmt::format("kept at {}", kept->position()));
    }
  }
}

TEST_F(Guessing, DoesNotDependOnForksAndSnapshots) {
  for (const size_t n : {6u, 64u, 70u}) {
    session_->reset();
    GuessesMade ignored, forked, restored;
    std::vector<int32_t> seen = first(n);
    run(*session_, seen, {}, ignored, 1, 1);
    ASSERT_EQ(session_->position(), n);
    auto fork = *session_->fork();
    const auto bytes = session_->snapshot();
    ASSERT_TRUE(bytes.ok());
    run(*session_, random_ids(random_, 5, t_.model->vocab()), seen, ignored);
    run(*fork, after(n), seen, forked);
    expect_same_guesses(forked, fresh_, 20, "forked");
    fork.reset();
    auto elsewhere = *t_.model->session();
    ASSERT_TRUE(elsewhere->restore(*bytes).ok());
    run(*elsewhere, after(n), seen, restored);
    expect_same_guesses(restored, fresh_, 20, "restored");
  }
}

TEST_F(Guessing, DoesNotDependOnOtherRequests) {
  session_.reset();
  Batch batch(*t_.model);
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<GuessesMade> made(3);
  for (size_t i = 0; i < made.size(); ++i) {
    sessions.push_back(*t_.model->session());
    Request r = request_of(i == 1 ? prompt_ : random_ids(random_, 20 + 30 * i, t_.model->vocab()),
                           {.temperature = 0.7f, .seed = 5}, 30);
    r.drafters = {noted(*sessions.back(), made[i], 1, 2)};
    r.draft_always = true;
    ASSERT_TRUE(batch.add(*sessions.back(), std::move(r)).ok());
  }
  run_all(batch);
  expect_same_guesses(made[1], fresh_, 10, "among others");
}

// The layer reads one sequence's rows, of more than 256 positions, as soon as a step of both has ended.
TEST_F(Guessing, DoesNotDependOnWhenOthersAreRead) {
  session_.reset();
  auto first = *t_.model->session(), second = *t_.model->session();
  Batch batch(*t_.model);
  GuessesMade made;
  Request other = request_of(random_ids(random_, 255, t_.model->vocab()), {.temperature = 0.7f, .seed = 6}, 30);
  other.drafters = {std::make_shared<LimitedDrafter>(std::make_shared<MtpDrafter>(*first), 0)};
  Request r = request_of(prompt_, {.temperature = 0.7f, .seed = 5}, 30);
  r.drafters = {noted(*second, made, 1, 2)};
  other.draft_always = r.draft_always = true;
  ASSERT_TRUE(batch.add(*first, std::move(other)).ok() && batch.add(*second, std::move(r)).ok());
  run_all(batch);
  EXPECT_LT(first->trail().waiting(), 256u);
  expect_same_guesses(made, fresh_, 10, "beside one with many rows");
}

// Two that begin with the same whole page read its last position with different tokens after it.
TEST_F(Guessing, DoesNotDependOnOthersWithTheSamePrefix) {
  cuts_ = {64};
  session_->reset();
  GuessesMade ignored;
  run(*session_, prompt_, {}, ignored);
  cuts_.clear();
  ASSERT_EQ(kept_.size(), 1u);
  auto other = *t_.model->session();
  ASSERT_TRUE(session_->resume(*kept_[0]).ok() && other->resume(*kept_[0]).ok());
  Batch batch(*t_.model);
  std::vector<GuessesMade> made(2);
  for (size_t i = 0; i < made.size(); ++i) {
    Session& session = i == 0 ? *session_ : *other;
    Request r = request_of(i == 0 ? after(64) : random_ids(random_, 36, t_.model->vocab()),
                           {.temperature = 0.7f, .seed = 5}, 30);
    r.history = first(64);
    r.drafters = {noted(session, made[i], 1, 2)};
    r.draft_always = true;
    ASSERT_TRUE(batch.add(session, std::move(r)).ok());
  }
  run_all(batch);
  expect_same_guesses(made[0], fresh_, 10, "beside one with the same prefix");
}

// A session that was fed without the layer cannot draft, and says nothing wrong.
TEST_F(Guessing, NeedsTheRowsOfEveryToken) {
  session_->reset();
  ASSERT_TRUE(session_->feed(first(10)).ok());
  GuessesMade made;
  const std::vector<int32_t> rest = {prompt_.begin() + 10, prompt_.end()};
  run(*session_, rest, first(10), made);
  for (const auto& [seen, guesses] : made) EXPECT_TRUE(guesses.empty());
  EXPECT_FALSE(session_->can_draft());
}

// Nor one that went on without the layer, wherever it goes on.
TEST_F(Guessing, EndsWithTheRowsOfTheTokens) {
  session_->reset();
  GuessesMade made;
  run(*session_, first(40), {}, made);
  EXPECT_TRUE(session_->may_draft());
  ASSERT_TRUE(session_->feed(first(10)).ok());
  const auto bytes = session_->snapshot();
  ASSERT_TRUE(bytes.ok()) << bytes.status().message();
  ASSERT_TRUE(session_->restore(*bytes).ok());
  EXPECT_FALSE(session_->may_draft());
  EXPECT_FALSE(session_->can_draft());
}

// The last position is read again where another token came after it than the one it was read with.
TEST(Mtp, ALastRowThatWasTriedIsReadAgain) {
  const TestModel t = make_model(kDemo, kFast, with_layer(drafting(2)));
  ASSERT_NE(t.model, nullptr);
  std::mt19937 random(34);
  const std::vector<int32_t> ids = random_ids(random, 30, t.model->vocab());
  const auto guessed = [&](bool tries) {
    auto session = *t.model->session();
    feed(*t.model, *session, std::span(ids).first(20), 20);
    if (tries) {
      EXPECT_TRUE(session->draft_row(ids[20] == 5 ? 6 : 5).ok());
    }
    feed(*t.model, *session, std::span(ids).subspan(20, 9), 9);
    const auto logits = session->draft_row(ids[29]);
    EXPECT_TRUE(logits.ok()) << logits.status().message();
    return std::vector<float>(logits->begin(), logits->end());
  };
  EXPECT_EQ(guessed(true), guessed(false));
}

// Where rows that stand are fed again, the trail is ahead of a session whose step was given up. What others share ends
// with the position.
TEST(Mtp, WhatIsSharedEndsWithThePosition) {
  ModelOptions o = with_layer(drafting(3));
  o.pending_rows = false;
  const TestModel t = make_model(kDemo, kFast, o);
  ASSERT_NE(t.model, nullptr);
  ASSERT_TRUE(t.model->feeds_again());
  std::mt19937 random(33);
  const std::vector<int32_t> ids = random_ids(random, 80, t.model->vocab());
  const auto pages_used = [&] { return t.model->states().pages().count() - t.model->states().pages().free(); };
  for (const bool drafts : {false, true}) {
    auto session = *t.model->session();
    feed(*t.model, *session, std::span(ids).first(60), 60);
    const std::vector<float> rows(10 * size_t{t.model->hidden_width()}, 0.5f);
    session->trail().saw(60, std::span(ids).subspan(60, 10), rows);
    if (drafts) {
      ASSERT_TRUE(session->draft_row(ids[70]).ok());
      ASSERT_EQ(pages_used(), 2u);
    }
    auto fork = *session->fork();
    EXPECT_EQ(pages_used(), 1u);
    EXPECT_EQ(fork->trail().whole(), !drafts);  // the row of the last position was read, and is gone
    EXPECT_EQ(fork->can_draft(), !drafts);
    EXPECT_EQ(fork->trail().end(), drafts ? 0u : 60u);
    ASSERT_TRUE(session->feed(std::span(ids).last(20)).ok());
    ASSERT_TRUE(fork->feed(std::span(ids).first(20)).ok());
    EXPECT_EQ(pages_used(), 4u);
  }
}

// Tokens that were fed without it leave a gap, which no later row bridges. What others share of the states says so.
TEST(Mtp, IsLostWhereTokensWereFedWithoutIt) {
  ModelOptions o = with_layer(drafting(3));
  o.checkpoints = 1;
  const TestModel t = make_model(kDemo, kFast, o);
  ASSERT_NE(t.model, nullptr);
  std::mt19937 random(35);
  const std::vector<int32_t> ids = random_ids(random, 100, t.model->vocab());
  auto session = *t.model->session(), restored = *t.model->session();
  feed(*t.model, *session, std::span(ids).first(60), 60);
  for (const bool gap : {false, true}) {
    if (gap) {
      ASSERT_TRUE(session->feed(std::span(ids).last(40)).ok());
    }
    const auto bytes = session->snapshot();
    ASSERT_TRUE(bytes.ok() && restored->restore(*bytes).ok());
    EXPECT_EQ(restored->position(), gap ? 100u : 60u);
    EXPECT_EQ(restored->may_draft(), !gap);
    EXPECT_EQ((*session->fork())->may_draft(), !gap);
    EXPECT_EQ((*session->keep())->complete(), !gap);
  }
}

// Rows that are only read change the layer's states: what comes after the last of these is left out.
TEST(Mtp, RowsThatAreReadEndWithTheStates) {
  const TestModel t = tiny("mtp", "reference");
  ASSERT_NE(t.model, nullptr);
  const auto whole = t.model->plan_mtp(8, 128);
  ASSERT_TRUE(whole.ok());
  const std::vector<uint32_t> nothing;
  const auto read = t.model->mtp()->planner().plan(whole->bucket, nothing, HeadLists::apart);
  ASSERT_TRUE(read.ok());
  EXPECT_FALSE(read->nodes.back().op.states.empty());
  EXPECT_LT(read->nodes.size(), whole->nodes.size());
}

// A program without the layer has none, and says so where it is asked for.
TEST(Mtp, IsRefusedWhereThereIsNone) {
  const testing::TemporaryFolder out;
  ConvertOptions convert_options;
  convert_options.source = kTiny + "tied-embeddings";
  convert_options.output = out.path("model.swy");
  ASSERT_TRUE(convert(Os::real(), convert_options).ok());
  const auto program = Program::load(Os::real(), convert_options.output);
  ASSERT_TRUE(program.ok());
  ModelOptions o;
  EXPECT_THAT(add_speculation(Speculation::mtp, *program, o).message(),
              ::testing::HasSubstr("has no multi-token prediction layer"));
  EXPECT_TRUE(add_speculation(Speculation::automatic, *program, o).ok());
  EXPECT_FALSE(o.mtp);
  EXPECT_GT(o.drafts, 0u);
  EXPECT_TRUE(o.mtp_if_it_fits);
}

}  // namespace
}  // namespace switchyard
