// The static memory plan: what is alive at the same time never shares a byte.
#include <random>

#include "core/plan/emit.h"
#include "tests/plan/support.h"

namespace switchyard {
namespace {

// A random chain of nodes on two devices, each reading some earlier values.
Plan random_plan(uint32_t seed) {
  std::mt19937 random(seed);
  const auto upto = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  Plan plan;
  plan.bucket.struct_size = sizeof(swy_bucket);
  plan.bucket.rows = 1 + upto(5);
  const uint32_t nodes = 2 + upto(40);
  for (uint32_t i = 0; i < nodes; ++i) {
    PlanNode n;
    n.device = upto(2);
    for (uint32_t k = 0; i > 0 && k < upto(4); ++k) {
      const uint32_t v = upto(static_cast<uint32_t>(plan.graph.values.size()));
      if (plan.graph.values[v].name == std::to_string(n.device)) n.op.inputs.push_back(v);
    }
    for (uint32_t k = 0; k < 1 + upto(3); ++k) {
      plan.graph.values.push_back({std::to_string(n.device), SWY_F32, SWY_ROWS_STEP, 1 + upto(1000)});
      n.op.outputs.push_back(static_cast<uint32_t>(plan.graph.values.size() - 1));
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
      const auto uses = [&](const std::vector<uint32_t>& list) {
        return std::find(list.begin(), list.end(), p.value) != list.end();
      };
      if (!uses(plan.nodes[i].op.inputs) && !uses(plan.nodes[i].op.outputs)) continue;
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
