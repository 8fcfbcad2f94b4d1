// SPDX-License-Identifier: Apache-2.0
// The device's clock: compared with the host's, and extended so that it never wraps around.
#pragma once

#include "device.h"

namespace gpu {

uint64_t host_now();  // CLOCK_MONOTONIC, in nanoseconds

// Devices give the low bits of their ticks, at least 36, so the count may wrap around every minute. The host's clock
// tells how often it did, however long the pause.
class RisingTicks {
 public:
  RisingTicks(uint32_t bits, double tick_ns)
      : mask_(bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1), tick_ns_(tick_ns) {}

  // The whole count with these low bits that is closest to where the clock must be by now: at most half a turn away.
  uint64_t at(uint64_t low, uint64_t host_ns);
  // The latest whole count with these low bits that is at most `count`.
  uint64_t before(uint64_t low, uint64_t count) const { return count - ((count - low) & mask_); }

 private:
  uint64_t mask_;
  double tick_ns_;
  uint64_t known_ = 0, known_host_ns_ = 0;  // of the last `at`
};

// One instant on both clocks: the device's count (its low bits), and CLOCK_MONOTONIC. The driver compares them if it
// can. Otherwise a timestamp on the queue is taken between two readings of the host's clock; it waits for earlier work,
// which is a copy at most, since lists are waited for while there are timestamps.
swy_status read_clocks(swy_device& device, uint64_t* host_ns, uint64_t* ticks, swy_error* error);
void free_clock(swy_device& device);

}  // namespace gpu
