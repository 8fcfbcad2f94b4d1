// SPDX-License-Identifier: Apache-2.0
// Which block begins, which thread runs, and what happens when: at random.
#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>

#include "machine/state.h"

namespace emulated {

Machine machine;
Thread* current = nullptr;

namespace {

constexpr uint32_t kMostBlocks = 32;
constexpr uint32_t kMostOverlap = 3;      // launches under way at once
constexpr uint32_t kMostThreads = 16384;  // of blocks that are begun before they must

uint64_t seed_of_process() {
  const char* text = std::getenv("SWITCHYARD_EMULATED_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}
uint64_t random_state = seed_of_process() * 0x9e3779b97f4a7c15u + 1;

uint32_t random_bits() {  // xorshift64*
  random_state ^= random_state >> 12, random_state ^= random_state << 25, random_state ^= random_state >> 27;
  return static_cast<uint32_t>(random_state * 0x2545f4914f6cdd1du >> 32);
}

std::vector<uint32_t> shuffled(uint32_t n) {
  std::vector<uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  for (uint32_t i = n; i > 1; --i) std::swap(order[i - 1], order[random_below(i)]);
  return order;
}

uint3 place_of(const dim3& grid, uint32_t i) { return {i % grid.x, i / grid.x % grid.y, i / grid.x / grid.y}; }

void begin_threads(Block& block) {
  const Launch& l = *block.launch;
  const uint32_t n = l.block.x * l.block.y * l.block.z;
  block.living = n;
  block.threads = std::vector<Thread>(n);
  block.warps = std::vector<Warp>((n + kLanes - 1) / kLanes);
  for (uint32_t i = 0; i < n; ++i) {
    Thread& t = block.threads[i];
    Warp& w = block.warps[i / kLanes];
    t.here = {
        place_of(l.block, i), block.at, {block.at.x / l.cluster, block.at.y, block.at.z}, l.block, l.grid, block.rank};
    t.warp = &w, t.lane = i % kLanes, t.linear = i;
    w.block = &block, w.lanes[t.lane] = &t, w.there |= 1u << t.lane;
  }
  for (Warp& w : block.warps) {
    w.ready = w.there, w.listed = true;
    machine.ready.push_back(&w);
  }
}

void start_cluster(Launch& l) {
  const uint32_t which = l.to_start.back();
  l.to_start.pop_back();
  auto cluster = std::make_unique<Cluster>();
  for (uint32_t rank = 0; rank < l.cluster; ++rank) {
    auto block = std::make_unique<Block>();
    block->launch = &l, block->cluster = cluster.get(), block->rank = rank;
    block->at = place_of(l.grid, which * l.cluster + rank);
    begin_window(*block);
    cluster->blocks.push_back(std::move(block));
  }
  for (auto& block : cluster->blocks) begin_threads(*block);
  l.running.push_back(std::move(cluster));
  l.resident += l.cluster;
}

void begin(Launch& l, const Launch* before) {
  const uint32_t blocks = l.grid.x * l.grid.y * l.grid.z;
  l.to_start = shuffled(blocks / l.cluster);
  l.running.clear(), l.places.clear();
  l.before = before;
  l.not_triggered = l.blocks_left = blocks, l.resident = 0;
  l.begun = true, l.complete = false;
  l.breadth = random_below(2) != 0;
}

bool may_begin(const std::vector<Launch>& all, size_t i) {
  if (i == machine.front) return true;
  return all[i].overlaps && i - machine.front < kMostOverlap && all[i - 1].begun && all[i - 1].not_triggered == 0;
}

bool has_room(const Launch& l) {
  return !l.to_start.empty() &&
         (l.resident == 0 || l.resident + l.cluster <= resident_blocks(l.block, l.dynamic_bytes));
}

Launch* to_start(bool must) {
  for (size_t i = machine.front; i < machine.begun; ++i) {
    Launch& l = (*machine.launches)[i];
    if (!has_room(l)) continue;
    const uint32_t threads = l.resident * l.block.x * l.block.y * l.block.z;
    if (must || (l.breadth && threads < kMostThreads && random_below(4) == 0)) return &l;
  }
  return nullptr;
}

void happen_one() {
  std::swap(machine.events[random_below(static_cast<uint32_t>(machine.events.size()))], machine.events.back());
  const Event e = std::move(machine.events.back());
  machine.events.pop_back();
  ++machine.progress;
  e.happen();
}

void run_warp() {
  const uint32_t i = random_below(static_cast<uint32_t>(machine.ready.size()));
  Warp& w = *machine.ready[i];
  machine.ready[i] = machine.ready.back();
  machine.ready.pop_back();
  w.listed = false;
  Block* const block = w.block;
  while (w.ready != 0 && !machine.failed) {
    const uint32_t from = random_below(kLanes), turned = w.ready >> from | w.ready << ((kLanes - from) % kLanes);
    const uint32_t lane = (static_cast<uint32_t>(__builtin_ctz(turned)) + from) % kLanes;
    w.ready &= ~(1u << lane);
    resume(*w.lanes[lane]);
    if (w.ready != 0 && random_below(64) < machine.sticky) break;
  }
  if (w.ready != 0 && !w.listed) w.listed = true, machine.ready.push_back(&w);
  if (block->living != 0 || block->cluster->living() != 0) return;
  Launch& l = *block->launch;  // the whole cluster has ended
  for (const auto& b : block->cluster->blocks) {
    if (std::any_of(machine.events.begin(), machine.events.end(), [&](const Event& e) { return e.block == b.get(); })) {
      std::fprintf(stderr, "emulated: %s: a block ended while the copy engine still wrote to its shared memory\n",
                   name_of(l.kernel).c_str());
      machine.failed = true;
    }
    if (!b->triggered) --l.not_triggered;
    --l.blocks_left, --l.resident;
    give_window(b->window);
    for (Warp& one : b->warps) std::erase(machine.ready, &one);
  }
  const Cluster* const ended = block->cluster;  // `block` goes with it
  std::erase_if(l.running, [&](const auto& c) { return c.get() == ended; });
}

void complete(Launch& l) {
  while (!machine.events.empty()) happen_one();
  l.complete = true;
  std::vector<Thread*> waiting;
  waiting.swap(machine.dependents);
  for (Thread* t : waiting) {
    if (t->warp->block->launch->before->complete) {
      wake(*t);
    } else {
      machine.dependents.push_back(t);
    }
  }
}

// One step; false: nothing can happen any more.
bool step() {
  static uint64_t progress_of_spin = 0;
  static uint32_t idle = 0;
  if (!machine.events.empty() && random_below(64) < machine.hasty) {
    happen_one();
    return true;
  }
  if (Launch* l = to_start(machine.ready.empty() && (machine.events.empty() || random_below(2) != 0)); l != nullptr) {
    ++machine.progress;
    start_cluster(*l);
    return true;
  }
  if (!machine.ready.empty()) {
    run_warp();
    return true;
  }
  if (!machine.events.empty()) {
    happen_one();
    return true;
  }
  if (machine.spinning.empty()) return false;
  idle = machine.progress == progress_of_spin ? idle + 1 : 0;
  progress_of_spin = machine.progress;
  if (idle > 3) return false;
  std::vector<Thread*> spinning;
  spinning.swap(machine.spinning);
  for (Thread* t : spinning) wake(*t);
  return true;
}

void clear() {
  machine.ready.clear(), machine.spinning.clear(), machine.phases.clear(), machine.dependents.clear();
  machine.events.clear();
}

}  // namespace

uint32_t random_below(uint32_t n) { return static_cast<uint32_t>(uint64_t{random_bits()} * n >> 32); }

uint32_t processors() {
  static const uint32_t count = [] {
    const char* text = std::getenv("SWITCHYARD_EMULATED_PROCESSORS");
    return text == nullptr ? 12u : static_cast<uint32_t>(std::max(1, std::atoi(text)));
  }();
  return count;
}

const Card& card() {
  static const Card found = [] {
    const char* text = std::getenv("SWITCHYARD_EMULATED_CAPABILITY");
    Card c;
    if (text == nullptr) return c;
    c.capability = static_cast<uint32_t>(std::lround(std::atof(text) * 10));
    const bool small = c.capability == 86 || c.capability == 89 || c.capability >= 120;
    if (c.capability == 80) c.processor_memory = 164 * 1024;
    if (small) c.processor_memory = 100 * 1024, c.processor_threads = 1536;
    return c;
  }();
  return found;
}

uint32_t resident_blocks(const dim3& block, size_t shared_bytes) {
  const uint32_t threads = (block.x * block.y * block.z + kLanes - 1) / kLanes * kLanes;
  const uint32_t by_memory = card().processor_memory / (static_cast<uint32_t>(shared_bytes) + kBlockMemory);
  return processors() * std::min({card().processor_threads / threads, by_memory, kMostBlocks});
}

bool failed() { return machine.failed; }

bool run(std::vector<Launch>& launches) {
  clear();
  machine.launches = &launches;
  machine.front = machine.begun = 0;
  machine.sticky = random_below(3) == 0 ? 64 : random_below(16);
  machine.hasty = random_below(3) == 0 ? 0 : random_below(16);
  while (machine.front < launches.size() && !machine.failed) {
    while (machine.begun < launches.size() && may_begin(launches, machine.begun)) {
      begin(launches[machine.begun], machine.begun == 0 ? nullptr : &launches[machine.begun - 1]);
      ++machine.begun;
    }
    if (!step()) {
      report_deadlock();
      machine.failed = true;
    }
    for (size_t i = machine.front; i < machine.begun; ++i) {
      if (launches[i].blocks_left == 0 && !launches[i].complete) complete(launches[i]);
    }
    while (machine.front < machine.begun && launches[machine.front].complete) ++machine.front;
  }
  current = nullptr;
  if (machine.failed) {  // threads that have not ended are left as they are
    for (Launch& l : launches) {
      for (auto& c : l.running) static_cast<void>(c.release());
      l.running.clear();
    }
    clear();
  }
  return !machine.failed;
}

uint32_t Cluster::living() const {
  uint32_t sum = 0;
  for (const auto& b : blocks) sum += b->living;
  return sum;
}

void wake(Thread& thread) {
  Warp& w = *thread.warp;
  thread.wait = Wait::nothing;
  w.ready |= 1u << thread.lane;
  if (w.listed) return;
  w.listed = true;
  machine.ready.push_back(&w);
}

void later(Block* block, std::function<void()> event) { machine.events.push_back({block, std::move(event)}); }

}  // namespace emulated
