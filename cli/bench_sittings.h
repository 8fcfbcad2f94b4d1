// SPDX-License-Identifier: Apache-2.0
// Which processes of a benchmark have their models in memory at the same time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace switchyard::cli {

// A process's memory, estimated before it is loaded.
struct ProcessNeed {
  uint64_t weight_bytes = 0;
  uint64_t state_bytes = 0;                             // in fp32: only a plan knows the device's form
  bool host = true;                                     // it computes in the host's memory
  std::string device;                                   // otherwise there
  uint64_t host_step_bytes = 0, device_step_bytes = 0;  // of the largest step, here and there

  static constexpr uint64_t kProcess = uint64_t{96} << 20;  // code, buffers
  uint64_t host_bytes() const { return kProcess + (host ? model_bytes() + host_step_bytes : 0); }
  uint64_t device_bytes() const { return host ? 0 : model_bytes() + device_step_bytes; }

 private:
  uint64_t model_bytes() const { return weight_bytes + weight_bytes / 8 + state_bytes; }
};

struct DeviceRoom {
  std::string device;  // "": the host
  uint64_t free_bytes = 0;
};

// Processes that are loaded at the same time and measured in turns.
struct Sitting {
  std::vector<size_t> processes;
  uint32_t index = 0;   // of these processes' sittings
  uint32_t shares = 1;  // how many sittings share the measurements of these processes
  bool first = true;    // of them
  bool last = true;
  bool stays = false;  // the next sitting has the same processes
};

// All together, `starts` times, if 90% of every memory is enough; otherwise one at a time: A B B A.
std::vector<Sitting> sittings_of(const std::vector<ProcessNeed>& needs, const std::vector<DeviceRoom>& room,
                                 uint32_t starts);

}  // namespace switchyard::cli
