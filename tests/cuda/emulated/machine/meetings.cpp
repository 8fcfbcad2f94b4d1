// SPDX-License-Identifier: Apache-2.0
// How threads meet: lanes of a warp, threads of a block, blocks of a cluster. What never comes together is reported.
#include <cstdio>
#include <cstring>

#include "machine/state.h"

namespace emulated {
namespace {

// Lets a meeting happen for which all have come; `t` is one of them.
void hold_meeting(Warp& w, const Thread& t) {
  const uint32_t came = t.mask & w.meets;
  void* brought[kLanes] = {};
  for (uint32_t i = 0; i < kLanes; ++i) {
    if ((came >> i & 1) != 0) brought[i] = w.lanes[i]->data;
  }
  if (t.combine != nullptr) t.combine(brought);
  w.meets &= ~came;
  for (uint32_t i = 0; i < kLanes; ++i) {
    if ((came >> i & 1) != 0 && w.lanes[i] != current) wake(*w.lanes[i]);
  }
}

// That lanes of the meeting have ended is a fault where all must come.
void check_whole(const Warp& w, const Thread& t) {
  if (t.whole && (t.mask & ~w.there) != 0)
    fault("%s with mask %08x, but lanes %08x have ended", t.what, t.mask, t.mask & ~w.there);
}

bool all_came(const Warp& w, const char* what, uint32_t mask) {
  if ((mask & w.there & ~w.meets) != 0) return false;
  for (uint32_t i = 0; i < kLanes; ++i) {
    if ((mask & w.there) >> i == 0) return true;
    if (((mask & w.there) >> i & 1) == 0) continue;
    const Thread& t = *w.lanes[i];
    if ((w.meets >> i & 1) == 0 || t.mask != mask || std::strcmp(t.what, what) != 0) return false;
  }
  return true;
}

void open_barrier(Block& block, uint32_t id) {
  Named& b = block.barriers[id];
  const int count = b.count;
  std::vector<Thread*> waiting;
  waiting.swap(b.waiting);
  b = Named{};
  for (Thread* t : waiting) {
    t->result = count;
    wake(*t);
  }
}

void open_cluster(Cluster& c) {
  c.arrived = 0;
  ++c.phase;
  std::vector<Thread*> waiting;
  waiting.swap(c.waiting);
  for (Thread* t : waiting) wake(*t);
}

}  // namespace

void meet(const char* what, uint32_t mask, void* data, Combine combine, bool whole, const void* site) {
  Thread& t = *current;
  Warp& w = *t.warp;
  if ((mask >> t.lane & 1) == 0) fault("%s with mask %08x, without this lane", what, mask);
  t.mask = mask, t.data = data, t.combine = combine, t.whole = whole, t.what = what, t.site = site;
  check_whole(w, t);
  w.meets |= 1u << t.lane;
  if (!all_came(w, what, mask)) {
    pause(Wait::meeting, what, site);
    return;
  }
  hold_meeting(w, t);
}

void check_barrier(Block& block, uint32_t id) {
  Named& b = block.barriers[id];
  if (b.arrived != 0 && b.arrived >= (b.expected == 0 ? block.living : b.expected)) open_barrier(block, id);
}

int block_barrier(const char* what, uint32_t id, uint32_t threads, int yes, const void* site) {
  Thread& t = *current;
  Block& block = *t.warp->block;
  if (id >= 16) fault("%s: there is no barrier %u", what, id);
  if (threads % kLanes != 0) fault("%s: %u threads are no whole warps", what, threads);
  Named& b = block.barriers[id];
  if (b.arrived != 0 && b.expected != threads)
    fault("%s: barrier %u is for %u threads and for %u", what, id, b.expected, threads);
  b.expected = threads;
  ++b.arrived, b.count += yes != 0 ? 1 : 0;
  b.waiting.push_back(&t);
  t.barrier = id;
  if (b.arrived >= (threads == 0 ? block.living : threads)) {
    std::erase(b.waiting, &t);
    t.result = b.count;
    open_barrier(block, id);
  } else {
    pause(Wait::barrier, what, site);
  }
  return t.result;
}

void cluster_arrive() {
  Thread& t = *current;
  Cluster& c = *t.warp->block->cluster;
  t.cluster_phase = c.phase;
  if (++c.arrived == c.living()) open_cluster(c);
}

void cluster_wait(const void* site) {
  Thread& t = *current;
  Cluster& c = *t.warp->block->cluster;
  if (t.cluster_phase != c.phase) return;
  c.waiting.push_back(&t);
  pause(Wait::cluster, "barrier.cluster.wait", site);
}

void spin() {
  Thread& t = *current;
  machine.spinning.push_back(&t);
  pause(Wait::spin, "a variable", __builtin_return_address(0));
}

void recheck_after_end(Thread& t) {
  Warp& w = *t.warp;
  Block& block = *w.block;
  w.there &= ~(1u << t.lane);
  --block.living;
  for (uint32_t i = 0; i < kLanes; ++i) {
    if ((w.meets >> i & 1) == 0 || w.lanes[i]->wait != Wait::meeting) continue;
    const Thread& other = *w.lanes[i];
    if ((other.mask >> t.lane & 1) == 0) continue;
    check_whole(w, other);
    if (all_came(w, other.what, other.mask)) hold_meeting(w, other);
  }
  if (block.living != 0) {
    for (uint32_t id = 0; id < 16; ++id) {
      if (block.barriers[id].expected == 0) check_barrier(block, id);
    }
  }
  Cluster& c = *block.cluster;
  if (c.arrived != 0 && c.arrived >= c.living()) open_cluster(c);
}

namespace {

// Threads of a block that wait for the same at the same place, in one line.
void report_block(const Block& b) {
  std::map<std::pair<const char*, const void*>, std::vector<uint32_t>> groups;
  for (const Thread& t : b.threads) {
    if (!t.ended) groups[{t.what, t.site}].push_back(t.linear);
  }
  for (const auto& [why, threads] : groups) {
    std::fprintf(stderr, "emulated:   block (%u, %u, %u): %zu threads (%u ...) wait: %s at %s\n", b.at.x, b.at.y,
                 b.at.z, threads.size(), threads[0], why.first, place(why.second).c_str());
  }
}

}  // namespace

void report_deadlock() {
  uint32_t shown = 0;
  for (const Launch& l : *machine.launches) {
    if (!l.begun || l.complete) continue;
    std::fprintf(stderr, "emulated: %s: deadlock; %u blocks have not ended\n", name_of(l.kernel).c_str(),
                 l.blocks_left);
    for (const auto& c : l.running) {
      for (const auto& b : c->blocks) {
        if (++shown <= 4) report_block(*b);
      }
    }
  }
}

}  // namespace emulated
