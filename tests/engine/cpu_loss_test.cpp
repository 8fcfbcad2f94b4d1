// SPDX-License-Identifier: Apache-2.0
// The demo model's loss on the cpu backend, on each of its instruction sets, against what transformers computes from
// the same weights (and `reference` too, see loss_test.cpp): 8-bit activations cost no more than this.
#include <gmock/gmock.h>

#include <cmath>

#include "core/engine/evaluate.h"
#include "tests/engine/demo.h"

namespace switchyard {
namespace {

struct Level {
  const char* isa;
  double most;  // nats per token
};

class CpuLoss : public ::testing::TestWithParam<Level> {};

// Skipped, by name, where the processor lacks the instructions: ctest shows each of them as a test of its own.
TEST_P(CpuLoss, OfSixteenWindows) {
  const std::vector<Setting> settings = {{"isa", GetParam().isa}};
  DiscoveryOptions discovery;
  discovery.cpu_features = default_discovery().cpu_features;
  discovery.libraries = {SWITCHYARD_TEST_BACKENDS "/switchyard_cpu.so"};
  discovery.settings = {{"cpu", settings}};
  const Registry registry = Registry::discover(Os::real(), discovery, test_host());
  if (const auto device = registry.select("cpu"); !device.ok()) {
    ASSERT_THAT(device.status().message(), ::testing::HasSubstr("the processor lacks"));
    GTEST_SKIP() << "not tested: " << device.status().message();
  }
  const TestModel t = make_model(kDemo, "cpu", with_context(512), "", {{"cpu", settings}});
  ASSERT_NE(t.model, nullptr);
  const auto tokenizer = Tokenizer::parse(t.model->program().tokenizer_json);
  ASSERT_TRUE(tokenizer.ok());
  const auto ids = tokenizer->encode(demo_text("val16.txt"));
  ASSERT_TRUE(ids.ok());
  double nll = 0;
  size_t tokens = 0;
  const Status status =
      score_windows(*t.model, *ids, {.size = 512, .limit = 16}, [&](size_t, size_t, auto, const WindowScore& s) {
        nll += s.nll;
        tokens += s.tokens;
        return true;
      });
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(tokens, 16u * 511);
  const double loss = nll / static_cast<double>(tokens), want = demo_expected()["program"]["nll"].get<double>();
  std::printf("%s: loss %.6f, %+.6f of %.6f\n", GetParam().isa, loss, loss - want, want);
  EXPECT_LE(std::abs(loss - want), GetParam().most) << GetParam().isa;
}

INSTANTIATE_TEST_SUITE_P(On, CpuLoss,
                         ::testing::Values(Level{"baseline", 1e-2}, Level{"avx2", 1e-2}, Level{"avx512", 1e-2},
                                           Level{"amx", 2e-3}),
                         [](const auto& level) { return std::string(level.param.isa); });

}  // namespace
}  // namespace switchyard
