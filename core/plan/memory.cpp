// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <map>
#include <numeric>

#include "core/base/saturate.h"
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
  std::vector<bool> is_result(plan.graph.values.size());
  for (const uint32_t v : plan.graph.results) is_result[v] = true;
  std::vector<bool> is_input(plan.graph.values.size());
  for (const uint32_t v : plan.graph.inputs) is_input[v] = true;
  std::vector<Life> lives;
  const auto end = static_cast<uint32_t>(plan.nodes.size());
  for (uint32_t i = 0; i < end; ++i) {
    const PlanNode& n = plan.nodes[i];
    for (const uint32_t v : n.op.inputs) touch(v, n.copy_from >= 0 ? static_cast<uint32_t>(n.copy_from) : n.device, i);
    for (const uint32_t v : n.op.outputs) touch(v, n.device, i);
    if (n.prepared.workspace_bytes != 0) lives.push_back({i, n.device, i, i, n.prepared.workspace_bytes, 0, true});
  }
  for (auto& [key, life] : values) {
    if (is_result[key.first]) life.last = end;
    if (is_input[key.first]) life.first = 0;
    lives.push_back(life);
  }
  return lives;
}

// Per block: the blocks that are alive at the same time. Empty as a whole if there are too many pairs to list.
constexpr size_t kMaxPairs = size_t{1} << 20;
using Overlaps = std::vector<std::vector<uint32_t>>;

Overlaps overlaps_of(const std::vector<Life*>& lives) {
  std::vector<uint32_t> order(lives.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return lives[a]->first < lives[b]->first; });
  Overlaps overlaps(lives.size());
  std::vector<uint32_t> alive;
  size_t count = 0;
  for (const uint32_t life : order) {
    std::erase_if(alive, [&](uint32_t other) { return lives[other]->last < lives[life]->first; });
    count += alive.size();
    if (count > kMaxPairs) return {};
    for (const uint32_t other : alive) {
      overlaps[life].push_back(other);
      overlaps[other].push_back(life);
    }
    alive.push_back(life);
  }
  return overlaps;
}

// A segment tree over nodes: the highest end of the blocks placed so far that are alive at a node.
class Tops {
 public:
  explicit Tops(uint32_t nodes) : size_(std::bit_ceil(nodes)), whole_(2 * size_), part_(2 * size_) {}

  uint64_t over(uint32_t first, uint32_t last) const { return over(1, 0, size_ - 1, first, last); }
  void raise(uint32_t first, uint32_t last, uint64_t end) { raise(1, 0, size_ - 1, first, last, end); }

 private:
  // Tree node `at` stands for nodes [from, to].
  uint64_t over(uint32_t at, uint32_t from, uint32_t to, uint32_t first, uint32_t last) const {
    if (last < from || first > to) return 0;
    if (first <= from && to <= last) return part_[at];
    const uint32_t half = from + (to - from) / 2;
    return std::max({whole_[at], over(2 * at, from, half, first, last), over(2 * at + 1, half + 1, to, first, last)});
  }
  void raise(uint32_t at, uint32_t from, uint32_t to, uint32_t first, uint32_t last, uint64_t end) {
    if (last < from || first > to) return;
    part_[at] = std::max(part_[at], end);
    if (first <= from && to <= last) {
      whole_[at] = std::max(whole_[at], end);
      return;
    }
    const uint32_t half = from + (to - from) / 2;
    raise(2 * at, from, half, first, last, end);
    raise(2 * at + 1, half + 1, to, first, last, end);
  }

  uint32_t size_;
  std::vector<uint64_t> whole_, part_;  // over all of a tree node's stretch; somewhere in it
};

uint64_t aligned(uint64_t offset, uint64_t alignment) { return (offset + alignment - 1) / alignment * alignment; }

// The lowest offset of a gap between `placed` that `bytes` fit into. Sorts `placed`.
uint64_t lowest_gap(std::vector<const Life*>& placed, uint64_t bytes, uint64_t alignment) {
  std::sort(placed.begin(), placed.end(), [](const Life* a, const Life* b) { return a->offset < b->offset; });
  uint64_t offset = 0;
  for (const Life* other : placed) {
    if (offset + bytes <= other->offset) break;
    offset = std::max(offset, aligned(other->offset + other->bytes, alignment));
  }
  return offset;
}

// Largest first, each at the lowest offset where it overlaps no block that is alive at the same time. If too many are
// alive at the same time to look at each, a block goes on top of all of them.
void pack(const std::vector<Life*>& lives, uint32_t nodes, uint64_t alignment, uint64_t& arena) {
  const Overlaps overlaps = overlaps_of(lives);
  std::vector<uint32_t> order(lives.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return lives[a]->bytes > lives[b]->bytes; });
  std::vector<bool> is_placed(lives.size());
  std::vector<const Life*> placed;
  Tops tops(nodes);
  for (const uint32_t i : order) {
    Life& life = *lives[i];
    if (overlaps.empty()) {
      life.offset = aligned(tops.over(life.first, life.last), alignment);
      tops.raise(life.first, life.last, life.offset + life.bytes);
    } else {
      placed.clear();
      for (const uint32_t other : overlaps[i]) {
        if (is_placed[other]) placed.push_back(lives[other]);
      }
      life.offset = lowest_gap(placed, life.bytes, alignment);
      is_placed[i] = true;
    }
    arena = std::max(arena, life.offset + life.bytes);
  }
}

}  // namespace

Status place_values(const std::vector<PlanDevice>& devices, Plan& plan) {
  std::vector<Life> lives = lives_of(plan);
  constexpr uint64_t kMost = uint64_t{1} << 60;  // so that no sum of sizes below overflows
  uint64_t all = 0;
  for (const Life& life : lives) all = saturating_add(all, life.bytes);
  if (all > kMost) {
    return error(Code::out_of_device_memory,
                 "a step of {} rows has activations of more than 2^60 bytes; use a smaller "
                 "--chunk, or another program",
                 plan.bucket.rows);
  }
  plan.arena_bytes.assign(devices.size(), 0);
  plan.workspace_offset.assign(plan.nodes.size(), 0);
  for (uint32_t d = 0; d < devices.size(); ++d) {
    std::vector<Life*> mine;
    for (Life& life : lives) {
      if (life.device == d) mine.push_back(&life);
    }
    pack(mine, static_cast<uint32_t>(plan.nodes.size()) + 1, std::max<uint64_t>(devices[d].info.buffer_alignment, 64),
         plan.arena_bytes[d]);
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
