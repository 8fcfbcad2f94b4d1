// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "core/plan/emit.h"

namespace switchyard {
namespace {

// A block of one device's arena that is needed from node `first` to node `last`.
struct Life {
  uint32_t value = 0;  // or the node, for a workspace
  uint32_t device = 0;
  uint32_t first = 0, last = 0;
  uint64_t bytes = 0, offset = 0;
  bool workspace = false;
};

std::vector<Life> lives_of(const Plan& plan) {
  std::map<std::pair<uint32_t, uint32_t>, Life> values;  // (value, device)
  const auto touch = [&](uint32_t value, uint32_t device, uint32_t node) {
    auto [it, fresh] = values.try_emplace({value, device});
    Life& life = it->second;
    if (fresh) life = {value, device, node, node, value_bytes(plan.graph.values[value], plan.bucket), 0, false};
    life.last = node;
  };
  std::vector<Life> lives;
  const auto end = static_cast<uint32_t>(plan.nodes.size());
  for (uint32_t i = 0; i < end; ++i) {
    const PlanNode& n = plan.nodes[i];
    for (const uint32_t v : n.op.inputs) touch(v, n.copy_from >= 0 ? static_cast<uint32_t>(n.copy_from) : n.device, i);
    for (const uint32_t v : n.op.outputs) touch(v, n.device, i);
    if (n.prepared.workspace_bytes != 0) lives.push_back({i, n.device, i, i, n.prepared.workspace_bytes, 0, true});
  }
  for (auto& [key, life] : values) {
    const auto& results = plan.graph.results;
    if (std::find(results.begin(), results.end(), key.first) != results.end()) life.last = end;
    lives.push_back(life);
  }
  return lives;
}

// Largest first, each at the lowest offset where it overlaps no block that is alive at the same time.
void pack(std::vector<Life*> lives, uint64_t alignment, uint64_t& arena) {
  std::stable_sort(lives.begin(), lives.end(), [](const Life* a, const Life* b) { return a->bytes > b->bytes; });
  std::vector<const Life*> placed;  // by offset
  for (Life* life : lives) {
    uint64_t offset = 0;
    for (const Life* other : placed) {
      if (other->last < life->first || other->first > life->last) continue;
      if (offset + life->bytes <= other->offset) break;
      offset = std::max(offset, (other->offset + other->bytes + alignment - 1) / alignment * alignment);
    }
    life->offset = offset;
    arena = std::max(arena, offset + life->bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), life,
                                   [](const Life* a, const Life* b) { return a->offset < b->offset; }),
                  life);
  }
}

}  // namespace

Status place_values(const std::vector<PlanDevice>& devices, Plan& plan) {
  std::vector<Life> lives = lives_of(plan);
  plan.arena_bytes.assign(devices.size(), 0);
  plan.workspace_offset.assign(plan.nodes.size(), 0);
  for (uint32_t d = 0; d < devices.size(); ++d) {
    std::vector<Life*> mine;
    for (Life& life : lives) {
      if (life.device == d) mine.push_back(&life);
    }
    pack(std::move(mine), std::max<uint64_t>(devices[d].info.buffer_alignment, 64), plan.arena_bytes[d]);
    const uint64_t limit = devices[d].info.max_buffer_bytes;
    if (limit != 0 && plan.arena_bytes[d] > limit) {
      return error(Code::out_of_device_memory,
                   "{} allows buffers of {} bytes, and a step of {} rows needs {}; use a smaller --chunk",
                   devices[d].name, limit, plan.bucket.rows, plan.arena_bytes[d]);
    }
  }
  for (const Life& life : lives) {
    if (life.workspace) {
      plan.workspace_offset[life.value] = life.offset;
    } else {
      plan.placements.push_back({life.value, life.device, life.offset, life.bytes});
    }
  }
  std::sort(plan.placements.begin(), plan.placements.end(), [](const Placement& a, const Placement& b) {
    return std::pair(a.value, a.device) < std::pair(b.value, b.device);
  });
  return {};
}

const Placement* Plan::find(uint32_t value, uint32_t device) const {
  const auto it = std::lower_bound(
      placements.begin(), placements.end(), std::pair(value, device),
      [](const Placement& p, const std::pair<uint32_t, uint32_t>& key) { return std::pair(p.value, p.device) < key; });
  return it != placements.end() && it->value == value && it->device == device ? &*it : nullptr;
}

}  // namespace switchyard
