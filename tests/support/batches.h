// SPDX-License-Identifier: Apache-2.0
// Requests with random settings for tests of batches, and their tokens.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

#include "core/engine/batch.h"

namespace switchyard {

inline ModelOptions options_for(uint32_t sessions, bool deterministic = true) {
  ModelOptions o;
  o.sessions = sessions;
  o.context = 512;
  o.deterministic = deterministic;
  return o;
}

inline std::vector<int32_t> random_ids(std::mt19937& random, size_t n, uint32_t vocab) {
  std::vector<int32_t> ids(n);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % vocab);
  return ids;
}

// Any setting that the chain has.
inline SamplingParams random_params(std::mt19937& random, uint32_t vocab) {
  const auto chance = [&] { return random() % 2 == 0; };
  const auto between = [&](float lo, float hi) { return std::uniform_real_distribution<float>(lo, hi)(random); };
  SamplingParams p;
  p.seed = random();
  p.temperature = random() % 5 == 0 ? 0.0f : between(0.3f, 2.0f);
  p.top_p = chance() ? 1.0f : between(0.3f, 1.0f);
  p.min_p = chance() ? 0.0f : between(0.0f, 0.2f);
  p.top_k = chance() ? 0 : static_cast<int32_t>(1 + random() % 200);
  if (chance()) p.repetition_penalty = between(0.8f, 1.5f);
  if (chance()) p.presence_penalty = between(-1.0f, 1.0f);
  if (chance()) p.frequency_penalty = between(-0.5f, 0.5f);
  if (chance()) p.biases = {{static_cast<uint32_t>(random() % vocab), between(-3.0f, 3.0f)}};
  if (chance()) p.top_logprobs = 1 + random() % 8;
  return p;
}

struct Drawn {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  std::vector<int32_t> top;
  bool operator==(const Drawn&) const = default;
};

// Ids of the demo.
inline const std::vector<int32_t> kShortPrompt = {3, 1, 4, 1, 5, 9, 2, 6};

// `drawn`, which outlives the request, gets its tokens.
inline Request request_of(std::vector<int32_t> prompt, const SamplingParams& params, uint32_t tokens,
                          Drawn* drawn = nullptr) {
  Request r;
  r.prompt = std::move(prompt);
  r.max_tokens = tokens;
  r.sampling = params;
  if (drawn != nullptr) {
    r.on_token = [drawn](const TokenEvent& e) {
      drawn->ids.push_back(e.id);
      drawn->logprobs.push_back(e.logprob);
      drawn->top.insert(drawn->top.end(), e.top_ids.begin(), e.top_ids.end());
      return true;
    };
  }
  return r;
}

// The tokens of a request like `as` alone in its steps.
inline Drawn draw_alone(Model& model, const Request& as, SamplingPath path) {
  Drawn drawn;
  auto session = model.session();
  EXPECT_TRUE(session.ok()) << session.status().message();
  Batch batch(model);
  Request r = request_of(as.prompt, as.sampling, as.max_tokens, &drawn);
  r.path = path;
  r.mask = as.mask;
  const auto id = batch.add(**session, std::move(r));
  EXPECT_TRUE(id.ok()) << id.status().message();
  if (!id.ok()) return drawn;
  EXPECT_TRUE(batch.run(*id).ok());
  EXPECT_EQ(batch.outcome(*id)->path.path, path);
  EXPECT_TRUE(batch.outcome(*id)->status.ok()) << batch.outcome(*id)->status.message();
  return drawn;
}

// Steps until nothing is left to do.
inline void run_all(Batch& batch) {
  for (bool more = true; more;) {
    const auto stepped = batch.step();
    ASSERT_TRUE(stepped.ok()) << stepped.status().message();
    more = *stepped;
  }
}

}  // namespace switchyard
