// SPDX-License-Identifier: Apache-2.0
// ThreadPool: the one team of threads that CPU backends compute on.
//
// `run` starts every member on the same function and returns when all are back. Between runs the members are parked; in
// a barrier they spin for a moment and then sleep, and two that share a processor move apart. A member's floating point
// rounds after a run as before it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "switchyard/plugin.h"

namespace switchyard {

// Counts of the team's work since counting was switched on.
struct TeamCounts {
  uint64_t runs = 0, barriers = 0;
  uint64_t waited_ns = 0;  // by member 0, in barriers and for the end of runs
};

class ThreadPool {
 public:
  // Up to `width` members: fewer where the system refuses more threads. The caller of `run` is member 0.
  explicit ThreadPool(uint32_t width);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  uint32_t width() const { return width_; }
  // [thread-safe, no-alloc] Calls of several threads take turns. Called by a member of a running team, it calls `fn` at
  // once, on this thread alone, as a team of one. `fn` must not throw: that ends the process.
  void run(swy_team_fn fn, void* arg);

  // Binds each member to its own processor, the caller of this function among them. Does nothing and returns false if
  // there are fewer processors than members. Must not be called while a run is live.
  bool pin();

  // Counts into `counts` until it is set to NULL. Not while a run is live.
  void watch(TeamCounts* counts) { watched_ = counts; }

 private:
  void member(uint32_t rank);
  swy_team team(uint32_t rank);
  void barrier(uint32_t rank);
  void work(uint32_t rank) noexcept;
  uint32_t note_processor(uint32_t rank);
  void move_apart(uint32_t rank);

  uint32_t width_ = 1;
  std::mutex turn_;  // held by the thread whose run it is
  swy_team_fn fn_ = nullptr;
  void* arg_ = nullptr;
  const char *backend_ = nullptr, *entry_ = nullptr;  // where the caller of the run is (CallSite)
  TeamCounts* watched_ = nullptr;
  std::atomic<uint32_t> generation_{0};  // counts runs
  std::atomic<uint32_t> running_{0};
  std::atomic<uint32_t> arrived_{0};
  std::atomic<uint32_t> phase_{0};
  std::atomic<bool> stop_{false};
  std::unique_ptr<std::atomic<uint32_t>[]> processors_;  // of each member, at its last begin or barrier
  bool pinned_ = false;                                  // each member, for good
  std::vector<std::thread> threads_;
};

}  // namespace switchyard
