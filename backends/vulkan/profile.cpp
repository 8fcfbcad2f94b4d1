// SPDX-License-Identifier: Apache-2.0
#include "profile.h"

#include <cmath>

#include "list.h"
#include "switchyard/sdk/error.hpp"

namespace gpu {
namespace {

swy_status enable(swy_device* device, uint32_t on, swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    if (on != 0 && device->features.timestamp_bits == 0) {
      return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "the device's queue has no timestamps");
    }
    device->profile->spans.enable(on != 0);
    return SWY_OK;
  });
}

swy_status collect(swy_device* device, swy_profile_span* spans, uint32_t* count, swy_error*) {
  *count = device->profile->spans.collect(spans, *count);
  return SWY_OK;
}

swy_status correlate(swy_device* device, uint64_t* host_ns, uint64_t* device_ticks, uint64_t* tick_ps,
                     swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    if (device->features.timestamp_bits == 0) {
      return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "the device's queue has no timestamps");
    }
    uint64_t low = 0;
    SWY_VK_TRY(read_clocks(*device, host_ns, &low, error));
    *device_ticks = device->profile->clock.at(low, *host_ns);
    *tick_ps = static_cast<uint64_t>(std::llround(static_cast<double>(device->features.tick_ns) * 1000));
    return SWY_OK;
  });
}

uint64_t dropped(swy_device* device) { return device->profile->spans.lost(); }

}  // namespace

const swy_profile kProfile = {sizeof(swy_profile), 0, enable, collect, correlate, dropped};

const char* span_name(swy_device& device, const char* kernel, const char* shader, bool first) {
  swy::Spans& spans = device.profile->spans;
  return first || !spans.on() ? kernel : spans.name(std::string(kernel) + "/" + shader);
}

swy_status make_queries(swy_list& list, swy_error* error) {
  swy_device& d = *list.device;
  VkQueryPoolCreateInfo info{VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO};
  info.queryType = VK_QUERY_TYPE_TIMESTAMP;
  info.queryCount = static_cast<uint32_t>(list.dispatches.size()) + 1;
  list.ticks.resize(info.queryCount);
  return check(d, d.vk.CreateQueryPool(d.handle, &info, nullptr, &list.queries), "making timestamps", error);
}

swy_status keep_spans(swy_list& list, swy_error* error) {
  swy_device& d = *list.device;
  SWY_VK_TRY(settle(d, error));
  SWY_VK_TRY(check(d,
                   d.vk.GetQueryPoolResults(d.handle, list.queries, 0, static_cast<uint32_t>(list.ticks.size()),
                                            list.ticks.size() * 8, list.ticks.data(), 8,
                                            VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT),
                   "reading timestamps", error));
  Profile& p = *d.profile;
  // The last timestamp is from a moment ago; each earlier one is less than a turn of the clock before the next.
  list.ticks.back() = p.clock.at(list.ticks.back(), host_now());
  for (size_t i = list.ticks.size() - 1; i-- > 0;) list.ticks[i] = p.clock.before(list.ticks[i], list.ticks[i + 1]);
  for (size_t i = 0; i < list.dispatches.size(); ++i) {
    p.spans.keep(list.dispatches[i].kernel, list.ticks[i], list.ticks[i + 1]);
  }
  return SWY_OK;
}

}  // namespace gpu
