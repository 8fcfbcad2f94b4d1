// SPDX-License-Identifier: Apache-2.0
// Properties of the process that a plugin must not change.
#pragma once

#include <array>
#include <csignal>
#include <cstdint>
#include <set>
#include <string>

namespace switchyard {

// Whether this process has had a child.
bool has_started_processes();

struct Surroundings {
  std::set<int> files;  // open descriptors
  std::string folder;   // the working directory
  std::string locale;
  unsigned mask = 0;      // of new files' rights
  uint64_t rounding = 0;  // how floating point rounds, traps, and flushes to zero
  size_t threads = 0;
  bool alarm = false;
  std::array<struct sigaction, NSIG> actions{};

  static Surroundings now();
  // The rule that the change to `later` breaks; "" if none. New descriptors and threads are allowed: drivers have them.
  std::string broken_by(const Surroundings& later) const;
};

}  // namespace switchyard
