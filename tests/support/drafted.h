// SPDX-License-Identifier: Apache-2.0
// A request with and without drafts: what it draws, and the states that it leaves.
#pragma once

#include <string>
#include <string_view>

#include "core/draft/ngram.h"
#include "tests/support/batches.h"
#include "tests/support/drafters.h"

namespace switchyard {

#ifdef SWITCHYARD_TEST_CPU
inline constexpr char kFast[] = "cpu";
#else
inline constexpr char kFast[] = "reference";
#endif

// `pending`: rows of drafts may stay pending; otherwise those that stand are computed again.
inline ModelOptions drafting(uint32_t sessions, uint32_t drafts = 7, bool pending = true) {
  ModelOptions o = options_for(sessions);
  o.drafts = drafts;
  o.pending_rows = pending;
  return o;
}

// The same of a model that also runs its multi-token prediction layer.
inline ModelOptions with_layer(ModelOptions o) {
  o.mtp = o.hidden = true;
  return o;
}

// What a request drew, how it ended, and its session's states once these have seen every drawn token but the last.
struct Drafted {
  Drawn drawn;
  Outcome outcome;
  std::string states;
};

// The session's states after `whole`.
inline std::string states_after(Session& session, std::span<const int32_t> whole) {
  const std::span<const int32_t> rest = whole.subspan(session.position());
  if (!rest.empty()) {
    const auto fed = session.feed(rest);
    EXPECT_TRUE(fed.ok()) << fed.status().message();
  }
  const auto bytes = session.snapshot();
  EXPECT_TRUE(bytes.ok()) << bytes.status().message();
  return bytes.ok() ? *bytes : std::string();
}

// The states of the trunk in a snapshot of a model with the layer, whose own come last. `plain_size`: that of the same
// session without the layer.
inline std::string_view trunk_of(const std::string& snapshot, size_t plain_size) {
  constexpr size_t kHeader = 24, kChecksum = 8;
  return std::string_view(snapshot).substr(kHeader, plain_size - kHeader - kChecksum);
}

// Runs `as` on `session`, which is empty or has seen its history. `drafter`: null for none.
inline Drafted run_drafted(Session& session, const Request& as, std::shared_ptr<Drafter> drafter) {
  Drafted d;
  Batch batch(session.model());
  Request r = request_of(as.prompt, as.sampling, as.max_tokens, &d.drawn);
  r.history = as.history;
  r.mask = as.mask;
  r.path = as.path;
  if (drafter != nullptr) r.drafters.push_back(std::move(drafter));
  r.draft_always = true;
  const auto id = batch.add(session, std::move(r));
  EXPECT_TRUE(id.ok()) << id.status().message();
  if (!id.ok()) return d;
  const Status ran = batch.run(*id);
  EXPECT_TRUE(ran.ok()) << ran.message();
  d.outcome = *batch.take(*id);
  EXPECT_TRUE(d.outcome.status.ok()) << d.outcome.status.message();
  std::vector<int32_t> whole = as.history;
  whole.insert(whole.end(), as.prompt.begin(), as.prompt.end());
  whole.insert(whole.end(), d.drawn.ids.begin(), d.drawn.ids.end() - 1);
  d.states = states_after(session, whole);
  return d;
}

inline std::vector<int32_t> whole_of(const Request& r, const Drawn& drawn) {
  std::vector<int32_t> whole = r.history;
  whole.insert(whole.end(), r.prompt.begin(), r.prompt.end());
  whole.insert(whole.end(), drawn.ids.begin(), drawn.ids.end());
  return whole;
}

// A third of the tokens, other ones for every position.
inline void allow_a_third(std::span<const int32_t> before, std::span<uint32_t> mask) {
  for (size_t word = 0; word < mask.size(); ++word) mask[word] = 0x49249249u << (word + before.size()) % 3;
}

// Text that repeats itself, so that the n-gram drafter has something to go by.
inline std::vector<int32_t> repeating_prompt(std::mt19937& random, uint32_t vocab) {
  const std::vector<int32_t> part = random_ids(random, 5 + random() % 10, vocab);
  std::vector<int32_t> ids;
  for (size_t i = 0; i < 4; ++i) ids.insert(ids.end(), part.begin(), part.end());
  return ids;
}

// Random settings of the chain, every fourth with masks.
inline Request random_request(std::mt19937& random, uint32_t vocab, uint32_t tokens) {
  Request r = request_of(repeating_prompt(random, vocab), random_params(random, vocab), tokens);
  if (random() % 4 == 0) r.mask = allow_a_third;
  return r;
}

// The same tokens, with their log-probabilities, and the same states with every kind of drafter. Returns the tokens
// that were accepted.
inline uint64_t expect_same_with_drafts(Model& model, const Request& request, const std::string& what) {
  auto session = *model.session();
  const Drafted plain = run_drafted(*session, request, nullptr);
  EXPECT_EQ(plain.outcome.drafts.all_drafted(), 0u);
  uint64_t accepted = 0;
  const std::vector<int32_t> whole = whole_of(request, plain.drawn);
  const auto check = [&](std::shared_ptr<Drafter> drafter, const char* name) {
    session->reset();
    const Drafted d = run_drafted(*session, request, std::move(drafter));
    EXPECT_TRUE(d.drawn == plain.drawn) << what << ", " << name;
    EXPECT_TRUE(d.states == plain.states) << what << ", " << name;
    EXPECT_EQ(d.outcome.stopped, plain.outcome.stopped) << what << ", " << name;
    accepted += d.outcome.drafts.all_accepted();
    return d.outcome;
  };
  for (const Guess g : kGuesses) {
    const Outcome o = check(std::make_shared<KnowingDrafter>(whole, g, model.vocab(), 5), guess_name(g));
    if (g == Guess::right) {
      EXPECT_EQ(o.drafts.all_accepted(), o.drafts.all_drafted()) << what;
    } else if (g == Guess::wrong) {
      EXPECT_EQ(o.drafts.all_accepted(), 0u) << what;
    }
    EXPECT_TRUE(plain.drawn.ids.size() < 3 || g == Guess::random || o.drafts.all_drafted() > 0)
        << what << ", " << guess_name(g);
  }
  check(std::make_shared<NgramDrafter>(NgramLimits{.least = 3}), "n-grams");
  return accepted;
}

}  // namespace switchyard
