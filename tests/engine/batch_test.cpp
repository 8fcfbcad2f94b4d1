// SPDX-License-Identifier: Apache-2.0
// Batches on the demo model: the same tokens wherever they are sampled and whatever else is in the step; sessions that
// end, fork, are saved and restored, and run out of memory.
#include <gmock/gmock.h>

#include "tests/engine/fixture.h"
#include "tests/support/batches.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;

void draws_the_same_on_every_path(const std::string& backend, int settings) {
  const TestModel t = make_model(kDemo, backend, options_for(1));
  ASSERT_NE(t.model, nullptr);
  std::mt19937 random(11);
  for (int i = 0; i < settings; ++i) {
    const Request r = request_of(random_ids(random, 1 + random() % 20, t.model->vocab()),
                                 random_params(random, t.model->vocab()), 10);
    const Drawn fused = draw_alone(*t.model, r, SamplingPath::fused);
    EXPECT_EQ(fused.ids.size(), 10u);
    EXPECT_TRUE(fused == draw_alone(*t.model, r, SamplingPath::candidates)) << "setting " << i;
    EXPECT_TRUE(fused == draw_alone(*t.model, r, SamplingPath::logits)) << "setting " << i;
  }
}

TEST(Batch, DrawsTheSameOnEveryPath) { draws_the_same_on_every_path("reference", 12); }

#ifdef SWITCHYARD_TEST_CPU
TEST(Batch, DrawsTheSameOnEveryPathOfCpu) { draws_the_same_on_every_path("cpu", 40); }

TEST(Batch, DrawsOnCpuWhatItCovers) {
  const TestModel t = make_model(kDemo, "cpu", options_for(1));
  ASSERT_NE(t.model, nullptr);
  std::mt19937 random(12);
  auto session = t.model->session();
  ASSERT_TRUE(session.ok());
  for (int i = 0; i < 12; ++i) {
    Batch batch(*t.model);
    const auto id = batch.add(**session, request_of({1, 2, 3}, random_params(random, t.model->vocab()), 1));
    ASSERT_TRUE(id.ok()) << id.status().message();
    ASSERT_TRUE(batch.run(*id).ok());
    EXPECT_EQ(batch.outcome(*id)->path.path, SamplingPath::fused);
    EXPECT_EQ(batch.outcome(*id)->path.reason, "cpu:0 covers the request");
    (*session)->reset();
  }
}
#endif

// Requests that begin at different times, sample on different paths and end at different lengths, in shared steps.
TEST(Batch, NobodyChangesWhatAnotherDraws) {
  const TestModel t = make_model(kDemo, "reference", options_for(8));
  ASSERT_NE(t.model, nullptr);
  std::mt19937 random(5);
  std::vector<Request> requests;
  for (int i = 0; i < 8; ++i) {
    requests.push_back(request_of(random_ids(random, 1 + random() % 150, t.model->vocab()),
                                  random_params(random, t.model->vocab()), 1 + random() % 12));
    requests.back().path = static_cast<SamplingPath>(i % 3);
  }
  std::vector<Drawn> together(requests.size());
  std::vector<std::unique_ptr<Session>> sessions(requests.size());
  Batch batch(*t.model, {64});
  size_t next = 0;
  for (bool more = true; more || next < requests.size();) {
    while (next < requests.size() && batch.running_count() < 8 && random() % 3 != 0) {
      auto session = t.model->session();
      ASSERT_TRUE(session.ok()) << session.status().message();
      sessions[next] = std::move(*session);
      Request r =
          request_of(requests[next].prompt, requests[next].sampling, requests[next].max_tokens, &together[next]);
      r.path = requests[next].path;
      ASSERT_TRUE(batch.add(*sessions[next], std::move(r)).ok());
      ++next;
    }
    const auto stepped = batch.step();
    ASSERT_TRUE(stepped.ok()) << stepped.status().message();
    more = *stepped;
    for (size_t i = 0; i < next; ++i) {
      if (together[i].ids.size() == requests[i].max_tokens) sessions[i].reset();
    }
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_TRUE(together[i] == draw_alone(*t.model, requests[i], *requests[i].path)) << "request " << i;
  }
}

TEST(Batch, CancelsLeaveNothingBehind) {
  const TestModel t = make_model(kDemo, "reference", options_for(4));
  ASSERT_NE(t.model, nullptr);
  const uint32_t slots = t.model->states().slots().free(), pages = t.model->states().pages().free();
  std::mt19937 random(3);
  Drawn survivor;
  const Request kept = request_of(random_ids(random, 30, t.model->vocab()), {.seed = 1}, 40);
  {
    Batch batch(*t.model, {32});
    auto session = t.model->session();
    const auto id = batch.add(**session, request_of(kept.prompt, kept.sampling, kept.max_tokens, &survivor));
    ASSERT_TRUE(id.ok());
    std::vector<std::pair<Batch::Id, std::unique_ptr<Session>>> others;
    while (batch.running(*id)) {
      if (others.size() < 3) {
        auto other = t.model->session();
        ASSERT_TRUE(other.ok()) << other.status().message();
        const auto added =
            batch.add(**other, request_of(random_ids(random, 1 + random() % 90, t.model->vocab()), {.seed = 2}, 100));
        ASSERT_TRUE(added.ok());
        others.emplace_back(*added, std::move(*other));
      }
      ASSERT_TRUE(batch.step().ok());
      const size_t victim = random() % others.size();
      if (random() % 2 == 0) {
        batch.cancel(others[victim].first);
        EXPECT_EQ(batch.take(others[victim].first)->stopped, StopReason::cancelled);
        others.erase(others.begin() + static_cast<ptrdiff_t>(victim));
      }
    }
    for (auto& [other, s] : others) batch.cancel(other);
  }
  EXPECT_EQ(t.model->states().slots().free(), slots);
  EXPECT_EQ(t.model->states().pages().free(), pages);
  EXPECT_EQ(t.model->states().sessions(), 0u);
  EXPECT_TRUE(survivor == draw_alone(*t.model, kept, SamplingPath::fused));
}

TEST(Batch, ForksGoTheirOwnWays) {
  const TestModel t = make_model(kDemo, "reference", options_for(3));
  ASSERT_NE(t.model, nullptr);
  std::mt19937 random(9);
  const std::vector<int32_t> prefix = random_ids(random, 100, t.model->vocab());  // ends within a page
  const std::vector<int32_t> one = random_ids(random, 5, t.model->vocab()),
                             two = random_ids(random, 70, t.model->vocab());
  auto parent = t.model->session();
  ASSERT_TRUE((*parent)->feed(prefix).ok());
  auto child = (*parent)->fork();
  ASSERT_TRUE(child.ok()) << child.status().message();
  Drawn together[2], apart[2];
  Batch batch(*t.model);
  ASSERT_TRUE(batch.add(**parent, request_of(one, {.seed = 1}, 8, &together[0])).ok());
  ASSERT_TRUE(batch.add(**child, request_of(two, {.seed = 2}, 8, &together[1])).ok());
  ASSERT_NO_FATAL_FAILURE(run_all(batch));
  for (int i = 0; i < 2; ++i) {
    auto session = t.model->session();
    ASSERT_TRUE(session.ok());
    ASSERT_TRUE((*session)->feed(prefix).ok());
    Batch again(*t.model);
    const auto id = again.add(**session, request_of(i == 0 ? one : two, {.seed = i + 1u}, 8, &apart[i]));
    ASSERT_TRUE(id.ok() && again.run(*id).ok());
    EXPECT_TRUE(together[i] == apart[i]) << "fork " << i;
  }
}

// Every session of a model is one of two that share their states; all continue in the same step.
TEST(Batch, ForksFillAModel) {
  const TestModel t = make_model(kDemo, "reference", options_for(4));
  ASSERT_NE(t.model, nullptr);
  std::mt19937 random(2);
  std::vector<std::unique_ptr<Session>> sessions;
  Batch batch(*t.model);
  std::vector<Batch::Id> ids;
  for (int pair = 0; pair < 2; ++pair) {
    sessions.push_back(*t.model->session());
    ASSERT_TRUE(sessions.back()->feed(random_ids(random, 30, t.model->vocab())).ok());
    sessions.push_back(*sessions.back()->fork());
  }
  for (const auto& s : sessions) ids.push_back(*batch.add(*s, request_of({1}, {.seed = 1}, 3)));
  ASSERT_NO_FATAL_FAILURE(run_all(batch));
  for (const Batch::Id id : ids) {
    EXPECT_EQ(batch.outcome(id)->stopped, StopReason::length) << batch.outcome(id)->status.message();
  }
}

TEST(Batch, AFullPoolIsOneSessionsError) {
  ModelOptions o = options_for(2);
  const TestModel whole = make_model(kDemo, "reference", o);
  ASSERT_NE(whole.model, nullptr);
  uint64_t bytes = 0;
  // Two sessions have three slots, since forks may go on together; and three pages.
  for (const StatePool::Unit& u : whole.model->states().units()) bytes += u.unit_bytes * 3;
  o.state_bytes = bytes;  // three pages of 64 tokens for two sessions
  const TestModel t = make_model(kDemo, "reference", o);
  ASSERT_NE(t.model, nullptr);
  ASSERT_EQ(t.model->states().pages().count(), 3u);
  std::mt19937 random(1);
  auto large = t.model->session(), small = t.model->session();
  Drawn drawn;
  const Request kept = request_of(random_ids(random, 40, t.model->vocab()), {.seed = 4}, 20);
  Batch batch(*t.model);
  const auto grows = batch.add(**large, request_of(random_ids(random, 100, t.model->vocab()), {.seed = 5}, 200));
  const auto stays = batch.add(**small, request_of(kept.prompt, kept.sampling, kept.max_tokens, &drawn));
  ASSERT_TRUE(grows.ok() && stays.ok());
  ASSERT_NO_FATAL_FAILURE(run_all(batch));
  const auto lost = batch.take(*grows);
  EXPECT_EQ(lost->stopped, StopReason::failed);
  EXPECT_EQ(lost->status.code(), Code::out_of_device_memory);
  EXPECT_THAT(lost->status.message(), HasSubstr("its 3 pages of 64 tokens are all in use"));
  EXPECT_EQ(batch.take(*stays)->stopped, StopReason::length);
  large->reset();
  small->reset();
  EXPECT_TRUE(drawn == draw_alone(*t.model, kept, SamplingPath::fused));
}

TEST(Batch, SnapshotsGoOnElsewhere) {
  const TestModel t = make_model(kDemo, "reference", options_for(2));
  ASSERT_NE(t.model, nullptr);
  std::mt19937 random(8);
  auto session = t.model->session();
  ASSERT_TRUE((*session)->feed(random_ids(random, 90, t.model->vocab())).ok());
  const auto bytes = (*session)->snapshot();
  ASSERT_TRUE(bytes.ok()) << bytes.status().message();
  const std::vector<int32_t> more = random_ids(random, 7, t.model->vocab());
  const auto wanted = (*session)->feed(more);
  ASSERT_TRUE(wanted.ok());
  const std::vector<float> expected(wanted->begin(), wanted->end());
  auto other = t.model->session();
  ASSERT_TRUE((*other)->feed(random_ids(random, 200, t.model->vocab())).ok());  // replaces its contents
  const Status restored = (*other)->restore(*bytes);
  ASSERT_TRUE(restored.ok()) << restored.message();
  EXPECT_EQ((*other)->position(), 90u);
  const auto logits = (*other)->feed(more);
  ASSERT_TRUE(logits.ok());
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), logits->begin()));

  std::string damaged = *bytes;
  damaged[damaged.size() / 2] ^= 1;
  EXPECT_THAT((*other)->restore(damaged).message(), HasSubstr("its checksum differs"));
  EXPECT_THAT((*other)->restore("no").message(), HasSubstr("not a snapshot"));
  EXPECT_EQ((*other)->position(), 97u);
}

TEST(Batch, RefusesBeforeAnythingIsDone) {
  const TestModel t = make_model(kDemo, "reference", options_for(2));
  ASSERT_NE(t.model, nullptr);
  auto session = t.model->session();
  Batch batch(*t.model);
  const auto refusal = [&](const std::function<void(Request&)>& change) {
    Request r = request_of({1, 2}, {}, 4);
    change(r);
    const auto added = batch.add(**session, std::move(r));
    EXPECT_FALSE(added.ok());
    return added.ok() ? std::string() : added.status().message();
  };
  EXPECT_THAT(refusal([](Request& r) { r.sampling.temperature = -1; }), HasSubstr("temperature is -1"));
  EXPECT_THAT(refusal([](Request& r) { r.sampling.top_p = 0; }), HasSubstr("top_p is 0"));
  EXPECT_THAT(refusal([](Request& r) { r.sampling.top_k = -2; }), HasSubstr("top_k is -2"));
  EXPECT_THAT(refusal([](Request& r) { r.sampling.min_p = 1.5f; }), HasSubstr("min_p is 1.5"));
  EXPECT_THAT(refusal([](Request& r) { r.sampling.biases = {{4096, 1}}; }), HasSubstr("logit_bias names token 4096"));
  EXPECT_THAT(refusal([](Request& r) { r.prompt = {}; }), HasSubstr("no tokens"));
  EXPECT_THAT(refusal([](Request& r) { r.prompt = {4096}; }), HasSubstr("token id 4096"));
  EXPECT_THAT(refusal([](Request& r) { r.prompt.assign(513, 1); }), HasSubstr("513 tokens, and 512 of the context's"));
  EXPECT_THAT(refusal([](Request& r) { r.max_tokens = 0; }), HasSubstr("max_tokens is 0"));
  EXPECT_EQ((*session)->position(), 0u);
  ASSERT_TRUE(batch.add(**session, request_of({1, 2}, {}, 4)).ok());
  EXPECT_THAT(refusal([](Request&) {}), HasSubstr("has a request already"));
}

TEST(Batch, MasksDecideWhatIsDrawn) {
  const TestModel t = make_model(kDemo, "reference", options_for(1));
  ASSERT_NE(t.model, nullptr);
  for (const SamplingPath path : {SamplingPath::fused, SamplingPath::candidates, SamplingPath::logits}) {
    auto session = t.model->session();
    Batch batch(*t.model);
    Drawn drawn;
    Request r = request_of({5, 6, 7}, {.seed = 3}, 6, &drawn);
    r.path = path;
    r.mask = [](std::span<const int32_t> before, std::span<uint32_t> mask) {
      const size_t id = 100 + before.size();
      if (before.size() < 5) mask[id / 32] |= 1u << id % 32;  // the sixth has none
    };
    const auto id = batch.add(**session, std::move(r));
    ASSERT_TRUE(id.ok()) << id.status().message();
    ASSERT_TRUE(batch.run(*id).ok());
    EXPECT_EQ(drawn.ids, (std::vector<int32_t>{100, 101, 102, 103, 104})) << path_name(path);
    EXPECT_THAT(batch.take(*id)->status.message(),
                HasSubstr("no token can match the request's mask after 5 generated tokens"));
  }
}

}  // namespace
}  // namespace switchyard
