// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/profiler.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/plugin/buffer.h"

namespace switchyard {
namespace {

constexpr uint64_t kBetweenPoints = 50'000'000;  // ns: a clock's reading may be off by microseconds, a thousandth of it
constexpr size_t kRoom = 4096;                   // spans per call
constexpr int kMostRounds = 1024;                // of calls: 64 times the capacity of devices

// Entries beyond the end of the plugin's struct are NULL.
swy_profile profile_of(const PlanDevice& device) {
  swy_profile mine{};
  const void* theirs =
      device.api->get_extension == nullptr ? nullptr : device.api->get_extension(device.handle, SWY_EXT_PROFILE);
  if (theirs == nullptr) return mine;
  uint32_t size = 0;
  std::memcpy(&size, theirs, sizeof size);
  std::memcpy(&mine, theirs, std::min<size_t>(size, sizeof mine));
  return mine;
}

bool whole(const swy_profile& p) { return p.enable != nullptr && p.collect != nullptr && p.correlate != nullptr; }

}  // namespace

ClockLine::ClockLine(ClockPoint a, ClockPoint b, uint64_t tick_ps)
    : from_(a), ns_per_tick_(static_cast<double>(tick_ps) / 1000) {
  if (b.ticks > a.ticks && b.host_ns > a.host_ns) {
    ns_per_tick_ = static_cast<double>(b.host_ns - a.host_ns) / static_cast<double>(b.ticks - a.ticks);
  }
}

uint64_t ClockLine::host_ns(uint64_t ticks) const {
  const double ns = ticks >= from_.ticks ? static_cast<double>(ticks - from_.ticks) * ns_per_tick_
                                         : -static_cast<double>(from_.ticks - ticks) * ns_per_tick_;
  if (-ns >= static_cast<double>(from_.host_ns)) return 0;
  if (ns > 9e18) return UINT64_MAX;  // a device that counts nonsense
  return from_.host_ns + static_cast<uint64_t>(static_cast<int64_t>(std::llround(ns)));
}

bool DeviceProfiler::offered(const PlanDevice& device) { return whole(profile_of(device)); }

DeviceProfiler::DeviceProfiler(Os& os, const PlanDevice& device, Listener listener)
    : os_(os), device_(device), api_(profile_of(device)), listener_(std::move(listener)), room_(kRoom) {}

Result<std::unique_ptr<DeviceProfiler>> DeviceProfiler::start(Os& os, const PlanDevice& device, Listener listener) {
  std::unique_ptr<DeviceProfiler> p(new DeviceProfiler(os, device, std::move(listener)));
  if (!whole(p->api_)) return error(Code::unsupported, "{} does not tell when its kernels run", device.name);
  PluginError e;
  SWY_TRY(e.status(p->api_.enable(device.handle, 1, e.get()), device.name, "switching timestamps on"));
  p->on_ = true;
  SWY_LET(p->last_, p->compare());
  return p;
}

DeviceProfiler::~DeviceProfiler() {
  PluginError e;
  if (on_) (void)api_.enable(device_.handle, 0, e.get());
}

// Errors: internal, for a clock that is not the host's.
Result<ClockPoint> DeviceProfiler::compare() {
  ClockPoint now;
  PluginError e;
  const uint64_t begin = os_.now_ns();
  SWY_TRY(e.status(api_.correlate(device_.handle, &now.host_ns, &now.ticks, &tick_ps_, e.get()), device_.name,
                   "comparing clocks"));
  const uint64_t end = os_.now_ns();
  if (now.host_ns < begin || now.host_ns > end || tick_ps_ == 0 || now.ticks < last_.ticks) {
    return error(Code::internal,
                 "{}: its clock compares with none of the host's: {} ns within {} to {}, {} ticks of {} ps",
                 device_.name, now.host_ns, begin, end, now.ticks, tick_ps_);
  }
  return now;
}

Status DeviceProfiler::take() {
  for (int round = 0; round < kMostRounds; ++round) {
    auto count = static_cast<uint32_t>(room_.size());
    PluginError e;
    SWY_TRY(
        e.status(api_.collect(device_.handle, room_.data(), &count, e.get()), device_.name, "collecting timestamps"));
    if (count > room_.size()) {
      return error(Code::internal, "{}: it wrote {} spans where {} fit", device_.name, count, room_.size());
    }
    pending_.insert(pending_.end(), room_.begin(), room_.begin() + count);
    if (count < room_.size()) return {};
  }
  pending_.clear();
  return error(Code::internal, "{}: it gave {} timestamps at once and says that there are more; they are not used",
               device_.name, kMostRounds * kRoom);
}

Status DeviceProfiler::collect(bool all) {
  SWY_TRY(take());
  if (pending_.empty() || (!all && os_.now_ns() - last_.host_ns < kBetweenPoints)) return {};
  SWY_LET(const ClockPoint now, compare());
  const ClockLine line(last_, now, tick_ps_);
  for (const swy_profile_span& s : pending_) {
    const uint64_t begin = line.host_ns(s.begin_ticks);
    listener_({s.kernel == nullptr ? "" : s.kernel, begin, std::max(begin, line.host_ns(s.end_ticks))});
  }
  pending_.clear();
  last_ = now;
  return {};
}

uint64_t DeviceProfiler::dropped() const { return api_.dropped == nullptr ? 0 : api_.dropped(device_.handle); }

}  // namespace switchyard
