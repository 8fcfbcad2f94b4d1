// The demo model's loss on held-out text, against what transformers computes from the same dequantized weights
// (tools/oracle/quantized_nll.py).
#include <fstream>
#include <sstream>

#include "core/engine/evaluate.h"
#include "core/text/tokenizer.h"
#include "tests/engine/fixture.h"

namespace switchyard {
namespace {

constexpr double kTransformers = 3.1890625179;  // nats, first 16 windows of 512 tokens
constexpr double kTolerance = 1e-4;

TEST(Loss, DemoModelIsThatOfTransformers) {
  const TestModel t = make_model(SWITCHYARD_DEMO_MODEL);
  ASSERT_NE(t.model, nullptr);
  std::ostringstream text;
  text << std::ifstream(SWITCHYARD_TEST_DATA "/demo/val16.txt", std::ios::binary).rdbuf();
  const auto tokenizer = Tokenizer::parse(t.model->program().tokenizer_json);
  ASSERT_TRUE(tokenizer.ok());
  const auto ids = tokenizer->encode(text.str());
  ASSERT_TRUE(ids.ok());
  WindowScore total;
  const Status status =
      score_windows(*t.model, *ids, 512, 16, [&](size_t, size_t, std::span<const float>, const WindowScore& s) {
        total.nll += s.nll;
        total.tokens += s.tokens;
        return true;
      });
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(total.tokens, 16u * 511u);
  EXPECT_NEAR(total.nll / static_cast<double>(total.tokens), kTransformers, kTolerance);
}

}  // namespace
}  // namespace switchyard
