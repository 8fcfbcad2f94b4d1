// SPDX-License-Identifier: Apache-2.0
// A model's answers to a text, compared with another's.
#include "bench/correctness.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

#include "core/engine/evaluate.h"
#include "tests/engine/fixture.h"
#include "tests/support/files.h"

namespace switchyard::bench {
namespace {

using switchyard::testing::TemporaryFolder;
using ::testing::HasSubstr;

constexpr uint32_t kPrompt = 12, kDecoded = 4;

std::vector<int32_t> few_tokens() {
  std::vector<int32_t> ids(kPrompt + kDecoded);
  std::iota(ids.begin(), ids.end(), 100);
  return ids;
}

TEST(Correctness, TheReferenceAgreesWithItself) {
  const TestModel t = make_model(SWITCHYARD_DEMO_MODEL, "reference", with_context(64));
  ASSERT_NE(t.model, nullptr);
  const auto saying = say(*t.model, few_tokens(), kPrompt, 5, 600);
  ASSERT_TRUE(saying.ok()) << saying.status().message();
  EXPECT_EQ(saying->logits.size(), size_t{kPrompt + kDecoded} * t.model->vocab());
  EXPECT_EQ(saying->greedy.size(), 5u);
  const TemporaryFolder folder;
  ASSERT_TRUE(save(Os::real(), folder.path("logits"), *saying).ok());
  auto loaded = load_saying(Os::real(), folder.path("logits"));
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(loaded->logits, saying->logits);
  const auto same = compare(*t.model, few_tokens(), kPrompt, *loaded, 600);
  ASSERT_TRUE(same.ok()) << same.status().message();
  EXPECT_EQ(same->positions, kPrompt + kDecoded);
  EXPECT_NEAR(same->kl_mean, 0, 1e-9);
  EXPECT_EQ(same->top1, 1);
  EXPECT_FALSE(same->divergence);

  // Makes the answer differ at one position.
  for (uint32_t i = 0; i < loaded->vocab; ++i) loaded->logits[i] = -loaded->logits[i];
  loaded->greedy[2].top[0].id ^= 1;
  const auto other = compare(*t.model, few_tokens(), kPrompt, *loaded, 600);
  ASSERT_TRUE(other.ok());
  EXPECT_GT(other->kl_worst, 0.1);
  EXPECT_NEAR(other->kl_mean, other->kl_worst / (kPrompt + kDecoded), 1e-9);
  EXPECT_NEAR(other->top1, 1 - 1.0 / (kPrompt + kDecoded), 1e-9);
  ASSERT_TRUE(other->divergence);
  EXPECT_EQ(other->divergence->position, 2u);
}

TEST(Correctness, SaysBeforehandWhatWouldTakeTooLong) {
  const TestModel t = make_model(SWITCHYARD_DEMO_MODEL, "reference", with_context(64));
  ASSERT_NE(t.model, nullptr);
  EXPECT_EQ(say(*t.model, few_tokens(), kPrompt, 0, 1e-4).status().code(), Code::cancelled);
}

TEST(Correctness, DivergenceIsThatOfTheDistributions) {
  const std::vector<float> p = {0, 0}, q = {0, std::log(3.0f)};
  EXPECT_NEAR(divergence_of(p, q), 0.5 * std::log(0.5 / 0.25) + 0.5 * std::log(0.5 / 0.75), 1e-7);
  EXPECT_NEAR(divergence_of(p, p), 0, 1e-12);
  EXPECT_TRUE(std::isnan(divergence_of(p, std::vector<float>{0, NAN})));
}

TEST(Correctness, AFileThatHoldsNoLogitsIsRefused) {
  const TemporaryFolder folder;
  folder.write("x", "no logits at all, but long enough for a header");
  EXPECT_THAT(load_saying(Os::real(), folder.path("x")).status().message(), HasSubstr("holds no logits"));
}

}  // namespace
}  // namespace switchyard::bench
