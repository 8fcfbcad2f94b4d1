// SPDX-License-Identifier: Apache-2.0
// A thread of the device is a fiber; its stack is used again by later threads.
#include <sys/mman.h>

#include <cstdarg>
#include <cstdio>
#include <new>

#include "machine/state.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulated {

struct Stack {
  char* memory;
};

namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kStackBytes = 512 * 1024;
const void* machine_bottom = nullptr;
size_t machine_size = 0;
#else
constexpr size_t kStackBytes = 128 * 1024;
#endif

std::vector<Stack*>& free_stacks() {
  static std::vector<Stack*> all;
  return all;
}

Stack* take_stack() {
  if (!free_stacks().empty()) {
    Stack* s = free_stacks().back();
    free_stacks().pop_back();
    return s;
  }
  void* p = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  return new Stack{static_cast<char*>(p)};
}

// What Boost wants to know of the memory for a fiber's stack.
struct Stacks {
  Stack* stack;
  boost::context::stack_context allocate() const {
    boost::context::stack_context c;
    c.size = kStackBytes, c.sp = stack->memory + kStackBytes;
    return c;
  }
  void deallocate(boost::context::stack_context&) const {}
};

void entered() {
#if defined(__SANITIZE_ADDRESS__)
  const void* bottom = nullptr;
  size_t size = 0;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
  machine_bottom = bottom, machine_size = size;
#endif
}

void to_machine([[maybe_unused]] Thread& t) {
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, machine_bottom, machine_size);
#endif
  t.machine = std::move(t.machine).resume();
  entered();
}

boost::context::fiber life_of(Thread& t, boost::context::fiber&& machine_side) {
  t.machine = std::move(machine_side);
  entered();
  t.warp->block->launch->body();
  t.ended = true;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(nullptr, machine_bottom, machine_size);
#endif
  return std::move(t.machine);
}

}  // namespace

void free_stack(Stack* stack) { free_stacks().push_back(stack); }

void resume(Thread& t) {
  if (!t.started) {
    t.started = true;
    t.stack = take_stack();
    t.fiber = boost::context::fiber(std::allocator_arg, Stacks{t.stack},
                                    [&t](boost::context::fiber&& from) { return life_of(t, std::move(from)); });
  }
  current = &t;
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, t.stack->memory, kStackBytes);
#endif
  t.fiber = std::move(t.fiber).resume();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
  current = nullptr;
  if (!t.ended) return;
  free_stack(t.stack);
  ++machine.progress;
  finish_copies(t);
  recheck_after_end(t);
}

void pause(Wait wait, const char* what, const void* site) {
  Thread& t = *current;
  t.wait = wait, t.what = what, t.site = site;
  if (wait != Wait::spin) ++machine.progress;
  to_machine(t);
}

void fault(const char* format, ...) {
  Thread& t = *current;
  const Launch& l = *t.warp->block->launch;
  const uint3 b = t.here.block;
  std::fprintf(stderr, "emulated: %s, block (%u, %u, %u), thread %u: ", name_of(l.kernel).c_str(), b.x, b.y, b.z,
               t.linear);
  va_list list;
  va_start(list, format);
  std::vfprintf(stderr, format, list);
  va_end(list);
  std::fputc('\n', stderr);
  machine.failed = true;
  for (;;) pause(Wait::never, "", nullptr);
}

}  // namespace emulated
