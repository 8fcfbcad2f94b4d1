// SPDX-License-Identifier: Apache-2.0
// How many rows the largest step has: by the kind of device, and by what fits its memory.
#include <gmock/gmock.h>

#include "tests/engine/fixture.h"
#include "tests/support/forwarding_os.h"

namespace switchyard {
namespace {

TestModel late_model(const ModelOptions& options, uint64_t largest = 0, uint32_t rows = 0) {
  return make_model(kDemo, "late", options, SWITCHYARD_FIXTURES,
                    {{"late", {{"largest", std::to_string(largest)}, {"rows", std::to_string(rows)}}}});
}

std::vector<float> logits_of(const TestModel& t, uint32_t tokens) {
  auto session = t.model->session();
  std::vector<int32_t> ids(tokens);
  for (uint32_t i = 0; i < tokens; ++i) ids[i] = static_cast<int32_t>(i * 7 % 100);
  const auto logits = (*session)->feed(ids);
  EXPECT_TRUE(logits.ok()) << logits.status().message();
  return logits.ok() ? std::vector<float>(logits->begin(), logits->end()) : std::vector<float>{};
}

TEST(Chunk, IsThatOfTheDevicesUnlessAsked) {
  constexpr uint32_t kContext = 4096;
  static_assert(Model::kChunk < kContext && kContext <= Model::kDeviceChunk);
  ModelOptions options = with_context(kContext);
  EXPECT_EQ(make_model(kDemo, "reference", options).model->chunk(), Model::kChunk);
  EXPECT_EQ(late_model(options).model->chunk(), kContext);
  options.chunk = 300;
  EXPECT_EQ(make_model(kDemo, "reference", options).model->chunk(), 300u);
  EXPECT_EQ(late_model(options).model->chunk(), 300u);
}

TEST(Chunk, IsNoLongerThanTheContext) {
  EXPECT_EQ(make_model(kDemo, "reference", with_context(96)).model->chunk(), 96u);
  EXPECT_EQ(late_model(with_context(96)).model->chunk(), 96u);
}

TEST(Chunk, IsHalvedUntilAStepFitsTheMemory) {
  ModelOptions options = with_context(1024);
  const TestModel whole = late_model(options);
  ASSERT_NE(whole.model, nullptr);
  ASSERT_EQ(whole.model->chunk(), 1024u);
  const auto plan = whole.model->plan(1024, 1, 1024), quarter = whole.model->plan(256, 1, 1024);
  ASSERT_TRUE(plan.ok() && quarter.ok());
  ASSERT_LT(quarter->arena_bytes[0], plan->arena_bytes[0]);
  const std::vector<float> expected = logits_of(whole, 700);

  const TestModel some = late_model(options, plan->arena_bytes[0] - 1);
  ASSERT_NE(some.model, nullptr);
  EXPECT_EQ(some.model->chunk(), 512u);
  EXPECT_EQ(logits_of(some, 700), expected) << "two steps instead of one";
}

TEST(Chunk, IsHalvedUntilKernelsTakeIt) {
  const TestModel some = late_model(with_context(1024), 0, 300);
  ASSERT_NE(some.model, nullptr);
  EXPECT_EQ(some.model->chunk(), 256u);
  EXPECT_EQ(logits_of(some, 600), logits_of(late_model(with_context(1024)), 600)) << "three steps instead of one";
}

// The device's free memory is compared with its states and weights before any buffer is allocated.
TEST(Chunk, ModelsThatDoNotFitAreRefusedFirst) {
  const auto made = [](uint64_t free) {
    setenv("LATE_FREE", std::to_string(free).c_str(), 1);
    DiscoveryOptions discovery;
    discovery.search_path = SWITCHYARD_FIXTURES;
    const Registry registry = Registry::discover(Os::real(), discovery, test_host());
    const auto late = registry.select("late");
    EXPECT_TRUE(late.ok()) << late.status().message();
    auto program = Program::load(Os::real(), kDemo);
    EXPECT_TRUE(program.ok());
    const uint64_t before = device_memory().now;
    auto model = Model::create(std::make_shared<const Program>(std::move(*program)), late->devices, late->policy,
                               with_context(4096));
    unsetenv("LATE_FREE");
    if (!model.ok()) {
      EXPECT_EQ(device_memory().now, before);
    }
    return model.status();
  };
  EXPECT_THAT(made(1u << 20).message(), testing::HasSubstr("the weights take"));
  EXPECT_THAT(made(12u << 20).message(), testing::HasSubstr("the states of 1 session of 4096 tokens take"));
  EXPECT_EQ(made(12u << 20).code(), Code::out_of_device_memory);
  EXPECT_TRUE(made(uint64_t{1} << 30).ok());
}

// The host's memory holds states and activations of all backends that compute there.
class HostWith : public ForwardingOs {
 public:
  explicit HostWith(uint64_t bytes) : bytes_(bytes) {}
  uint64_t available_memory() override { return bytes_; }

 private:
  uint64_t bytes_;
};

Result<std::unique_ptr<Model>> on_host_with(uint64_t bytes, const Registry& registry, uint32_t context = 4096) {
  HostWith host(bytes);
  SWY_LET(const auto reference, registry.select("reference"));
  SWY_LET(Program program, Program::load(Os::real(), kDemo));
  ModelOptions options = with_context(context);
  options.os = &host;
  return Model::create(std::make_shared<const Program>(std::move(program)), reference.devices, reference.policy,
                       options);
}

TEST(Chunk, ModelsThatDoNotFitTheHostAreRefusedFirst) {
  DiscoveryOptions discovery;
  discovery.search_path = SWITCHYARD_TEST_BACKENDS;
  const Registry registry = Registry::discover(Os::real(), discovery, test_host());
  const auto whole = on_host_with(uint64_t{1} << 40, registry);
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  uint64_t states = 0;
  for (const StatePool::Unit& u : (*whole)->states().units()) {
    if (u.memory != nullptr) states += u.memory->bytes();
  }
  const auto arena = [&](uint32_t rows) { return (*whole)->plan(rows, 1, 4096)->arena_bytes[0]; };
  ASSERT_EQ((*whole)->chunk(), 2048u);

  const auto no_states = on_host_with(states - 1, registry);
  EXPECT_EQ(no_states.status().code(), Code::out_of_device_memory);
  EXPECT_THAT(no_states.status().message(), ::testing::HasSubstr("the states of 1 session of 4096 tokens take"));
  EXPECT_THAT(no_states.status().message(), ::testing::HasSubstr(" on reference:0, and "));
  EXPECT_THAT(no_states.status().message(), ::testing::HasSubstr(" would fit"));
  const auto no_steps = on_host_with(states + arena(32), registry);
  EXPECT_EQ(no_steps.status().code(), Code::out_of_device_memory);
  EXPECT_THAT(no_steps.status().message(), ::testing::HasSubstr("a step of 64 rows takes"));
  const auto half = on_host_with(states + (arena(1024) + arena(2048)) / 2, registry);
  ASSERT_TRUE(half.ok()) << half.status().message();
  EXPECT_EQ((*half)->chunk(), 1024u);
}

TEST(Chunk, OfTooFewRowsIsRefused) {
  DiscoveryOptions discovery;
  discovery.search_path = SWITCHYARD_FIXTURES;
  discovery.settings = {{"late", {{"rows", "40"}}}};
  const Registry registry = Registry::discover(Os::real(), discovery, test_host());
  const auto late = registry.select("late");
  ASSERT_TRUE(late.ok()) << late.status().message();
  auto program = Program::load(Os::real(), kDemo);
  ASSERT_TRUE(program.ok());
  const auto model = Model::create(std::make_shared<const Program>(std::move(*program)), late->devices, late->policy,
                                   with_context(1024));
  EXPECT_EQ(model.status().code(), Code::unsupported);
  EXPECT_THAT(model.status().message(), ::testing::HasSubstr("takes 0 to 40 rows, the bucket has 64"));
}

}  // namespace
}  // namespace switchyard
