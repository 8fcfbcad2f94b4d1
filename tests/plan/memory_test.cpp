// SPDX-License-Identifier: Apache-2.0
// The static memory plan: values that are alive at the same time never share a byte.
#include <random>
#include <set>

#include "core/plan/emit.h"
#include "tests/plan/support.h"

namespace switchyard {
namespace {

// A random chain of nodes on two devices, each reading some earlier values, and copies between the devices.
Plan random_plan(uint32_t seed) {
  std::mt19937 random(seed);
  const auto upto = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  Plan plan;
  plan.bucket.struct_size = sizeof(swy_bucket);
  plan.bucket.rows = 1 + upto(5);
  const uint32_t nodes = 2 + upto(40);
  std::set<uint32_t> there[2];  // the values of each device
  for (uint32_t i = 0; i < nodes; ++i) {
    PlanNode n;
    n.device = upto(2);
    if (i > 0 && upto(4) == 0) {  // a copy
      const uint32_t v = upto(static_cast<uint32_t>(plan.graph.values.size()));
      if (there[1 - n.device].count(v) != 0 && there[n.device].insert(v).second) {
        n.copy_from = static_cast<int>(1 - n.device);
        n.op.inputs = n.op.outputs = {v};
        plan.nodes.push_back(std::move(n));
        continue;
      }
    }
    for (uint32_t k = upto(4); i > 0 && k > 0; --k) {
      const uint32_t v = upto(static_cast<uint32_t>(plan.graph.values.size()));
      if (there[n.device].count(v) != 0) n.op.inputs.push_back(v);
    }
    for (uint32_t k = 1 + upto(3); k > 0; --k) {
      plan.graph.values.push_back({"v", SWY_F32, SWY_ROWS_STEP, 1 + upto(1000)});
      n.op.outputs.push_back(static_cast<uint32_t>(plan.graph.values.size() - 1));
      there[n.device].insert(n.op.outputs.back());
    }
    n.prepared.workspace_bytes = upto(2) * upto(5000);
    plan.nodes.push_back(std::move(n));
  }
  plan.graph.results = {static_cast<uint32_t>(plan.graph.values.size() - 1)};
  return plan;
}

std::vector<PlanDevice> two_devices() {
  std::vector<PlanDevice> devices(2);
  devices[0].name = "a:0";
  devices[1].name = "b:0";
  devices[0].info.buffer_alignment = 64;
  devices[1].info.buffer_alignment = 256;
  return devices;
}

struct Block {
  uint32_t device, first, last;
  uint64_t offset, bytes;
};

std::vector<Block> blocks_of(const Plan& plan) {
  std::vector<Block> blocks;
  for (const Placement& p : plan.placements) {
    uint32_t first = UINT32_MAX, last = 0;
    for (uint32_t i = 0; i < plan.nodes.size(); ++i) {
      const PlanNode& n = plan.nodes[i];
      const auto in = [&](const std::vector<uint32_t>& list) {
        return std::find(list.begin(), list.end(), p.value) != list.end();
      };
      const uint32_t reads_on = n.copy_from >= 0 ? static_cast<uint32_t>(n.copy_from) : n.device;
      if (!(in(n.op.inputs) && reads_on == p.device) && !(in(n.op.outputs) && n.device == p.device)) continue;
      first = std::min(first, i);
      last = i;
    }
    if (p.value == plan.graph.results[0]) last = UINT32_MAX;
    blocks.push_back({p.device, first, last, p.offset, p.bytes});
  }
  for (uint32_t i = 0; i < plan.nodes.size(); ++i) {
    const uint64_t bytes = plan.nodes[i].prepared.workspace_bytes;
    if (bytes != 0) blocks.push_back({plan.nodes[i].device, i, i, plan.workspace_offset[i], bytes});
  }
  return blocks;
}

TEST(Memory, OfWhatIsAliveTogetherNeverOverlaps) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Plan plan = random_plan(seed);
    ASSERT_TRUE(place_values(two_devices(), plan).ok());
    const std::vector<Block> blocks = blocks_of(plan);
    for (const PlanNode& n : plan.nodes) {
      for (const uint32_t v : n.op.outputs) {
        const Placement* place = plan.find(v, n.device);
        ASSERT_NE(place, nullptr);
        EXPECT_EQ(place->bytes, value_bytes(plan.graph.values[v], plan.bucket));
      }
    }
    std::vector<uint64_t> sum(2);
    for (const Block& a : blocks) {
      EXPECT_EQ(a.offset % (a.device == 0 ? 64 : 256), 0u);
      EXPECT_LE(a.offset + a.bytes, plan.arena_bytes[a.device]);
      sum[a.device] += (a.bytes + 255) / 256 * 256;
      for (const Block& b : blocks) {
        if (&a == &b || a.device != b.device || a.last < b.first || b.last < a.first) continue;
        EXPECT_TRUE(a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset);
      }
    }
    for (uint32_t d = 0; d < 2; ++d) EXPECT_LE(plan.arena_bytes[d], sum[d]);
  }
}

TEST(Memory, IsTheSameEveryTime) {
  Plan a = random_plan(7), b = random_plan(7);
  ASSERT_TRUE(place_values(two_devices(), a).ok());
  ASSERT_TRUE(place_values(two_devices(), b).ok());
  EXPECT_EQ(a.arena_bytes, b.arena_bytes);
  ASSERT_EQ(a.placements.size(), b.placements.size());
  for (size_t i = 0; i < a.placements.size(); ++i) EXPECT_EQ(a.placements[i].offset, b.placements[i].offset);
}

// A chain needs two blocks at a time, however long it is.
TEST(Memory, IsUsedAgainWhenAValueIsDead) {
  Plan plan;
  plan.bucket.struct_size = sizeof(swy_bucket);
  plan.bucket.rows = 1;
  for (uint32_t i = 0; i < 50; ++i) {
    PlanNode n;
    if (i > 0) n.op.inputs = {i - 1};
    n.op.outputs = {i};
    plan.graph.values.push_back({"v", SWY_F32, SWY_ROWS_STEP, 64});
    plan.nodes.push_back(std::move(n));
  }
  plan.graph.results = {49};
  ASSERT_TRUE(place_values(two_devices(), plan).ok());
  EXPECT_EQ(plan.arena_bytes[0], 2 * 64 * 4u);
  EXPECT_EQ(plan.arena_bytes[1], 0u);
}

TEST(Memory, LargerThanADeviceAllowsIsAnError) {
  Plan plan = random_plan(3);
  std::vector<PlanDevice> devices = two_devices();
  devices[0].info.max_buffer_bytes = devices[1].info.max_buffer_bytes = 64;
  const Status s = place_values(devices, plan);
  ASSERT_FALSE(s.ok());
  EXPECT_THAT(s.message(), ::testing::HasSubstr("use a smaller --chunk"));
}

}  // namespace
}  // namespace switchyard
