// SPDX-License-Identifier: Apache-2.0
// DeviceProfiler: when kernels ran on a device, by the host's clock, through swy.profile/1.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/base/os.h"
#include "core/base/status.h"
#include "core/plugin/device.h"

namespace switchyard {

// One instant on two clocks.
struct ClockPoint {
  uint64_t host_ns = 0;
  uint64_t ticks = 0;
};

// Ticks of a device as nanoseconds of the host, on the line through two points; so drift of either clock is corrected.
// Points with one and the same tick: by the tick's nominal length.
class ClockLine {
 public:
  ClockLine(ClockPoint a, ClockPoint b, uint64_t tick_ps);
  uint64_t host_ns(uint64_t ticks) const;

 private:
  ClockPoint from_;
  double ns_per_tick_;
};

// One launch.
struct DeviceSpan {
  const char* kernel = nullptr;  // lives as long as the device
  uint64_t begin_ns = 0, end_ns = 0;
};

class DeviceProfiler {
 public:
  using Listener = std::function<void(const DeviceSpan&)>;

  // Whether the device can report times.
  static bool offered(const PlanDevice& device);
  // Switches timestamps on; lists that are to be seen are recorded afterwards. Nothing is under way on the device, and
  // it outlives the profiler. Errors: unsupported, for a device without swy.profile/1; the device's own.
  static Result<std::unique_ptr<DeviceProfiler>> start(Os& os, const PlanDevice& device, Listener listener);
  // Switches them off. Nothing is under way.
  ~DeviceProfiler();
  DeviceProfiler(const DeviceProfiler&) = delete;
  DeviceProfiler& operator=(const DeviceProfiler&) = delete;

  // Collects complete spans from the device and passes them to the listener, in order, up to the last comparison of the
  // clocks. The clocks are compared some times a second, or now if `all` is set. Errors: the device's own; internal,
  // for impossible times, and for a device that never runs out of spans. [device-serial]
  Status collect(bool all);
  // Spans that did not fit into the device's memory.
  uint64_t dropped() const;

 private:
  DeviceProfiler(Os& os, const PlanDevice& device, Listener listener);
  Result<ClockPoint> compare();
  Status take();

  Os& os_;
  PlanDevice device_;
  swy_profile api_{};
  Listener listener_;
  std::vector<swy_profile_span> room_, pending_;
  ClockPoint last_;
  uint64_t tick_ps_ = 0;
  bool on_ = false;
};

}  // namespace switchyard
