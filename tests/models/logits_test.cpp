// SPDX-License-Identifier: Apache-2.0
// A small random checkpoint of each family against logits that transformers computed in double precision
// (tools/make_family_checkpoints.py).
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/import/convert.h"
#include "tests/engine/fixture.h"
#include "tests/support/files.h"

namespace switchyard {
namespace {

namespace fs = std::filesystem;
const std::string kFamilies = SWITCHYARD_TEST_DATA "/tiny/families";

std::vector<std::string> checkpoints() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kFamilies)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<float> recorded(const std::string& folder, size_t values) {
  std::ifstream in(folder + "/logits.f32", std::ios::binary);
  std::vector<float> all(values);
  in.read(reinterpret_cast<char*>(all.data()), static_cast<std::streamsize>(values * sizeof(float)));
  EXPECT_TRUE(in.good());
  return all;
}

// Programs of checkpoints, on backends.
class Logits : public ::testing::TestWithParam<std::string> {
 protected:
  TestModel load(const std::string& backend, const BackendSettings& settings) const {
    ConvertOptions options;
    options.source = kFamilies + "/" + GetParam();
    options.output = out_.path("model.swy");
    const auto report = convert(Os::real(), options);
    EXPECT_TRUE(report.ok()) << report.status().message();
    return make_model(options.output, backend, {}, "", settings);
  }
  // The largest difference from what was recorded, as a share of the largest logit, over all lengths.
  double worst(const std::string& backend, const BackendSettings& settings = {}) const {
    const std::string folder = kFamilies + "/" + GetParam();
    const auto expected = nlohmann::json::parse(std::ifstream(folder + "/expected.json"));
    const auto ids = expected["ids"].get<std::vector<int32_t>>();
    const auto vocab = expected["vocab"].get<size_t>();
    const std::vector<float> want = recorded(folder, ids.size() * vocab);
    const TestModel test = load(backend, settings);
    double most = 0;
    for (const size_t length : expected["lengths"].get<std::vector<size_t>>()) {
      auto session = test.model->session();
      EXPECT_TRUE(session.ok());
      const auto logits = (*session)->feed(std::span(ids).first(length), static_cast<uint32_t>(length));
      EXPECT_TRUE(logits.ok()) << logits.status().message();
      EXPECT_EQ(logits->size(), length * vocab);
      double difference = 0, largest = 0;
      for (size_t i = 0; i < length * vocab; ++i) {
        difference = std::max(difference, std::abs(double{(*logits)[i]} - want[i]));
        largest = std::max(largest, std::abs(double{want[i]}));
      }
      EXPECT_GT(largest, 1);
      most = std::max(most, difference / largest);
      RecordProperty(fmt::format("{}_{}", backend, length), fmt::format("{:.2g}", difference / largest));
    }
    return most;
  }

  // The same of a prompt's last 20 tokens, one by one after the others.
  double worst_of_steps(const std::string& backend, const BackendSettings& settings) const {
    const std::string folder = kFamilies + "/" + GetParam();
    const auto expected = nlohmann::json::parse(std::ifstream(folder + "/expected.json"));
    const auto ids = expected["ids"].get<std::vector<int32_t>>();
    const auto vocab = expected["vocab"].get<size_t>();
    const std::vector<float> want = recorded(folder, ids.size() * vocab);
    const TestModel test = load(backend, settings);
    auto session = test.model->session();
    EXPECT_TRUE(session.ok());
    EXPECT_TRUE((*session)->feed(std::span(ids).first(ids.size() - 20)).ok());
    double difference = 0, largest = 0;
    for (size_t at = ids.size() - 20; at < ids.size(); ++at) {
      const auto logits = (*session)->feed(std::span(ids).subspan(at, 1));
      EXPECT_TRUE(logits.ok()) << logits.status().message();
      for (size_t i = 0; i < vocab; ++i) {
        difference = std::max(difference, std::abs(double{(*logits)[i]} - want[at * vocab + i]));
        largest = std::max(largest, std::abs(double{want[at * vocab + i]}));
      }
    }
    EXPECT_GT(largest, 1);
    RecordProperty(backend + "_steps", fmt::format("{:.2g}", difference / largest));
    return difference / largest;
  }

 private:
  testing::TemporaryFolder out_;
};

TEST_P(Logits, OfTheReference) { EXPECT_LE(worst("reference"), 1e-4); }

#ifdef SWITCHYARD_TEST_CPU
// Products on AMX tiles keep 16 bits of an activation's mantissa. MXFP4 weights get 8-bit activations unless `exact` is
// set: in a random model these choose other experts.
TEST_P(Logits, OfTheCpu) {
  BackendSettings settings;
  if (GetParam() == "gpt_oss") settings = {{"cpu", {{"exact", "1"}}}};
  EXPECT_LE(worst("cpu", settings), 1e-3);
}
#endif

#ifdef SWITCHYARD_TEST_VULKAN
// These run as a test of their own, models_test_vulkan: a driver on the processor compiles for a minute.
class LogitsOnVulkan : public Logits {
 protected:
  void SetUp() override {
    DiscoveryOptions discovery;
    discovery.libraries = {SWITCHYARD_TEST_BACKENDS "/switchyard_vulkan.so"};
    const Registry registry = Registry::discover(Os::real(), discovery, test_host());
    if (const auto device = registry.select("vulkan"); !device.ok()) {
      ASSERT_THAT(device.status().message(), ::testing::HasSubstr("no Vulkan driver on this machine"));
      GTEST_SKIP() << "not tested: " << device.status().message();
    }
  }
};

// Keys and values that are rounded to bf16 make a random model choose other experts.
TEST_P(LogitsOnVulkan, AreThoseOfTheFamily) { EXPECT_LE(worst("vulkan", {{"vulkan", {{"kv_bf16", "0"}}}}), 1e-3); }

TEST_P(LogitsOnVulkan, AreThoseOfTheFamilyTokenByToken) {
  EXPECT_LE(worst_of_steps("vulkan", {{"vulkan", {{"kv_bf16", "0"}}}}), 1e-3);
}

TEST_P(LogitsOnVulkan, NeedNoOtherBackend) {
  const TestModel test = load("vulkan", {});
  ASSERT_NE(test.model, nullptr);
  for (const uint32_t rows : {1u, 5u, 64u}) {
    const auto plan = test.model->plan(rows, 1, 256);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    size_t operations = 0;
    for (const PlanNode& node : plan->nodes) {
      EXPECT_EQ(plan->device_names[node.device], "vulkan:0") << (node.kernel_name() ? node.kernel_name() : "copy");
      operations += node.kernel != nullptr ? 1 : 0;
    }
    EXPECT_GE(operations, test.model->program().main().ops.size() / 2);  // some are fused
  }
}
#endif

std::string test_name(const ::testing::TestParamInfo<std::string>& param) {
  std::string name = param.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Families, Logits, ::testing::ValuesIn(checkpoints()), test_name);
#ifdef SWITCHYARD_TEST_VULKAN
INSTANTIATE_TEST_SUITE_P(Families, LogitsOnVulkan, ::testing::ValuesIn(checkpoints()), test_name);
#endif

TEST(LogitsData, IsThere) { EXPECT_EQ(checkpoints().size(), 7u); }

}  // namespace
}  // namespace switchyard
