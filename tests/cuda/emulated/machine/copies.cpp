// SPDX-License-Identifier: Apache-2.0
// Barriers in shared memory and copies. A copy is made at some time after it was requested, in any order with others; a
// small one (cp.async) at the latest when its thread waits for it.
#include <cuda.h>

#include <chrono>
#include <cstring>

#include "device.h"
#include "machine/state.h"
#include "machine/tensor_map.h"

namespace emulated {
namespace {

// A barrier's word. `missing` arrivals and `bytes` (those expected less those that came) until the phase ends.
struct Phase {
  int64_t bytes : 24;
  uint64_t missing : 12, arrivals : 12, parity : 1, mark : 15;
};
static_assert(sizeof(Phase) == 8);
constexpr uint64_t kMark = 0x5a7c;

Phase read_phase(const uint64_t* word, const char* what) {
  Phase p;
  std::memcpy(&p, word, sizeof p);
  if (p.mark != kMark) fault("%s: there is no barrier, or it was overwritten", what);
  return p;
}

// Writes a barrier back; ends its phase if nothing is missing.
void update(uint64_t* word, Phase p) {
  const bool ends = p.missing == 0 && p.bytes == 0;
  if (ends) p.parity ^= 1, p.missing = p.arrivals;
  std::memcpy(word, &p, sizeof p);
  if (!ends) return;
  std::vector<Thread*> waiting;
  waiting.swap(machine.phases);
  for (Thread* t : waiting) {
    if (t->word == word && t->parity != p.parity) {
      wake(*t);
    } else {
      machine.phases.push_back(t);
    }
  }
}

uint64_t* word_at(uint32_t at) { return reinterpret_cast<uint64_t*>(shared_pointer(at, 8, 8)); }

void arrived_bytes(uint64_t* word, uint32_t bytes) {
  Phase p;
  std::memcpy(&p, word, sizeof p);
  if (p.mark != kMark) {
    std::fprintf(stderr, "emulated: a copy ended whose barrier was overwritten\n");
    machine.failed = true;
    return;
  }
  p.bytes -= bytes;
  update(word, p);
}

void try_wait(bool& done, uint32_t at, uint32_t parity, const void* site) {
  if (dropped("mbarrier.try_wait", site)) {
    done = true;
    return;
  }
  uint64_t* word = word_at(at);
  Phase p = read_phase(word, "mbarrier.try_wait");
  if (parity > 1) fault("mbarrier.try_wait with parity %u", parity);
  if (p.parity == parity) {
    Thread& t = *current;
    t.word = word, t.parity = parity;
    machine.phases.push_back(&t);
    pause(Wait::phase, "mbarrier.try_wait", site);
  }
  done = true;
}

void make(const SmallCopy& c) {
  std::memcpy(c.to, c.from, c.bytes);
  std::memset(c.to + c.bytes, 0, c.room - c.bytes);
}

void read_source(OutCopy& c) {
  if (!c.has_read) c.read.assign(c.from, c.from + c.bytes);
  c.has_read = true;
}
void write_out(OutCopy& c) {
  if (c.done) return;
  read_source(c);
  std::memcpy(c.to, c.read.data(), c.bytes);
  c.done = true;
}

}  // namespace

void finish_copies(Thread& t) {
  for (auto& group : t.groups) {
    for (const SmallCopy& c : group) make(c);
  }
  t.groups.assign(1, {});
  for (auto& c : t.out) write_out(*c);
  t.out.clear();
}

namespace ptx {

uint64_t special_globaltimer() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

void check_aligned(const void* p, uint32_t alignment) {
  if (reinterpret_cast<uintptr_t>(p) % alignment != 0) fault("address %p is no multiple of %u", p, alignment);
}

uint32_t address_at_peer(uint32_t at, uint32_t rank) {
  if (rank >= current->warp->block->cluster->blocks.size()) fault("mapa: the cluster has no block %u", rank);
  return (at & 0xffffff) | (rank + 1) << 24;
}

void griddepcontrol_wait() {
  const void* site = __builtin_return_address(0);
  Thread& t = *current;
  const Launch& l = *t.warp->block->launch;
  if (dropped("griddepcontrol.wait", site) || l.before == nullptr || l.before->complete) return;
  machine.dependents.push_back(&t);
  pause(Wait::earlier, "griddepcontrol.wait", site);
}
void griddepcontrol_launch_dependents() {
  Block& b = *current->warp->block;
  if (b.triggered) return;
  b.triggered = true;
  --b.launch->not_triggered;
}

void bar_sync(uint32_t id, uint32_t threads) {
  const void* site = __builtin_return_address(0);
  if (!dropped("bar.sync", site)) block_barrier("bar.sync", id, threads, 0, site);
}
void barrier_cluster_arrive_relaxed_aligned() { cluster_arrive(); }
void barrier_cluster_wait_aligned() {
  const void* site = __builtin_return_address(0);
  if (!dropped("barrier.cluster.wait", site)) cluster_wait(site);
}

void mbarrier_init_shared_b64(uint32_t at, uint32_t arrivals) {
  if (arrivals == 0 || arrivals >= 4096) fault("mbarrier.init for %u arrivals", arrivals);
  Phase p{};
  p.missing = p.arrivals = arrivals, p.mark = kMark;
  std::memcpy(word_at(at), &p, sizeof p);
}
void mbarrier_arrive(uint32_t at, uint32_t bytes, const char* what) {
  uint64_t* word = word_at(at);
  Phase p = read_phase(word, what);
  if (p.missing == 0) fault("%s: more arrivals than the barrier is for", what);
  p.bytes += bytes, p.missing -= 1;
  update(word, p);
}
void mbarrier_expect_tx_relaxed_cta_shared_cta_b64(uint32_t at, uint32_t bytes) {
  uint64_t* word = word_at(at);
  Phase p = read_phase(word, "mbarrier.expect_tx");
  p.bytes += bytes;
  update(word, p);
}
void mbarrier_try_wait_parity_shared_b64(bool& done, uint32_t at, uint32_t parity) {
  try_wait(done, at, parity, __builtin_return_address(0));
}
void mbarrier_try_wait_parity_acquire_cluster_shared_cta_b64(bool& done, uint32_t at, uint32_t parity) {
  try_wait(done, at, parity, __builtin_return_address(0));
}

void copy_box(uint32_t to, const void* map, int x, int y, int z, uint32_t barrier) {
  const TensorMap m = read_map(map);
  if (m.rank == 0) fault("a copy by a tensor map that was never made");
  const uint32_t bytes = m.box[0] * m.box[1] * m.box[2] * m.element;
  char* target = shared_pointer(to, bytes, 128);
  Block* block = current->warp->block;
  uint64_t* word = word_at(barrier);
  read_phase(word, "cp.async.bulk.tensor");
  const char* window = target - (to & 0xffffff);
  later(block, [=] {
    copy_tensor_box(m, x, y, z, target, static_cast<uint32_t>(target - window));
    arrived_bytes(word, bytes);
  });
}

void cp_async_bulk_shared_cluster_global_mbarrier_complete_tx_bytes(uint32_t to, const void* from, uint32_t bytes,
                                                                    uint32_t barrier) {
  if (bytes % 16 != 0) fault("cp.async.bulk of %u bytes, no multiple of 16", bytes);
  check_aligned(from, 16);
  char* target = shared_pointer(to, bytes, 16);
  uint64_t* word = word_at(barrier);
  read_phase(word, "cp.async.bulk");
  later(current->warp->block, [=] {
    std::memcpy(target, from, bytes);
    arrived_bytes(word, bytes);
  });
}

void cp_async_bulk_global_shared_cta_bulk_group(void* to, uint32_t from, uint32_t bytes) {
  if (bytes % 16 != 0) fault("cp.async.bulk of %u bytes, no multiple of 16", bytes);
  check_aligned(to, 16);
  auto c = std::make_shared<OutCopy>();
  c->to = static_cast<char*>(to), c->from = shared_pointer(from, bytes, 16), c->bytes = bytes;
  current->out.push_back(c);
  // The thread waits before its block's memory goes; so this reads only memory that is there.
  if (random_below(2) != 0) read_source(*c);
  if (c->has_read && random_below(2) != 0) write_out(*c);
}
void cp_async_bulk_wait_group_read(uint32_t left) {
  if (left != 0) fault("cp.async.bulk.wait_group.read of %u groups is not emulated", left);
  if (dropped("cp.async.bulk.wait_group.read", __builtin_return_address(0))) return;
  for (auto& c : current->out) read_source(*c);
}
void cp_async_bulk_wait_group(uint32_t left) {
  if (left != 0) fault("cp.async.bulk.wait_group of %u groups is not emulated", left);
  if (dropped("cp.async.bulk.wait_group", __builtin_return_address(0))) return;
  for (auto& c : current->out) write_out(*c);
  current->out.clear();
}

void push_words(uint32_t to, const float* words, uint32_t count, uint32_t barrier) {
  const uint32_t bytes = 4 * count;
  char* target = shared_pointer(to, bytes, bytes);
  uint64_t* word = word_at(barrier);
  Block* block = current->warp->block->cluster->blocks[(to >> 24) - 1].get();
  const std::vector<float> v(words, words + count);
  later(block, [=] {
    std::memcpy(target, v.data(), bytes);
    arrived_bytes(word, bytes);
  });
}

void cp_async_cg_shared_global(uint32_t to, const void* from, uint32_t room, uint32_t bytes) {
  check_aligned(from, room);
  if (bytes > room) fault("cp.async of %u bytes to %u", bytes, room);
  current->groups.back().push_back({shared_pointer(to, room, room), static_cast<const char*>(from), bytes, room});
  if (random_below(8) == 0) make(current->groups.back().back());
}
void cp_async_commit_group() { current->groups.emplace_back(); }
void cp_async_wait_group(uint32_t left) {
  if (dropped("cp.async.wait_group", __builtin_return_address(0))) return;
  auto& groups = current->groups;
  while (groups.size() > left + 1) {
    for (const SmallCopy& c : groups.front()) make(c);
    groups.erase(groups.begin());
  }
}

}  // namespace ptx
}  // namespace emulated
