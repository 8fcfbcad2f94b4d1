// SPDX-License-Identifier: Apache-2.0
#include "core/base/affinity.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace switchyard {
namespace {

// The lowest processor of the core that this one belongs to: the list begins with it ("0,8" or "0-1").
uint32_t first_sibling(uint32_t cpu) {
  std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
  uint32_t first = cpu;
  return file >> first ? first : cpu;
}

std::vector<uint32_t> find_allowed() {
  cpu_set_t set;
  std::vector<uint32_t> cpus;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return {0};
  for (uint32_t c = 0; c < CPU_SETSIZE; ++c) {
    if (CPU_ISSET(c, &set)) cpus.push_back(c);
  }
  std::stable_partition(cpus.begin(), cpus.end(), [](uint32_t c) { return first_sibling(c) == c; });
  return cpus;
}

}  // namespace

const std::vector<uint32_t>& allowed_processors() {
  static const std::vector<uint32_t> cpus = find_allowed();
  return cpus;
}

bool pin_this_thread(uint32_t processor) {
  (void)allowed_processors();  // while all are
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  return ::sched_setaffinity(0, sizeof set, &set) == 0;
}

uint32_t this_processor() { return static_cast<uint32_t>(std::max(0, ::sched_getcpu())); }

void unpin_this_thread() {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const uint32_t c : allowed_processors()) CPU_SET(c, &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

}  // namespace switchyard
