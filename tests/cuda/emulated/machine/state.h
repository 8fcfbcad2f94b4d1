// SPDX-License-Identifier: Apache-2.0
// The one machine of the process. Only one thread of the host is in it at a time.
#pragma once

#include "machine/machine.h"

namespace emulated {

struct Event {
  Block* block;
  std::function<void()> happen;
};

struct Machine {
  std::vector<Warp*> ready;  // warps with threads that can run
  std::vector<Thread*> spinning, phases, dependents;
  std::vector<Event> events;
  std::vector<Launch>* launches = nullptr;
  size_t front = 0, begun = 0;  // launches before `front` are complete
  uint64_t progress = 0;        // steps of threads that do not spin, and events
  bool failed = false;
  uint32_t sticky = 4, hasty = 4;  // of this list: how seldom warps take turns, how soon events happen
};
extern Machine machine;

// Runs a thread until it waits or ends.
void resume(Thread& thread);
void free_stack(Stack* stack);
char* take_window();
void give_window(char* window);
void begin_window(Block& block);
// A thread ended: barriers and meetings may not wait for it.
void recheck_after_end(Thread& thread);
void check_barrier(Block& block, uint32_t id);
void report_deadlock();
// Makes all asynchronous operations of a thread or a warp that nobody waited for.
void finish_copies(Thread& thread);

}  // namespace emulated
