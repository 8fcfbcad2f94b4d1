// SPDX-License-Identifier: Apache-2.0
// The services that the runtime offers to plugins: logging, memory, and the thread pool.
#pragma once

#include "core/base/thread_pool.h"
#include "switchyard/plugin.h"

namespace switchyard {

// What a plugin gets to see of it lives until the process ends, since plugins are never unloaded: it is kept, and used
// again for a later Host with as many threads.
class Host {
 public:
  // Has fewer threads where the system refuses more.
  explicit Host(uint32_t threads);
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  const swy_host* table() const;
  uint32_t threads() const { return pool().width(); }
  const ThreadPool& pool() const;

  // Called for every kernel of a host backend that runs, until set to NULL, from whichever thread runs it. Not while a
  // list runs: StepRunner::drain waits until none does.
  using Trace = void (*)(void* ctx, const char* name, uint64_t begin_ns, uint64_t end_ns);
  void set_trace(Trace trace, void* ctx);
  bool pin();

  // Counts the team's runs and barriers, until set to NULL. Not while a list runs.
  void watch(TeamCounts* counts);

 private:
  struct Services;
  Services* services_;
};

}  // namespace switchyard
