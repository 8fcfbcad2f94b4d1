// SPDX-License-Identifier: Apache-2.0
// The likelihood of given texts, beside the requests of a service.
#include "core/serve/score.h"

#include "tests/serve/fixture.h"

namespace switchyard {
namespace {

TEST(Score, RefusesWhatTheModelCannotRead) {
  const auto service = serve(options_for(1));
  const std::vector<int32_t> ids = {1, 2147483000}, negative = {1, -1};
  EXPECT_EQ(score_text(*service, ids, 1).status().code(), Code::usage);
  EXPECT_EQ(score_text(*service, negative, 1).status().code(), Code::usage);
  const auto longer = prompt_of(service->loaded().model->context() + 1);
  EXPECT_EQ(score_text(*service, longer, 1).status().code(), Code::usage);
}

TEST(Score, IsTheSameInSmallerParts) {
  const auto ids = prompt_of(50);
  ModelOptions options = options_for(1, false);  // chunks of --deterministic are larger
  const auto whole = score_text(*serve(options, {}, "reference"), ids, 3);
  options.chunk = 8;
  const auto service = serve(options, {}, "reference");
  ASSERT_LT(service->loaded().model->chunk(), 32u);
  const auto parts = score_text(*service, ids, 3), alone = score_text(*service, ids, 0);
  ASSERT_TRUE(whole.ok() && parts.ok() && alone.ok());
  ASSERT_EQ(whole->size(), 49u);
  ASSERT_EQ(parts->size(), 49u);
  for (size_t i = 0; i < whole->size(); ++i) {
    EXPECT_NEAR((*whole)[i].logprob, (*parts)[i].logprob, 1e-3) << i;
    EXPECT_NEAR((*alone)[i].logprob, (*parts)[i].logprob, 1e-5) << i;
    EXPECT_TRUE((*alone)[i].top.empty());
    const auto& top = (*parts)[i].top;
    ASSERT_EQ(top.size(), 3u);
    for (size_t k = 0; k < 3; ++k) EXPECT_NEAR(top[k].second, (*whole)[i].top[k].second, 1e-3) << i;
    EXPECT_GE(top[0].second, top[1].second);
    EXPECT_GE(top[1].second, top[2].second);
    EXPECT_GE(top[0].second, (*parts)[i].logprob);
    for (const auto& [id, logprob] : top) {
      if (id == ids[i + 1]) {
        EXPECT_EQ(logprob, (*parts)[i].logprob) << "of the same token";
      }
    }
  }
}

TEST(Score, EndsWhenNobodyWaits) {
  const auto service = serve(options_for(1));
  int asked = 0;
  const auto scores = score_text(*service, prompt_of(100), 0, [&] { return ++asked < 3; });
  EXPECT_EQ(scores.status().code(), Code::cancelled);
  EXPECT_EQ(asked, 3);
  uint32_t used = 1;
  ASSERT_TRUE(service
                  ->on_loop([&](Model& model) {
                    used = model.states().pages().count() - model.states().pages().free();
                    return Status();
                  })
                  .ok());
  EXPECT_EQ(used, 0u);
}

TEST(Score, ThePrefixCacheMakesRoom) {
  ModelOptions options = options_for(2);
  options.checkpoints = 6;
  const auto service = serve(with_pages(options, 6));
  EXPECT_EQ(read_all(*service->submit(ask(prompt_of(180, 1), 2)).ticket).finish.reason, "length");
  EXPECT_EQ(read_all(*service->submit(ask(prompt_of(180, 2), 2)).ticket).finish.reason, "length");
  ASSERT_GT(service->stats().pages_used, 2u);
  const auto scores = score_text(*service, prompt_of(300, 3), 0);
  ASSERT_TRUE(scores.ok()) << scores.status().message();
  EXPECT_EQ(scores->size(), 299u);
}

// The one session is taken, and no request runs.
TEST(Score, ARequestWaitsForItsSession) {
  ModelOptions options = options_for(1);
  options.checkpoints = 4;
  const auto service = serve(options);
  EXPECT_EQ(read_all(*service->submit(ask(prompt_of(180), 2)).ticket).finish.reason, "length");
  ASSERT_GT(service->stats().pages_used, 0u);
  const uint32_t pages = service->stats().pages_used;
  std::unique_ptr<Session> taken;
  ASSERT_TRUE(service
                  ->on_loop([&](Model& model) -> Status {
                    SWY_LET(taken, model.session());
                    return {};
                  })
                  .ok());
  EXPECT_EQ(score_text(*service, prompt_of(40), 0).status().code(), Code::out_of_device_memory);
  Admission waits = service->submit(ask(prompt_of(180), 3));
  EXPECT_FALSE(waits.ticket->wait(100'000'000).has_value());
  EXPECT_EQ(service->stats().pages_used, pages) << "the prefix cache keeps its states";
  ASSERT_TRUE(service
                  ->on_loop([&](Model&) -> Status {
                    taken.reset();
                    return {};
                  })
                  .ok());
  const Read all = read_all(*waits.ticket);
  EXPECT_EQ(all.finish.reason, "length") << all.finish.status.message();
  EXPECT_GT(all.finish.usage.cached_tokens, 0u);
}

}  // namespace
}  // namespace switchyard
