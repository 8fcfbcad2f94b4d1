// SPDX-License-Identifier: Apache-2.0
// Prepared steps: nothing is planned or recorded while requests come and go, and the tokens do not change.
#include "core/engine/prepare.h"

#include <gmock/gmock.h>

#include "bench/arrival.h"
#include "tests/engine/fixture.h"
#include "tests/support/batches.h"

namespace switchyard {
namespace {

// Sessions that begin and end at any time, with prompts of any length: each one's tokens.
std::vector<Drawn> serve(Model& model, uint32_t sessions, uint32_t requests, const SamplingParams& like) {
  std::mt19937 random(7);
  std::vector<Drawn> drawn(requests);
  std::vector<std::unique_ptr<Session>> room(requests);
  Batch batch(model, {.prompt_rows = 48});
  for (uint32_t next = 0; next < requests || batch.running_count() > 0;) {
    for (uint32_t n = random() % 3; n > 0 && next < requests && batch.running_count() < sessions; --n, ++next) {
      for (uint32_t i = 0; i < next; ++i) {
        if (room[i] != nullptr && drawn[i].ids.size() == 1 + i % 20) room[i].reset();
      }
      auto session = model.session();
      EXPECT_TRUE(session.ok()) << session.status().message();
      if (!session.ok()) return drawn;
      room[next] = std::move(*session);
      SamplingParams sampling = like;
      sampling.seed = next;
      const uint32_t tokens = next % 4 == 0 ? 200 + random() % 250 : 1 + random() % 70;
      const auto id = batch.add(
          *room[next], request_of(random_ids(random, tokens, model.vocab()), sampling, 1 + next % 20, &drawn[next]));
      EXPECT_TRUE(id.ok()) << id.status().message();
    }
    const auto stepped = batch.step();
    EXPECT_TRUE(stepped.ok()) << stepped.status().message();
    if (!stepped.ok()) return drawn;
  }
  return drawn;
}

class PreparesOn : public ::testing::TestWithParam<const char*> {};

TEST_P(PreparesOn, NothingIsMadeWhileRequestsComeAndGo) {
  const SamplingParams like{.temperature = 0.8f};
  constexpr uint32_t kSessions = 5, kRequests = 40;
  const TestModel fresh = make_model(kDemo, GetParam(), options_for(kSessions));
  ASSERT_NE(fresh.model, nullptr);
  const std::vector<Drawn> expected = serve(*fresh.model, kSessions, kRequests, like);
  ASSERT_GT(fresh.model->runner().sizes(), 15u) << "sizes that come, one by one";

  const TestModel t = make_model(kDemo, GetParam(), options_for(kSessions));
  ASSERT_NE(t.model, nullptr);
  const Status prepared = prepare_steps(*t.model, like);
  ASSERT_TRUE(prepared.ok()) << prepared.message();
  const size_t sizes = t.model->runner().sizes();
  EXPECT_EQ(serve(*t.model, kSessions, kRequests, like), expected);
  EXPECT_EQ(t.model->runner().sizes(), sizes);
  ASSERT_TRUE(prepare_steps(*t.model, like).ok());
  EXPECT_EQ(t.model->runner().sizes(), sizes) << "what exists stays";
}

TEST_P(PreparesOn, NothingIsMadeWhenAPromptArrives) {
  bench::ArrivalLoad load;
  load.sessions = 3;
  load.context = 200;
  load.prompt = 180;
  load.apart = 20;  // until a session passes 256 tokens
  load.prompt_rows = 32;
  ModelOptions options = with_context(600);
  options.sessions = load.all_sessions();
  const TestModel t = make_model(kDemo, GetParam(), options);
  ASSERT_NE(t.model, nullptr);
  ASSERT_TRUE(prepare_steps(*t.model, load.sampling).ok());
  const size_t sizes = t.model->runner().sizes();
  std::mt19937 random(1);
  const std::vector<int32_t> text = random_ids(random, 400, t.model->vocab());
  const auto a = bench::measure_arrival(*t.model, load, text, [] { return true; });
  ASSERT_TRUE(a.ok()) << a.status().message();
  EXPECT_EQ(t.model->runner().sizes(), sizes);
}

TEST_P(PreparesOn, WhatWasNotForeseenIsMadeWhenItComes) {
  const TestModel t = make_model(kDemo, GetParam(), options_for(2));
  ASSERT_NE(t.model, nullptr);
  ASSERT_TRUE(prepare_steps(*t.model, {}).ok());
  const size_t sizes = t.model->runner().sizes();
  auto session = t.model->session();
  ASSERT_TRUE(session.ok());
  Batch batch(*t.model);
  SamplingParams likely;
  likely.top_logprobs = 3;
  const auto id = batch.add(**session, request_of({1, 2, 3}, likely, 2));
  ASSERT_TRUE(id.ok()) << id.status().message();
  ASSERT_TRUE(batch.run(*id).ok());
  EXPECT_GT(t.model->runner().sizes(), sizes);
}

// However many sizes come that nobody prepared, few keep their lists: those that ran last. What is prepared stays, and
// lists that are made once more compute the same.
TEST_P(PreparesOn, SizesThatWereNotPreparedAreBounded) {
  ModelOptions options = with_context(1500);
  options.sessions = 2;
  const TestModel t = make_model(kDemo, GetParam(), options);
  ASSERT_NE(t.model, nullptr);
  StepRunner& runner = t.model->runner();
  ASSERT_TRUE(runner.prepare({{{.rows = 1, .seqs = 1, .logit_rows = 1, .context = 256}}}, kWantLogits).ok());
  const size_t prepared = runner.sizes();
  auto often = t.model->session(), session = t.model->session();
  ASSERT_TRUE(often.ok() && session.ok());
  const auto feed = [](Session& to, size_t rows, uint32_t logit_rows) {
    const std::vector<int32_t> ids(rows, 7);
    const auto logits = to.feed(ids, logit_rows);
    EXPECT_TRUE(logits.ok()) << logits.status().message();
    return logits.ok() ? std::vector<float>(logits->begin(), logits->end()) : std::vector<float>();
  };
  const std::vector<float> first = feed(**often, 3, 1);
  uint64_t made_again = 0;
  for (const size_t context : {1, 256, 512, 1024}) {
    (*session)->reset();
    feed(**session, context, 1);
    for (uint32_t rows = 2; rows <= 32; rows *= 2) {
      for (uint32_t logit_rows = 1; logit_rows <= rows; logit_rows *= 2) {
        feed(**session, rows, logit_rows);
        (*often)->reset();
        const uint64_t before = runner.recorded();
        EXPECT_EQ(feed(**often, 3, 1), first);
        made_again += runner.recorded() - before;
      }
    }
  }
  EXPECT_EQ(made_again, 0u) << "what runs often stays";
  EXPECT_EQ(runner.sizes(), prepared + StepRunner::kUnprepared);
  EXPECT_GT(runner.recorded(), runner.sizes());
  (*session)->reset();
  feed(**session, 1, 1);
  const uint64_t before = runner.recorded();
  feed(**session, 1, 1);
  EXPECT_EQ(runner.recorded(), before) << "what is prepared stays";
  EXPECT_EQ(runner.sizes(), prepared + StepRunner::kUnprepared);
}

#ifdef SWITCHYARD_TEST_CPU
INSTANTIATE_TEST_SUITE_P(Prepare, PreparesOn, ::testing::Values("cpu"));
#else
INSTANTIATE_TEST_SUITE_P(Prepare, PreparesOn, ::testing::Values("reference"));
#endif

// Lists that are there serve steps that fit into them: a longer context does not, and a prompt does not fit into lists
// of decoding steps, whatever its length.
TEST(Prepare, ListsServeOnlyWhatFitsThem) {
  const TestModel t = make_model(kDemo, "reference", options_for(4, false));
  ASSERT_NE(t.model, nullptr);
  StepRunner& runner = t.model->runner();
  const StepCounts decode{.rows = 4, .seqs = 4, .logit_rows = 4, .context = 256};
  ASSERT_TRUE(runner.prepare({{decode}}, kWantLogits).ok());
  auto session = t.model->session();
  ASSERT_TRUE(session.ok());
  const auto makes = [&](size_t tokens) {
    const size_t before = runner.sizes();
    EXPECT_TRUE((*session)->feed(std::vector<int32_t>(tokens, 7)).ok());
    return runner.sizes() - before;
  };
  EXPECT_EQ(makes(3), 1u) << "a prompt";
  EXPECT_EQ(makes(1), 0u) << "one token, in lists of four";
  EXPECT_EQ(makes(260), 1u) << "a prompt";
  EXPECT_EQ(makes(1), 1u) << "one token after more than 256";
}

TEST(Prepare, StopsWhenToldTo) {
  const TestModel t = make_model(kDemo, "reference", options_for(4));
  ASSERT_NE(t.model, nullptr);
  const size_t before = t.model->runner().sizes();
  const Status s = prepare_steps(*t.model, {}, [](uint64_t done, uint64_t total) {
    EXPECT_GT(total, 10u);
    return done < 3;
  });
  EXPECT_EQ(s.code(), Code::cancelled);
  EXPECT_EQ(t.model->runner().sizes(), before + 3);
}

// The lists grow in number with the logarithm of everything.
TEST(Prepare, ListsAreFew) {
  EXPECT_EQ(batch_steps(17, 4096, 4096).size(), 30u + 12 * 2 - 1);
  EXPECT_LT(batch_steps(64, 8192, 1u << 18).size(), 110u);
  EXPECT_EQ(batch_steps(1, 1, 100).size(), 1u);
}

}  // namespace
}  // namespace switchyard
