// The device's clock: read beside the host's, and made to rise for ever.
#pragma once

#include "device.h"

namespace gpu {

uint64_t host_now();  // CLOCK_MONOTONIC, in nanoseconds

// Ticks of which a device gives the low bits, at least 36, so that they may wrap around every minute. The host's clock
// tells how often they did in a pause, however long.
class RisingTicks {
 public:
  RisingTicks(uint32_t bits, double tick_ns)
      : mask_(bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1), tick_ns_(tick_ns) {}

  // The whole count that ends in `low` and is next to where the clock must be by now: at most half a turn away.
  uint64_t at(uint64_t low, uint64_t host_ns);
  // The whole count that ends in `low` and was reached last, at `count` or before.
  uint64_t before(uint64_t low, uint64_t count) const { return count - ((count - low) & mask_); }

 private:
  uint64_t mask_;
  double tick_ns_;
  uint64_t known_ = 0, known_host_ns_ = 0;  // of the last `at`
};

// One instant on both clocks: what the device's counts (its low bits), and CLOCK_MONOTONIC. By the driver where it does
// that. Else by a timestamp on the queue between two looks at the host's clock: behind what is under way, which is a
// copy at most, since lists are waited for while there are timestamps.
swy_status read_clocks(swy_device& device, uint64_t* host_ns, uint64_t* ticks, swy_error* error);
void free_clock(swy_device& device);

}  // namespace gpu
