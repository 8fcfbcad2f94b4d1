// SPDX-License-Identifier: Apache-2.0
// Rules of batches that a run seldom meets: what history counts for, masks of an odd vocabulary, prompts beside
// decodes, and requests that end while their step is under way.
#include <gmock/gmock.h>

#include "core/import/synthetic.h"
#include "tests/engine/fixture.h"
#include "tests/support/batches.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;

std::vector<int32_t> drawn_after(Model& model, Request request) {
  auto session = model.session();
  Batch batch(model);
  const auto id = batch.add(**session, std::move(request));
  EXPECT_TRUE(id.ok()) << id.status().message();
  EXPECT_TRUE(batch.run(*id).ok());
  return batch.take(*id)->ids;
}

TEST(BatchRules, HistoryIsPenalised) {
  const TestModel t = make_model(kDemo, "reference", options_for(1));
  ASSERT_NE(t.model, nullptr);
  for (const SamplingPath path : {SamplingPath::fused, SamplingPath::logits}) {
    Request plain = request_of({5, 6, 7}, {.temperature = 0, .repetition_penalty = 1e5f}, 1);
    plain.path = path;
    const int32_t likely = drawn_after(*t.model, plain).at(0);
    Request after = plain;
    after.history = {likely};
    EXPECT_NE(drawn_after(*t.model, after).at(0), likely) << path_name(path);
  }
}

TEST(BatchRules, MasksEndWithTheVocabulary) {
  SyntheticRequest request;
  request.config = SWITCHYARD_TEST_DATA "/tiny/odd-widths/config.json";
  request.vocab = 100;
  auto program = synthetic_program(Os::real(), request, 1);
  ASSERT_TRUE(program.ok()) << program.status().message();
  const TestModel t = make_model(std::move(*program), "reference", options_for(1));
  ASSERT_NE(t.model, nullptr);
  ASSERT_EQ(t.model->vocab(), 100u);
  auto session = t.model->session();
  Batch batch(*t.model);
  Request beyond = request_of({1, 2}, {.seed = 1}, 2);
  beyond.mask = [](std::span<const int32_t>, std::span<uint32_t> mask) {
    mask.back() = 0xfffffff0u;
  };  // ids from 100 on
  const auto id = batch.add(**session, std::move(beyond));
  ASSERT_TRUE(id.ok() && batch.run(*id).ok());
  EXPECT_THAT(batch.take(*id)->status.message(), HasSubstr("no token can match the request's mask"));
}

TEST(BatchRules, ALongPromptDoesNotHoldUpADecode) {
  const TestModel t = make_model(kDemo, "reference", options_for(2, false));
  ASSERT_NE(t.model, nullptr);
  std::mt19937 random(4);
  auto decodes = t.model->session(), reads = t.model->session();
  Batch batch(*t.model, {.prompt_rows = 16});
  Drawn one, two;
  ASSERT_TRUE(batch.add(**decodes, request_of({1}, {.seed = 1}, 100, &one)).ok());
  while (one.ids.empty()) ASSERT_TRUE(batch.step().ok());
  ASSERT_TRUE(batch.add(**reads, request_of(random_ids(random, 64, t.model->vocab()), {.seed = 2}, 1, &two)).ok());
  const size_t before = one.ids.size();
  while (two.ids.empty()) ASSERT_TRUE(batch.step().ok());
  EXPECT_EQ(one.ids.size() - before, 4u) << "64 tokens in parts of 16, each beside a draw";
}

TEST(BatchRules, TheContextEndsARequest) {
  ModelOptions options = options_for(1);
  options.context = 64;
  const TestModel t = make_model(kDemo, "reference", options);
  ASSERT_NE(t.model, nullptr);
  auto session = t.model->session();
  Batch batch(*t.model);
  const auto id = batch.add(**session, request_of(std::vector<int32_t>(60, 7), {.seed = 1}, 100));
  ASSERT_TRUE(id.ok());
  for (int i = 0; i < 20 && batch.running(*id); ++i) ASSERT_TRUE(batch.step().ok());
  ASSERT_FALSE(batch.running(*id));
  EXPECT_EQ(batch.outcome(*id)->stopped, StopReason::context);
  EXPECT_EQ(batch.outcome(*id)->ids.size(), 5u) << "four are fed after the prompt, and one is drawn from the last";
  EXPECT_EQ((*session)->position(), 64u);
}

TEST(BatchRules, RequestsGiveTheirTokenEntriesBack) {
  const TestModel t = make_model(kDemo, "reference", options_for(2));
  ASSERT_NE(t.model, nullptr);
  auto session = t.model->session();
  Batch batch(*t.model);
  for (int i = 0; i < 5; ++i) {
    const auto id = batch.add(**session, request_of({1, 2}, {.seed = 1}, 1));
    ASSERT_TRUE(id.ok()) << id.status().message();
    ASSERT_TRUE(batch.run(*id).ok());
    EXPECT_EQ(batch.take(*id)->stopped, StopReason::length);
  }
}

// Where results must not depend on how a prompt is cut, it is cut where every session's is: after each 64 tokens.
TEST(BatchRules, DeterministicPartsEndAtMultiplesOf64) {
  for (const bool deterministic : {true, false}) {
    const TestModel t = make_model(kDemo, "reference", options_for(1, deterministic));
    ASSERT_NE(t.model, nullptr);
    EXPECT_EQ(t.model->part(10, 500, 130), deterministic ? 118u : 130u);
    EXPECT_EQ(t.model->part(10, 50, 130), 50u) << "what is left fits";
    EXPECT_EQ(t.model->part(10, 500, 20), deterministic ? 0u : 20u);
  }
}

// Two requests with masks of their own in one step: each draws by its own.
TEST(BatchRules, MasksAreOfTheirOwnRequests) {
  const TestModel t = make_model(kDemo, "reference", options_for(3));
  ASSERT_NE(t.model, nullptr);
  std::vector<std::unique_ptr<Session>> sessions;
  Batch batch(*t.model);
  std::vector<Drawn> drawn(3);
  for (int32_t i = 0; i < 3; ++i) {
    sessions.push_back(*t.model->session());
    Request r = request_of({9, i}, {.seed = 1}, 3, &drawn[static_cast<size_t>(i)]);
    r.path = SamplingPath::fused;
    if (i != 1) {
      r.mask = [i](std::span<const int32_t> before, std::span<uint32_t> mask) {
        const auto id = static_cast<size_t>(1000 * (i + 1)) + before.size();
        mask[id / 32] |= 1u << id % 32;
      };
    }
    ASSERT_TRUE(batch.add(*sessions.back(), std::move(r)).ok());
  }
  ASSERT_NO_FATAL_FAILURE(run_all(batch));
  EXPECT_EQ(drawn[0].ids, (std::vector<int32_t>{1000, 1001, 1002}));
  EXPECT_EQ(drawn[2].ids, (std::vector<int32_t>{3000, 3001, 3002}));
}

// A device that samples a step samples all of its rows, so a request by candidates reads its logits beside one whose
// tokens the device chooses: nobody pays for both, and no lists are made for steps of this kind.
TEST(BatchRules, CandidatesGiveWayToTokensOfTheDevice) {
  const TestModel t = make_model(kDemo, "reference", options_for(2));
  ASSERT_NE(t.model, nullptr);
  const auto read_bytes = [&](bool beside) {
    auto one = t.model->session(), two = t.model->session();
    Batch batch(*t.model);
    Request fused = request_of({5, 6}, {.seed = 1}, 4), candidates = request_of({7, 8}, {.seed = 2}, 4);
    fused.path = SamplingPath::fused;
    candidates.path = SamplingPath::candidates;
    if (beside) {
      EXPECT_TRUE(batch.add(**one, fused).ok());
    }
    const auto id = batch.add(**two, candidates);
    EXPECT_TRUE(id.ok() && batch.run(*id).ok());
    return batch.take(*id)->read_bytes;
  };
  EXPECT_LT(read_bytes(false), 4u * t.model->vocab() * sizeof(float));
  EXPECT_EQ(read_bytes(true), 4u * t.model->vocab() * sizeof(float));
}

// A request that was cancelled with its step in flight is taken, and another begins in its place in memory: the tokens
// that the step still samples belong to no request.
TEST(BatchRules, AStepForgetsWhomItDrewFor) {
  const TestModel sync = make_model(kDemo, "reference", options_for(1));
  const TestModel t = make_model(kDemo, "late", options_for(3), SWITCHYARD_FIXTURES, {{"late", {{"delay", "200"}}}});
  ASSERT_TRUE(sync.model != nullptr && t.model != nullptr);
  std::mt19937 random(6);
  const std::vector<int32_t> prompt = random_ids(random, 5, t.model->vocab());
  const Drawn alone = draw_alone(*sync.model, request_of(prompt, {.seed = 7}, 4), SamplingPath::fused);
  auto runs = t.model->session(), ends = t.model->session(), begins = t.model->session();
  Batch batch(*t.model);
  const auto other = batch.add(**runs, request_of({1, 2, 3}, {.seed = 1}, 60));
  ASSERT_TRUE(other.ok());
  for (int i = 0; i < 3; ++i) {
    const auto id = batch.add(**ends, request_of({4, 5}, {.seed = 2}, 50));
    ASSERT_TRUE(id.ok());
    for (int n = 0; n < 2; ++n) ASSERT_TRUE(batch.step().ok());
    batch.cancel(*id);
    EXPECT_EQ(batch.take(*id)->stopped, StopReason::cancelled);
    Drawn drawn;
    const auto next = batch.add(**begins, request_of(prompt, {.seed = 7}, 4, &drawn));
    ASSERT_TRUE(next.ok());
    while (batch.running(*next)) ASSERT_TRUE(batch.step().ok());
    EXPECT_EQ(drawn.ids, alone.ids) << "round " << i;
    (*ends)->reset();
    (*begins)->reset();
  }
}

}  // namespace
}  // namespace switchyard
