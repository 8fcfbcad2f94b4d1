// SPDX-License-Identifier: Apache-2.0
// Small random checkpoints of shapes that the demo model does not have, against logits that transformers and an
// independent NumPy implementation computed in fp64 (tools/make_tiny_checkpoints.py).
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/import/convert.h"
#include "tests/engine/fixture.h"

namespace switchyard {
namespace {

namespace fs = std::filesystem;
const std::string kTiny = SWITCHYARD_TEST_DATA "/tiny";

std::vector<std::string> checkpoints() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kTiny)) {
    if (fs::exists(entry.path() / "expected.json")) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class Oracle : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    folder_ = kTiny + "/" + GetParam();
    file_ = testing::TempDir() + "switchyard-" + GetParam() + ".swy";
    ConvertOptions options;
    options.source = folder_;
    options.output = file_;
    const auto report = convert(Os::real(), options);
    ASSERT_TRUE(report.ok()) << report.status().message();
    expected_ = nlohmann::json::parse(std::ifstream(folder_ + "/expected.json"));
    test_ = make_model(file_);
    ASSERT_NE(test_.model, nullptr);
  }
  void TearDown() override { fs::remove(file_); }

  std::vector<float> recorded(const nlohmann::json& prompt) const {
    std::ifstream in(folder_ + "/" + prompt["logits"].get<std::string>(), std::ios::binary);
    std::vector<float> values(prompt["shape"][0].get<size_t>() * prompt["shape"][1].get<size_t>());
    in.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * 4));
    EXPECT_TRUE(in.good());
    return values;
  }

  std::string folder_, file_;
  nlohmann::json expected_;
  TestModel test_;
};

TEST_P(Oracle, LogitsAndGreedyTokens) {
  for (const auto& prompt : expected_["prompts"]) {
    const auto ids = prompt["ids"].get<std::vector<int32_t>>();
    auto session = test_.model->session();
    ASSERT_TRUE(session.ok());
    auto logits = (*session)->feed(ids, static_cast<uint32_t>(ids.size()));
    ASSERT_TRUE(logits.ok()) << logits.status().message();
    const std::vector<float> want = recorded(prompt);
    ASSERT_EQ(logits->size(), want.size());
    float worst = 0;
    for (size_t i = 0; i < want.size(); ++i) worst = std::max(worst, std::abs((*logits)[i] - want[i]));
    EXPECT_LT(worst, 1e-3f) << prompt["name"];

    std::span<const float> last = logits->last(test_.model->vocab());
    std::vector<int32_t> greedy;
    for (size_t i = 0; i < prompt["greedy_ids"].size(); ++i) {
      greedy.push_back(static_cast<int32_t>(std::max_element(last.begin(), last.end()) - last.begin()));
      const auto next = (*session)->feed({&greedy.back(), 1});
      ASSERT_TRUE(next.ok());
      last = *next;
    }
    EXPECT_EQ(greedy, prompt["greedy_ids"].get<std::vector<int32_t>>()) << prompt["name"];
  }
}

std::string test_name(const testing::TestParamInfo<std::string>& param) {
  std::string name = param.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Tiny, Oracle, testing::ValuesIn(checkpoints()), test_name);

TEST(OracleData, IsThere) { EXPECT_EQ(checkpoints().size(), 10u); }

}  // namespace
}  // namespace switchyard
