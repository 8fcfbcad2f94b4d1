// SPDX-License-Identifier: Apache-2.0
// Steps that are submitted before the last one's tokens are known, on an asynchronous device: the same tokens as on a
// synchronous device, and a stop that is found late leaves no trace in any state.
#include <gmock/gmock.h>

#include "tests/engine/fixture.h"
#include "tests/engine/fixtures/late.h"
#include "tests/support/batches.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;

LateReport& report_of(const Model& model) {
  const PlanDevice& device = *model.states().units()[0].device;
  return *const_cast<LateReport*>(
      static_cast<const LateReport*>(device.api->get_extension(device.handle, kLateReport)));
}

class Ahead : public ::testing::Test {
 protected:
  void SetUp() override { sync_ = make_model(kDemo, "reference", options_for(16)); }

  // chunk: rows of a step; 0: as many as there may be.
  void start(uint32_t sessions, const std::string& delay_us = "100", std::vector<Setting> more = {},
             uint32_t chunk = 0) {
    more.push_back({"delay", delay_us});
    late_ = {};
    ModelOptions options = options_for(sessions);
    if (chunk != 0) options.chunk = chunk;
    late_ = make_model(kDemo, "late", options, SWITCHYARD_FIXTURES, {{"late", more}});
    ASSERT_NE(late_.model, nullptr);
    ASSERT_TRUE(late_.model->runner().runs_ahead());
    slots_ = model().states().slots().free();
    pages_ = model().states().pages().free();
    ahead_ = report().ahead;
    violations_ = report().violations;
  }
  Model& model() { return *late_.model; }
  LateReport& report() { return report_of(*late_.model); }
  uint32_t vocab() { return model().vocab(); }

  // Checks that the session has seen exactly the first tokens of prompt and `ids`, as many as it says.
  void expect_seen(Session& session, std::vector<int32_t> prompt, const std::vector<int32_t>& ids) {
    prompt.insert(prompt.end(), ids.begin(), ids.end());
    ASSERT_LE(session.position(), prompt.size());
    prompt.resize(session.position());
    auto never_ahead = sync_.model->session();
    ASSERT_TRUE((*never_ahead)->feed(prompt).ok());
    const auto expected = (*never_ahead)->snapshot(), found = session.snapshot();
    ASSERT_TRUE(expected.ok() && found.ok()) << found.status().message();
    EXPECT_TRUE(*expected == *found) << "the states of " << prompt.size() << " tokens differ";
  }

  void expect_nothing_left() {
    EXPECT_EQ(model().runner().in_flight(), 0u);
    EXPECT_EQ(model().states().sessions(), 0u);
    EXPECT_EQ(model().states().slots().free(), slots_);
    EXPECT_EQ(model().states().pages().free(), pages_);
    EXPECT_EQ(report().violations, violations_);
  }

  TestModel sync_, late_;
  uint32_t slots_ = 0, pages_ = 0;
  uint64_t ahead_ = 0, violations_ = 0;
  std::mt19937 random_{7};
};

TEST_F(Ahead, DrawsWhatASynchronousDeviceDraws) {
  start(8);
  std::vector<Request> requests;
  for (int i = 0; i < 16; ++i) {
    requests.push_back(request_of(random_ids(random_, 1 + random_() % 100, vocab()), random_params(random_, vocab()),
                                  1 + random_() % 12));
    requests.back().path = SamplingPath::fused;
    if (i < 9) continue;  // these run ahead; some of the others must be waited for
    if (i % 5 == 0) requests.back().path = static_cast<SamplingPath>(i % 2);
    if (i % 6 == 0) {
      requests.back().mask = [](std::span<const int32_t> before, std::span<uint32_t> mask) {
        for (size_t w = 0; w < mask.size(); ++w) mask[w] = 0x11111111u << (w + before.size()) % 4;
      };
    }
  }
  std::vector<Drawn> together(requests.size());
  {
    std::vector<std::unique_ptr<Session>> sessions(requests.size());
    Batch batch(model(), {64});
    size_t next = 0;
    for (bool more = true; more || next < requests.size();) {
      while (next < requests.size() && batch.running_count() < 8 && model().states().sessions() < 8 &&
             random_() % 3 != 0) {
        sessions[next] = std::move(*model().session());
        Request r =
            request_of(requests[next].prompt, requests[next].sampling, requests[next].max_tokens, &together[next]);
        r.path = requests[next].path;
        r.mask = requests[next].mask;
        const auto added = batch.add(*sessions[next], std::move(r));
        ASSERT_TRUE(added.ok()) << added.status().message();
        ++next;
      }
      const auto stepped = batch.step();
      ASSERT_TRUE(stepped.ok()) << stepped.status().message();
      more = *stepped;
      for (size_t i = 0; i < next; ++i) {
        if (sessions[i] == nullptr || together[i].ids.size() != requests[i].max_tokens) continue;
        expect_seen(*sessions[i], requests[i].prompt, together[i].ids);
        sessions[i].reset();
      }
    }
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_TRUE(together[i] == draw_alone(*sync_.model, requests[i], *requests[i].path)) << "request " << i;
  }
  EXPECT_GT(report().ahead - ahead_, 10u) << "hardly a step ran ahead";
  expect_nothing_left();
}

// How a request ends, and its tokens until then.
struct Ending {
  StopReason reason;
  uint32_t tokens;
};

TEST_F(Ahead, AStopThatIsFoundLateLeavesNoTrace) {
  start(2);
  const SamplingParams params{.temperature = 1.0f, .presence_penalty = 0.3f, .seed = 5};
  const Request other = request_of(random_ids(random_, 9, vocab()), {.seed = 9}, 10);
  const Drawn of_other = draw_alone(*sync_.model, other, SamplingPath::fused);
  // The last tokens of these are on both sides of the border of a page.
  for (const uint32_t length : {58u, 64u}) {
    const std::vector<int32_t> prompt = random_ids(random_, length, vocab());
    const Drawn all = draw_alone(*sync_.model, request_of(prompt, params, 8), SamplingPath::fused);
    for (const Ending& ending :
         {Ending{StopReason::end, 7}, Ending{StopReason::callback, 6}, Ending{StopReason::length, 5},
          Ending{StopReason::cancelled, 6}, Ending{StopReason::end, 1}}) {
      SCOPED_TRACE(fmt::format("{} tokens, {} after {}", length, stop_name(ending.reason), ending.tokens));
      const int32_t last = all.ids[ending.tokens - 1];  // a stop id may come earlier, too
      const auto end = ending.reason == StopReason::end ? std::find(all.ids.begin(), all.ids.end(), last) + 1
                                                        : all.ids.begin() + ending.tokens;
      const std::vector<int32_t> expected(all.ids.begin(), end);
      auto session = model().session(), beside = model().session();
      Batch batch(model());
      Request r = request_of(prompt, params, ending.reason == StopReason::length ? ending.tokens : 8);
      if (ending.reason == StopReason::end) r.sampling.stop_ids = {last};
      uint32_t drawn = 0;
      r.on_token = [&](const TokenEvent&) { return ++drawn < ending.tokens || ending.reason != StopReason::callback; };
      const auto id = batch.add(**session, std::move(r));
      // Whoever takes the pages and slots that the stop gives back must find nothing of it, either.
      Drawn others;
      const auto second = batch.add(**beside, request_of(other.prompt, other.sampling, 10, &others));
      ASSERT_TRUE(id.ok() && second.ok());
      while (batch.running(*id)) {
        ASSERT_TRUE(batch.step().ok());
        if (ending.reason == StopReason::cancelled && drawn == ending.tokens) batch.cancel(*id);
      }
      const Outcome outcome = *batch.take(*id);
      EXPECT_EQ(outcome.stopped, ending.reason) << stop_name(outcome.stopped) << outcome.status.message();
      EXPECT_EQ(outcome.ids, expected);
      // A request that is cancelled may have been fed its last token, too.
      const uint64_t all_but_last = prompt.size() + outcome.ids.size() - 1;
      EXPECT_GE((*session)->position(), all_but_last);
      EXPECT_LE((*session)->position(), all_but_last + (ending.reason == StopReason::cancelled));
      expect_seen(**session, prompt, outcome.ids);
      run_all(batch);
      EXPECT_TRUE(others == of_other);
      expect_seen(**beside, other.prompt, others.ids);
    }
  }
  EXPECT_GT(report().ahead, ahead_);
  expect_nothing_left();
}

TEST_F(Ahead, NothingIsUnderWayWhenNothingRuns) {
  start(2);
  const std::vector<int32_t> prompt = random_ids(random_, 20, vocab());
  const Drawn all = draw_alone(*sync_.model, request_of(prompt, {.seed = 3}, 8), SamplingPath::fused);
  auto session = model().session(), other = model().session();
  Batch first(model()), second(model());
  Request r = request_of(prompt, {.seed = 3}, 50);
  r.on_token = [n = 0](const TokenEvent&) mutable { return ++n < 8; };
  const auto id = first.add(**session, std::move(r));
  ASSERT_TRUE(first.run(*id).ok());
  // The step that was submitted for the ninth token is not used: a session can be fed, another batch can step.
  const auto fed = (*other)->feed(prompt);
  ASSERT_TRUE(fed.ok()) << fed.status().message();
  (*other)->reset();
  Drawn drawn;
  const auto again = second.add(**other, request_of(prompt, {.seed = 3}, 8, &drawn));
  const Status ran = second.run(*again);
  ASSERT_TRUE(ran.ok()) << ran.message();
  EXPECT_TRUE(drawn == all);
  EXPECT_EQ(first.outcome(*id)->ids, all.ids);
}

TEST_F(Ahead, PartsOfAPromptAreSubmittedWhileTheOneBeforeRuns) {
  start(2, "500", {}, 64);
  {
    const std::vector<int32_t> prompt = random_ids(random_, 300, vocab());
    auto session = model().session(), same = sync_.model->session();
    const auto fed = (*session)->feed(prompt, 2), expected = (*same)->feed(prompt, 2);
    ASSERT_TRUE(fed.ok() && expected.ok()) << fed.status().message();
    EXPECT_THAT(*fed, testing::ElementsAreArray(*expected));
    EXPECT_EQ(report().ahead - ahead_, 4u) << "all five but the first";
    expect_seen(**session, prompt, {});
  }
  expect_nothing_left();
}

// The device is lost in a part, or a part is refused, after which the session can continue.
TEST_F(Ahead, APromptOfWhichAPartFailsLeavesNothingUnderWay) {
  const std::vector<int32_t> prompt = random_ids(random_, 300, 4096);
  for (const uint32_t list : {1, 3, 5}) {
    for (const char* how : {"fail", "refuse"}) {
      SCOPED_TRACE(how + std::to_string(list));
      start(2, "50", {{how, std::to_string(list)}}, 64);
      {
        auto session = model().session();
        EXPECT_FALSE((*session)->feed(prompt).ok());
        EXPECT_EQ(model().runner().in_flight(), 0u);
        const bool refused = how == std::string("refuse");
        EXPECT_EQ((*session)->position(), refused ? 64 * (list - 1) : 0);
        if (refused) {
          ASSERT_TRUE((*session)->feed(std::span(prompt).subspan((*session)->position())).ok());
          expect_seen(**session, prompt, {});
        }
      }
      expect_nothing_left();
    }
  }
}

TEST_F(Ahead, TwoBatchesTakeNoStepsFromEachOther) {
  start(2);
  auto one = model().session(), two = model().session();
  Batch first(model()), second(model());
  const auto a = first.add(**one, request_of(random_ids(random_, 5, vocab()), {.seed = 3}, 10));
  Drawn drawn;
  const Request r = request_of(random_ids(random_, 5, vocab()), {.seed = 4}, 10, &drawn);
  const auto b = second.add(**two, r);
  ASSERT_TRUE(first.step().ok());
  const auto stepped = second.step();
  ASSERT_FALSE(stepped.ok());
  EXPECT_THAT(stepped.status().message(), HasSubstr("another batch of this model is running a step"));
  EXPECT_TRUE(first.running(*a) && second.running(*b));
  ASSERT_TRUE(first.run(*a).ok());
  ASSERT_TRUE(second.run(*b).ok());
  EXPECT_TRUE(drawn == draw_alone(*sync_.model, r, SamplingPath::fused));
}

TEST_F(Ahead, CancelsLeaveTheOthersAlone) {
  start(6, "30");
  Drawn survivor;
  const Request kept = request_of(random_ids(random_, 70, vocab()), {.frequency_penalty = 0.2f, .seed = 1}, 60);
  {
    Batch batch(model(), {32});
    auto session = model().session();
    const auto id = batch.add(**session, request_of(kept.prompt, kept.sampling, kept.max_tokens, &survivor));
    ASSERT_TRUE(id.ok());
    struct Other {
      Batch::Id id;
      std::vector<int32_t> prompt;
      std::unique_ptr<Session> session;
    };
    std::vector<Other> others;
    while (batch.running(*id)) {
      if (others.size() < 5) {
        Other o{0, random_ids(random_, 1 + random_() % 90, vocab()), std::move(*model().session())};
        const auto added = batch.add(*o.session, request_of(o.prompt, random_params(random_, vocab()), 100));
        ASSERT_TRUE(added.ok()) << added.status().message();
        o.id = *added;
        others.push_back(std::move(o));
      }
      ASSERT_TRUE(batch.step().ok());
      if (random_() % 3 != 0) continue;
      const size_t victim = random_() % others.size();
      batch.cancel(others[victim].id);
      const Outcome outcome = *batch.take(others[victim].id);
      if (others[victim].session->position() > 0) {
        expect_seen(*others[victim].session, others[victim].prompt, outcome.ids);
      }
      others.erase(others.begin() + static_cast<ptrdiff_t>(victim));
    }
    for (const Other& o : others) batch.cancel(o.id);
  }
  EXPECT_TRUE(survivor == draw_alone(*sync_.model, kept, SamplingPath::fused));
  expect_nothing_left();
}

// The device is lost at some list of some step: every request ends with that error, and nothing hangs or leaks.
TEST_F(Ahead, ALostDeviceEndsEveryRequest) {
  for (const char* list : {"1", "2", "3", "4", "6", "9"}) {
    SCOPED_TRACE(list);
    start(2, "50", {{"fail", list}});
    {
      auto one = model().session(), two = model().session();
      Batch batch(model());
      const auto a = batch.add(**one, request_of(random_ids(random_, 5, vocab()), {.seed = 3}, 50));
      const auto b = batch.add(**two, request_of(random_ids(random_, 100, vocab()), {.seed = 3}, 50));
      Status status;
      while (status.ok()) {
        const auto stepped = batch.step();
        status = stepped.status();
        ASSERT_TRUE(!stepped.ok() || *stepped) << "it went on";
      }
      EXPECT_EQ(status.code(), Code::device_lost) << status.message();
      EXPECT_THAT(status.message(),
                  testing::HasSubstr("the device fell off; this process cannot use the device any more"));
      for (const Batch::Id id : {*a, *b}) {
        const Outcome outcome = *batch.take(id);
        EXPECT_EQ(outcome.stopped, StopReason::failed);
        EXPECT_THAT(outcome.status.message(), HasSubstr("the device fell off"));
      }
      EXPECT_EQ((*one)->position() + (*two)->position(), 0u);
    }
    expect_nothing_left();
  }
}

// A list that is refused in the middle of a step whose first part is in flight: the requests end, the sessions can
// continue.
TEST_F(Ahead, ARefusedListIsWaitedFor) {
  const Request r = request_of(random_ids(random_, 40, 4096), {.seed = 3}, 8);
  const Drawn expected = draw_alone(*sync_.model, r, SamplingPath::fused);
  for (const char* list : {"1", "2", "3", "4", "6"}) {
    SCOPED_TRACE(list);
    start(2, "500", {{"refuse", list}});
    {
      auto session = model().session();
      Batch batch(model());
      const auto id = batch.add(**session, request_of(r.prompt, r.sampling, r.max_tokens));
      EXPECT_THAT(batch.run(*id).message(), HasSubstr("not this one"));
      EXPECT_EQ(batch.take(*id)->stopped, StopReason::failed);
      EXPECT_EQ((*session)->position(), 0u);
      Drawn drawn;
      const auto again = batch.add(**session, request_of(r.prompt, r.sampling, r.max_tokens, &drawn));
      ASSERT_TRUE(batch.run(*again).ok());
      EXPECT_TRUE(drawn == expected);
    }
    expect_nothing_left();
  }
}

// A wait that the backend cancelled (swy.cancel/1) ends the requests; its timeline has failed, but the model goes on.
TEST_F(Ahead, ACancelledWaitEndsTheRequestsAlone) {
  const Request r = request_of(random_ids(random_, 40, 4096), {.seed = 3}, 8);
  const Drawn expected = draw_alone(*sync_.model, r, SamplingPath::fused);
  start(1, "500");
  {
    auto session = model().session();
    Batch batch(model());
    report().cancel = true;
    const auto id = batch.add(**session, request_of(r.prompt, r.sampling, r.max_tokens));
    const Status cancelled = batch.run(*id);
    EXPECT_EQ(cancelled.code(), Code::cancelled) << cancelled.message();
    EXPECT_EQ(batch.take(*id)->stopped, StopReason::failed);
    (*session)->reset();
    Drawn drawn;
    const auto again = batch.add(**session, request_of(r.prompt, r.sampling, r.max_tokens, &drawn));
    ASSERT_TRUE(batch.run(*again).ok());
    EXPECT_TRUE(drawn == expected);
  }
  expect_nothing_left();
}

TEST_F(Ahead, ModelsWaitForTheirDevicesBeforeTheyGo) {
  start(1);
  LateReport& r = report();
  for (const bool sampling : {false, true}) {
    ModelOptions options = options_for(1);
    options.device_sampling = sampling;
    late_ = {};
    late_ = make_model(kDemo, "late", options, SWITCHYARD_FIXTURES, {{"late", {{"delay", "3000"}}}});
    auto session = model().session();
    ASSERT_TRUE((*session)->feed(random_ids(random_, 20, vocab()), 0).ok());
    session->reset();  // no results were wanted, so nothing was waited for
    late_ = {};
    EXPECT_EQ(r.violations, violations_);
  }
}

}  // namespace
}  // namespace switchyard
