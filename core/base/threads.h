// SPDX-License-Identifier: Apache-2.0
// Starting threads on systems that may refuse one more.
#pragma once

#include <exception>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/status.h"

namespace switchyard {

// Adds a thread that runs `work`, which must not throw; false where the system refuses.
template <class Work>
bool start_thread(std::vector<std::thread>& threads, Work&& work) {
  try {
    threads.emplace_back(std::forward<Work>(work));
    return true;
  } catch (const std::exception&) {  // std::system_error; std::bad_alloc
    return false;
  }
}

// Runs `work` on up to `count` threads, the caller's among them, and returns when all are done. The same work on fewer
// threads where the system refuses more. `work` must not throw.
template <class Work>
void on_threads(size_t count, const Work& work) {
  std::vector<std::thread> others;
  for (size_t t = 1; t < count && start_thread(others, work); ++t) continue;
  work();
  for (std::thread& t : others) t.join();
}

// What `work` returns; out_of_host_memory where it runs out of memory. For work on threads of its own.
template <class Work>
auto within_memory(const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return Status(Code::out_of_host_memory, "there is not enough memory");
  }
}

}  // namespace switchyard
