// SPDX-License-Identifier: Apache-2.0
// The prefix cache: what it saves, and that no request draws anything else because of it.
#include <map>

#include "core/serve/prefix_cache.h"
#include "tests/serve/interleavings.h"

namespace switchyard {
namespace {

ModelOptions caching(uint32_t sessions, uint32_t checkpoints, bool deterministic) {
  ModelOptions o = options_for(sessions, deterministic);
  o.checkpoints = checkpoints;
  return o;
}

Read answer(Service& service, const GenerationRequest& request) {
  Admission admission = service.submit(request);
  EXPECT_TRUE(admission.ok()) << admission.rejection.status.message();
  return admission.ok() ? read_all(*admission.ticket) : Read{};
}

// The prompt of the next turn: the last one, its answer, and more.
std::vector<int32_t> next_turn(std::vector<int32_t> prompt, const std::vector<int32_t>& answer, size_t n) {
  prompt.insert(prompt.end(), answer.begin(), answer.end());
  const auto more = prompt_of(n, 77);
  prompt.insert(prompt.end(), more.begin(), more.end());
  return prompt;
}

// With --deterministic a hit is equal bit for bit; otherwise on a backend that computes every row by itself.
class Caches : public ::testing::TestWithParam<bool> {
 protected:
  static std::string backend() { return GetParam() ? kBackend : "reference"; }
};

TEST_P(Caches, AConversationReadsOnlyWhatIsNew) {
  const ModelOptions options = caching(1, 8, GetParam());
  const auto service = serve(options, {}, backend());
  Alone alone(options, backend());
  std::vector<int32_t> prompt = prompt_of(130, 1);
  uint32_t known = 0;
  for (uint32_t turn = 0; turn < 3; ++turn) {
    const GenerationRequest request = ask(prompt, 6, seeded(turn));
    const Read got = answer(*service, request);
    EXPECT_EQ(got.ids, alone.ids(request)) << turn;
    EXPECT_EQ(got.finish.usage.cached_tokens, known);
    // All but the last drawn token; with --deterministic, whole parts of the prompt.
    known = static_cast<uint32_t>(GetParam() ? (prompt.size() - 1) / 64 * 64 : prompt.size() + 5);
    prompt = next_turn(prompt, got.ids, 70);
  }
  const ServiceStats s = service->stats();
  EXPECT_EQ(s.cache_queries, 3u);
  EXPECT_EQ(s.cache_hits, 2u);
  EXPECT_EQ(s.computed_prompt_tokens + s.cache_hit_tokens, s.prompt_tokens);
}

// The template drops the reasoning of the last answer: the texts part where the answer began.
TEST_P(Caches, ATextThatPartsEarlierIsUsedUpToACheckpoint) {
  const ModelOptions options = caching(1, 8, GetParam());
  const auto service = serve(options, {}, backend());
  Alone alone(options, backend());
  GenerationRequest first = ask(prompt_of(200, 1), 4, seeded(1));
  first.checkpoints = {64, 140};
  (void)answer(*service, first);
  GenerationRequest second = first;
  second.prompt.resize(150);
  second.prompt.insert(second.prompt.end(), {5, 6, 7});
  const Read got = answer(*service, second);
  EXPECT_EQ(got.ids, alone.ids(second));
  EXPECT_EQ(got.finish.usage.cached_tokens, GetParam() ? 128u : 140u);
  // Nobody named the place where a third text parts, but it is kept then.
  GenerationRequest third = ask(first.prompt, 4, seeded(2));
  third.prompt.resize(100);
  third.prompt.insert(third.prompt.end(), {8, 9, 10, 11});
  EXPECT_EQ(answer(*service, third).finish.usage.cached_tokens, 64u);
  third.prompt[101] = 1;
  const Read fourth = answer(*service, third);
  EXPECT_EQ(fourth.ids, alone.ids(third));
  EXPECT_EQ(fourth.finish.usage.cached_tokens, GetParam() ? 64u : 100u);
}
INSTANTIATE_TEST_SUITE_P(Ways, Caches, ::testing::Bool(),
                         [](const auto& way) { return way.param ? "deterministic" : "plain"; });

TEST(PrefixCache, ScopesShareNothing) {
  const auto service = serve(caching(1, 8, false));
  GenerationRequest request = ask(prompt_of(150, 1), 2, seeded(1));
  (void)answer(*service, request);
  request.cache_scope = "another tenant";
  EXPECT_EQ(answer(*service, request).finish.usage.cached_tokens, 0u);
  request.cache = false;
  EXPECT_EQ(answer(*service, request).finish.usage.cached_tokens, 0u);
  request.cache = true;
  request.cache_scope = {};
  EXPECT_EQ(answer(*service, request).finish.usage.cached_tokens, 128u);
}

TEST(PrefixCache, StatesMoveToTheHostAndAreGivenUp) {
  const ModelOptions options = caching(1, 1, true);
  uint64_t one = 0;
  {
    const LoadedModel model = load_demo(options);
    auto session = model.model->session();
    ASSERT_TRUE((*session)->feed(prompt_of(128, 1)).ok());
    one = (*session)->snapshot()->size();
  }
  ServiceOptions limits;
  limits.cache_host_bytes = 2 * one + one / 2;  // two
  const auto service = serve(options, limits);
  Alone alone(options);
  std::vector<GenerationRequest> requests;
  for (uint32_t i = 0; i < 4; ++i) requests.push_back(ask(prompt_of(150, i), 3, seeded(i)));
  for (const GenerationRequest& r : requests) (void)answer(*service, r);
  const ServiceStats s = service->stats();
  EXPECT_EQ(s.checkpoints, 3u) << "one on the device, two in host memory";
  EXPECT_EQ(s.cached_host_bytes, 2 * one);
  EXPECT_EQ(s.cache_evictions, 1u);
  EXPECT_EQ(s.cached_tokens, 3u * 128);
  const Read oldest = answer(*service, requests[1]);  // from the host
  EXPECT_EQ(oldest.finish.usage.cached_tokens, 128u);
  EXPECT_EQ(oldest.ids, alone.ids(requests[1]));
  EXPECT_EQ(answer(*service, requests[0]).finish.usage.cached_tokens, 0u) << "it was given up";
}

TEST(PrefixCache, WhatIsKeptMakesRoomForRequests) {
  const ModelOptions options = with_pages(caching(2, 6, true), 6);
  const auto service = serve(options);
  Alone alone(options);
  for (uint32_t i = 0; i < 4; ++i) {
    const GenerationRequest request = ask(prompt_of(180 + i, i), 20, seeded(i));
    EXPECT_EQ(answer(*service, request).ids, alone.ids(request)) << i;
  }
  EXPECT_EQ(service->stats().set_asides, 0u);
}

ModelOptions with_layer(ModelOptions o) {
  o.drafts = 7;
  o.mtp = o.hidden = true;
  return o;
}

// Measurements of a layer whose guesses are all wrong and take as long as steps, or good and cheap.
void learn(Service& service, bool pays) {
  const Status told = service.on_loop([&](Model& model) -> Status {
    DraftedStep plain{.rows = 1, .seqs = 1, .tokens = 1, .ns = 1'000'000'000}, drafted = plain;
    drafted.rows = 2, drafted.ns += 10'000'000;
    drafted.tokens = pays ? 2 : 1;
    drafted.computed = drafted.drafting = 1;
    drafted.drafting_ns = pays ? 10'000'000 : 1'000'000'000;
    for (int i = 0; i < (pays ? 400 : 10); ++i) {
      model.draft_policy().stepped(plain);
      model.draft_policy().stepped(drafted);
    }
    model.draft_policy().usual("mtp", 0.5).start(pays ? 0.9 : 0);
    return {};
  });
  EXPECT_TRUE(told.ok()) << told.message();
}

// A text that was read while the layer's guesses did not pay goes on with the layer when they do.
TEST(PrefixCache, HasTheLayersStatesAlsoWhereItDoesNotPay) {
  ServiceOptions options;
  options.speculate = Speculation::automatic;
  const auto service = serve(with_layer(caching(1, 8, false)), options);
  learn(*service, false);
  GenerationRequest request = ask(prompt_of(150, 3), 8, seeded(1));
  const Read first = answer(*service, request);
  EXPECT_EQ(first.finish.drafts.all_drafted(), 0u);
  learn(*service, true);
  request.prompt = next_turn(request.prompt, first.ids, 20);
  const Read second = answer(*service, request);
  EXPECT_EQ(second.finish.usage.cached_tokens, 157u);
  EXPECT_GT(second.finish.drafts.all_drafted(), 0u);
}

// All that goes on from states without the layer's would have to do without the layer, too.
TEST(PrefixCache, KeepsNoStatesWithoutTheLayers) {
  const LoadedModel loaded = load_demo(with_layer(caching(1, 2, false)));
  ASSERT_NE(loaded.model, nullptr);
  Model& model = *loaded.model;
  PrefixCache cache(model, {.bytes = UINT64_MAX});
  const std::vector<int32_t> text = prompt_of(101, 1);
  const auto seen = std::span(text).first(100);
  const auto session = *model.session();
  ASSERT_TRUE(session->feed(seen).ok());
  cache.keep("", seen, *session);
  EXPECT_EQ(cache.totals().checkpoints, 0u);
  EXPECT_EQ(cache.find("", text).common, 0u);
  session->reset();
  ASSERT_TRUE(session->feed(seen).ok());
  std::vector<float> rows(seen.size() * model.hidden_width());
  ASSERT_TRUE(model.read_hidden(0, rows).ok());
  session->trail().saw(0, seen, rows);
  cache.keep("", seen, *session);
  EXPECT_EQ(cache.totals().checkpoints, 1u);
  EXPECT_EQ(cache.find("", text).position, 100u);
}

// Hits, forks, cancels and requests that are set aside, in any order. How many are set aside depends on the timing.
TEST(PrefixCache, RandomInterleavingsDrawTheSame) {
  Interleavings::Totals all;
  for (const uint32_t seed : {1u, 2u, 3u}) {
    const Interleavings::Totals t = Interleavings(seed).run(40);
    all.hits += t.hits;
    all.cancelled += t.cancelled;
  }
  EXPECT_GT(all.hits, 5u);
  EXPECT_GT(all.cancelled, 0u);
}

}  // namespace
}  // namespace switchyard
