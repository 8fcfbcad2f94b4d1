// SPDX-License-Identifier: Apache-2.0
// The demo model on three prompts: ids, logits and greedy tokens, against what transformers computes in fp64 from the
// same dequantized weights (tools/oracle/record_program.py).
#include <algorithm>
#include <cmath>

#include "tests/engine/demo.h"

namespace switchyard {
namespace {

constexpr float kLogitTolerance = 1e-4f;
constexpr double kNormTolerance = 1e-6;  // relative

TEST(Demo, PromptsGiveTheRecordedIdsLogitsAndTokens) {
  const TestModel t = make_model(SWITCHYARD_DEMO_MODEL);
  ASSERT_NE(t.model, nullptr);
  const auto tokenizer = Tokenizer::parse(t.model->program().tokenizer_json);
  ASSERT_TRUE(tokenizer.ok());
  const size_t vocab = t.model->vocab();
  const nlohmann::json prompts = demo_expected()["program"]["prompts"];
  ASSERT_EQ(prompts.size(), 3u);
  for (const auto& prompt : prompts) {
    SCOPED_TRACE(prompt["text"].get<std::string>());
    const auto ids = tokenizer->encode(prompt["text"].get<std::string>());
    ASSERT_TRUE(ids.ok());
    ASSERT_EQ(*ids, prompt["ids"].get<std::vector<int32_t>>());
    auto session = t.model->session();
    ASSERT_TRUE(session.ok());
    const auto fed = (*session)->feed(*ids, static_cast<uint32_t>(ids->size()));
    ASSERT_TRUE(fed.ok()) << fed.status().message();
    for (size_t row = 0; row < ids->size(); ++row) {
      double squares = 0;
      for (const float x : fed->subspan(row * vocab, vocab)) squares += static_cast<double>(x) * x;
      const double norm = prompt["logits_norm"][row].get<double>();
      EXPECT_NEAR(std::sqrt(squares), norm, norm * kNormTolerance) << "position " << row;
    }

    std::span<const float> last = fed->last(vocab);
    const auto top = prompt["last_top8_ids"].get<std::vector<size_t>>();
    for (size_t i = 0; i < top.size(); ++i) {
      EXPECT_NEAR(last[top[i]], prompt["last_top8_logits"][i].get<float>(), kLogitTolerance);
      EXPECT_EQ(std::count_if(last.begin(), last.end(), [&](float x) { return x > last[top[i]]; }), i);
    }
    const auto want = prompt["greedy_ids"].get<std::vector<int32_t>>();
    ASSERT_EQ(want.size(), 64u);
    std::vector<int32_t> greedy;
    while (greedy.size() < want.size()) {
      greedy.push_back(static_cast<int32_t>(std::max_element(last.begin(), last.end()) - last.begin()));
      const auto next = (*session)->feed({&greedy.back(), 1});
      ASSERT_TRUE(next.ok());
      last = *next;
    }
    EXPECT_EQ(greedy, want);
    EXPECT_EQ(tokenizer->decode(greedy), prompt["greedy_text"].get<std::string>());
  }
}

}  // namespace
}  // namespace switchyard
