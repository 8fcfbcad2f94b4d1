// SPDX-License-Identifier: Apache-2.0
// Sessions on the demo model: how a prompt is divided, and the rest of the step, must not change a bit of `reference`.
#include <algorithm>
#include <cstring>
#include <random>

#include "tests/engine/fixture.h"

namespace switchyard {
namespace {

std::vector<int32_t> random_ids(size_t n, uint32_t vocab, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(n);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % vocab);
  return ids;
}

std::vector<float> copy(const Result<std::span<const float>>& logits) {
  EXPECT_TRUE(logits.ok()) << logits.status().message();
  return logits.ok() ? std::vector<float>(logits->begin(), logits->end()) : std::vector<float>();
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return !a.empty() && a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

// The last logits of a prompt, and those after four more tokens.
std::vector<float> prompt_logits(Model& model, const std::vector<int32_t>& ids, uint32_t chunk) {
  auto session = model.session();
  EXPECT_TRUE(session.ok());
  std::vector<float> out = copy((*session)->feed(ids, 1, chunk));
  for (const int32_t id : {7, 300, 12, 4000}) {
    const std::vector<float> next = copy((*session)->feed({&id, 1}));
    out.insert(out.end(), next.begin(), next.end());
  }
  return out;
}

TEST(Session, ChunkedPrefillEqualsTokenByToken) {
  const TestModel t = make_model(kDemo);
  ASSERT_NE(t.model, nullptr);
  for (const size_t length : {1, 2, 63, 65, 129}) {  // chunk_matrix_test has more
    const std::vector<int32_t> ids = random_ids(length, t.model->vocab(), static_cast<uint32_t>(length));
    const std::vector<float> one_by_one = prompt_logits(*t.model, ids, 1);
    for (const uint32_t chunk : {16u, 512u}) {
      EXPECT_TRUE(same_bits(one_by_one, prompt_logits(*t.model, ids, chunk)))
          << length << " tokens, chunks of " << chunk;
    }
  }
}

TEST(Session, AllLogitsOfAChunkAreThoseOfItsTokens) {
  const TestModel t = make_model(kDemo);
  ASSERT_NE(t.model, nullptr);
  const std::vector<int32_t> ids = random_ids(37, t.model->vocab(), 1);
  auto whole = t.model->session();
  const std::vector<float> all = copy((*whole)->feed(ids, 37));
  ASSERT_EQ(all.size(), size_t{37} * t.model->vocab());
  (*whole)->reset();
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::vector<float> one = copy((*whole)->feed({&ids[i], 1}));
    ASSERT_EQ(std::memcmp(one.data(), all.data() + i * t.model->vocab(), one.size() * 4), 0) << "token " << i;
  }
}

#ifdef SWITCHYARD_TEST_CPU
// Attention on cpu takes 256 positions at a time; with one row it spreads them over its threads, with many it does not.
TEST(Session, ATokenAloneEqualsItsChunkAtTheEdgeOfCpusSplits) {
  ModelOptions options;
  options.deterministic = true;
  const TestModel t = make_model(kDemo, "cpu", options);
  ASSERT_NE(t.model, nullptr);
  const std::vector<int32_t> ids = random_ids(280, t.model->vocab(), 9);
  const size_t vocab = t.model->vocab();
  auto whole = t.model->session();
  ASSERT_TRUE((*whole)->feed(std::span(ids).first(250)).ok());
  const std::vector<float> chunk = copy((*whole)->feed(std::span(ids).subspan(250, 30), 30));
  ASSERT_EQ(chunk.size(), 30 * vocab);
  (*whole)->reset();
  ASSERT_TRUE((*whole)->feed(std::span(ids).first(250)).ok());
  for (size_t i = 0; i < 30; ++i) {
    const std::vector<float> one = copy((*whole)->feed({&ids[250 + i], 1}));
    EXPECT_TRUE(std::memcmp(one.data(), chunk.data() + i * vocab, vocab * 4) == 0) << "position " << 250 + i;
  }
}
#endif

TEST(Session, RaggedStepsEqualEachSessionAlone) {
  ModelOptions options;
  options.sessions = 3;
  const TestModel t = make_model(kDemo, "reference", options);
  ASSERT_NE(t.model, nullptr);
  const uint32_t vocab = t.model->vocab();
  const std::vector<std::vector<int32_t>> prompts = {random_ids(5, vocab, 2), random_ids(70, vocab, 3),
                                                     random_ids(1, vocab, 4)};
  std::vector<std::vector<float>> alone;
  for (const auto& ids : prompts) {
    auto s = t.model->session();
    alone.push_back(copy((*s)->feed(ids)));
  }
  std::vector<uint32_t> pages(3 * 64);
  for (uint32_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<uint32_t>(pages.size()) - 1 - i;
  std::vector<StepSequence> step;
  for (uint32_t s = 0; s < 3; ++s) {
    step.push_back({prompts[s], 0, s, s, std::span(pages).subspan(s * 64, 64), 1});
  }
  const std::vector<float> together = copy(t.model->runner().run(step));
  for (uint32_t s = 0; s < 3; ++s) {
    EXPECT_TRUE(same_bits(alone[s], {together.begin() + s * vocab, together.begin() + (s + 1) * vocab}))
        << "session " << s;
  }
}

TEST(Session, AResetSessionRemembersNothing) {
  const TestModel t = make_model(kDemo);
  ASSERT_NE(t.model, nullptr);
  const std::vector<int32_t> ids = random_ids(20, t.model->vocab(), 5);
  auto s = t.model->session();
  const std::vector<float> fresh = copy((*s)->feed(ids));
  ASSERT_TRUE((*s)->feed(random_ids(100, t.model->vocab(), 6)).ok());
  (*s)->reset();
  EXPECT_TRUE(same_bits(fresh, copy((*s)->feed(ids))));
}

TEST(Session, RefusesWhatDoesNotFit) {
  ModelOptions options;
  options.context = 64;
  const TestModel t = make_model(kDemo, "reference", options);
  ASSERT_NE(t.model, nullptr);
  auto s = t.model->session();
  const auto long_prompt = (*s)->feed(random_ids(65, t.model->vocab(), 7));
  ASSERT_FALSE(long_prompt.ok());
  EXPECT_EQ(long_prompt.status().code(), Code::usage);
  EXPECT_NE(long_prompt.status().message().find("65 tokens do not fit"), std::string::npos)
      << long_prompt.status().message();
  const int32_t bad = 4096;
  const auto unknown = (*s)->feed({&bad, 1});
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.status().message().find("token id 4096 is outside the vocabulary"), std::string::npos);
  EXPECT_FALSE(t.model->session().ok()) << "the pool has one slot";
}

}  // namespace
}  // namespace switchyard
