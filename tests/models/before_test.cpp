// SPDX-License-Identifier: Apache-2.0
// Model files that an older commit made, and the logits that it computed from them (tests/data/before). They must load
// and run forever.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "core/import/convert.h"
#include "tests/engine/fixture.h"
#include "tests/support/files.h"

namespace switchyard {
namespace {

const std::string kBefore = SWITCHYARD_TEST_DATA "/before/";
constexpr size_t kTokens = 65, kPrompt = 60;

class Before : public ::testing::TestWithParam<std::string> {
 protected:
  // Of a prompt of 60 tokens, all of whose logits count, and of five more, one at a time.
  static std::vector<float> logits(const std::string& backend, const BackendSettings& settings = {}) {
    const TestModel test = make_model(kBefore + GetParam() + ".swy", backend, {}, "", settings);
    if (test.model == nullptr) return {};
    auto session = test.model->session();
    EXPECT_TRUE(session.ok());
    std::vector<int32_t> ids;
    for (size_t i = 0; i < kTokens; ++i) ids.push_back(static_cast<int32_t>(i * 37 % test.model->vocab()));
    std::vector<float> all;
    for (size_t at = 0; at < kTokens;) {
      const size_t count = at == 0 ? kPrompt : 1;
      const auto some = (*session)->feed(std::span(ids).subspan(at, count), static_cast<uint32_t>(count));
      EXPECT_TRUE(some.ok()) << some.status().message();
      if (some.ok()) all.insert(all.end(), some->begin(), some->end());
      at += count;
    }
    return all;
  }

  // The largest difference from what was recorded, as a share of the largest logit.
  static double worst(const std::vector<float>& now) {
    std::ifstream in(kBefore + GetParam() + ".f32", std::ios::binary);
    std::vector<float> then(now.size());
    in.read(reinterpret_cast<char*>(then.data()), static_cast<std::streamsize>(then.size() * sizeof(float)));
    EXPECT_TRUE(in.good() && in.peek() == EOF) << "another number of logits was recorded";
    double difference = 0, largest = 0;
    for (size_t i = 0; i < now.size(); ++i) {
      difference = std::max(difference, std::abs(double{now[i]} - then[i]));
      largest = std::max(largest, std::abs(double{then[i]}));
    }
    EXPECT_GT(largest, 0.1);
    return difference / largest;
  }
};

// SWITCHYARD_RECORD=1 in the tree of the older commit writes the logits.
TEST_P(Before, LogitsAreAsRecorded) {
  const std::vector<float> now = logits("reference");
  ASSERT_FALSE(now.empty());
  if (std::getenv("SWITCHYARD_RECORD") != nullptr) {
    std::ofstream out(kBefore + GetParam() + ".f32", std::ios::binary);
    out.write(reinterpret_cast<const char*>(now.data()), static_cast<std::streamsize>(now.size() * sizeof(float)));
  }
  EXPECT_LE(worst(now), 1e-6);
}

#ifdef SWITCHYARD_TEST_CPU
TEST_P(Before, LogitsOfTheCpu) {
  const std::vector<float> now = logits("cpu", {{"cpu", {{"exact", "1"}}}});
  ASSERT_FALSE(now.empty());
  EXPECT_LE(worst(now), 1e-3);
}
#endif

INSTANTIATE_TEST_SUITE_P(Files, Before, ::testing::Values("qwen3_5_moe", "qwen3"));

// Not only programs of this family, but whole files are as they were.
TEST(BeforeNow, Qwen35MoeIsConvertedToTheSameBytes) {
  const testing::TemporaryFolder out;
  ConvertOptions options;
  options.source = SWITCHYARD_TEST_DATA "/tiny/multimodal";
  options.output = out.path("model.swy");
  options.encoding = WeightEncoding{SWY_I4, 64};
  const auto report = convert(Os::real(), options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_TRUE(testing::read_file(options.output) == testing::read_file(kBefore + "qwen3_5_moe.swy"));
}

}  // namespace
}  // namespace switchyard
