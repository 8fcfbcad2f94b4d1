// SPDX-License-Identifier: Apache-2.0
// A report's description of the machine that it was made on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace switchyard::bench {

struct Machine {
  std::string processor;                                  // "Intel(R) Xeon(R) Processor"
  std::string kernel;                                     // "Linux 6.1.0"
  uint32_t cpus = 0;                                      // that this process may run on
  uint64_t second_cache_bytes = 0, last_cache_bytes = 0;  // 0: not known
  uint64_t memory_bytes = 0;
  uint64_t memory_free_bytes = 0;  // that programs can still take, within the limit of the control group
};

Machine describe_machine();

// The command line of this process.
std::vector<std::string> command_line();

// The largest resident set of this process so far, in bytes.
uint64_t peak_memory_bytes();

// Processor time of all threads of this process so far, in seconds.
double processor_seconds();

}  // namespace switchyard::bench
