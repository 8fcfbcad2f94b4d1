// SPDX-License-Identifier: Apache-2.0
// The demo model's loss on held-out text, window by window, against what transformers computes from the same
// dequantized weights (tools/oracle/record_program.py).
#include "core/engine/evaluate.h"
#include "tests/engine/demo.h"

namespace switchyard {
namespace {

constexpr double kTolerance = 1e-5;  // nats per token

TEST(Loss, DemoModelIsThatOfTransformers) {
  const TestModel t = make_model(SWITCHYARD_DEMO_MODEL);
  ASSERT_NE(t.model, nullptr);
  const auto tokenizer = Tokenizer::parse(t.model->program().tokenizer_json);
  ASSERT_TRUE(tokenizer.ok());
  const auto ids = tokenizer->encode(demo_text("val16.txt"));
  ASSERT_TRUE(ids.ok());
  const nlohmann::json want = demo_expected()["program"];
  const auto by_window = want["nll_by_window"].get<std::vector<double>>();
  double total = 0;
  size_t tokens = 0;
  const Status status = score_windows(*t.model, *ids, {.size = 512, .limit = static_cast<uint32_t>(by_window.size())},
                                      [&](size_t w, size_t, std::span<const float>, const WindowScore& s) {
                                        EXPECT_NEAR(s.nll / static_cast<double>(s.tokens), by_window[w], kTolerance)
                                            << "window " << w;
                                        total += s.nll;
                                        tokens += s.tokens;
                                        return true;
                                      });
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(tokens, by_window.size() * 511);
  EXPECT_NEAR(total / static_cast<double>(tokens), want["nll"].get<double>(), kTolerance);
}

}  // namespace
}  // namespace switchyard
