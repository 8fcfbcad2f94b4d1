// SPDX-License-Identifier: Apache-2.0
// The services that the runtime offers to plugins: logging, memory, and the thread pool.
#pragma once

#include <memory>

#include "core/base/thread_pool.h"
#include "switchyard/plugin.h"

namespace switchyard {

// One per process is enough; it outlives every plugin that negotiated with it.
class Host {
 public:
  // Has fewer threads where the system refuses more.
  explicit Host(uint32_t threads);
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  const swy_host* table() const { return &host_; }
  uint32_t threads() const { return pool_.width(); }
  const ThreadPool& pool() const { return pool_; }

  // Called for every kernel of a host backend that runs, until set to NULL, from whichever thread runs it. Not while a
  // list runs: StepRunner::drain waits until none does.
  using Trace = void (*)(void* ctx, const char* name, uint64_t begin_ns, uint64_t end_ns);
  void set_trace(Trace trace, void* ctx) {
    host_.trace = trace;
    host_.ctx = ctx;
  }
  bool pin() { return pool_.pin(); }

  // Counts the team's runs and barriers, until set to NULL. Not while a list runs.
  void watch(TeamCounts* counts) { pool_.watch(counts); }

 private:
  ThreadPool pool_;
  swy_executor executor_{};
  swy_host host_{};
};

}  // namespace switchyard
