// SPDX-License-Identifier: Apache-2.0
#include "clock.h"

#include <cmath>
#include <ctime>

#include "profile.h"
#include "staging.h"
#include "switchyard/sdk/error.hpp"

namespace gpu {
namespace {

constexpr uint64_t kEnough = 200'000;  // nanoseconds of looking for a close pair

// A timestamp by a submission of its own.
swy_status timestamp_now(swy_device& d, uint64_t* ticks, swy_error* error) {
  VkQueryPool& pool = d.profile->now;
  if (pool == VK_NULL_HANDLE) {
    VkQueryPoolCreateInfo info{VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO};
    info.queryType = VK_QUERY_TYPE_TIMESTAMP;
    info.queryCount = 1;
    SWY_VK_TRY(check(d, d.vk.CreateQueryPool(d.handle, &info, nullptr, &pool), "making a timestamp", error));
  }
  Held s;
  SWY_VK_TRY(take(d, 0, s, error));
  d.vk.CmdResetQueryPool(s->commands, pool, 0, 1);
  d.vk.CmdWriteTimestamp(s->commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, pool, 0);
  {
    const std::lock_guard lock(d.mutex);
    SWY_VK_TRY(put(d, *s, error));
    SWY_VK_TRY(flush(d, error));
  }
  SWY_VK_TRY(wait_reached(d, s->done, UINT64_MAX, error));
  const VkQueryResultFlags flags = VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT;
  return check(d, d.vk.GetQueryPoolResults(d.handle, pool, 0, 1, 8, ticks, 8, flags), "reading a timestamp", error);
}

// Both clocks, and by how many nanoseconds either may be wrong, at one instant during the call.
swy_status read_once(swy_device& d, uint64_t* host_ns, uint64_t* ticks, uint64_t* apart, swy_error* error) {
  if (d.vk.GetCalibratedTimestampsEXT != nullptr) {
    const VkCalibratedTimestampInfoEXT which[] = {
        {VK_STRUCTURE_TYPE_CALIBRATED_TIMESTAMP_INFO_EXT, nullptr, VK_TIME_DOMAIN_DEVICE_EXT},
        {VK_STRUCTURE_TYPE_CALIBRATED_TIMESTAMP_INFO_EXT, nullptr, VK_TIME_DOMAIN_CLOCK_MONOTONIC_EXT}};
    uint64_t both[2] = {};
    SWY_VK_TRY(check(d, d.vk.GetCalibratedTimestampsEXT(d.handle, 2, which, both, apart), "reading the clocks", error));
    *ticks = both[0];
    *host_ns = both[1];
    return SWY_OK;
  }
  const uint64_t begin = host_now();
  SWY_VK_TRY(timestamp_now(d, ticks, error));
  *apart = (host_now() - begin) / 2;
  *host_ns = begin + *apart;
  return SWY_OK;
}

}  // namespace

uint64_t host_now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

uint64_t RisingTicks::at(uint64_t low, uint64_t host_ns) {
  if (mask_ == ~uint64_t{0}) return low;
  const bool first = known_host_ns_ == 0;
  const double passed = static_cast<double>(static_cast<int64_t>(host_ns - known_host_ns_)) / tick_ns_;
  // The first count has one turn added, so that earlier times are not negative.
  const uint64_t expected = first ? (low & mask_) + mask_ + 1 : known_ + static_cast<uint64_t>(std::llround(passed));
  const uint64_t ahead = (low - expected) & mask_;
  known_ = expected + ahead - (ahead > mask_ / 2 ? mask_ + 1 : 0);
  known_host_ns_ = host_ns;
  return known_;
}

swy_status read_clocks(swy_device& d, uint64_t* host_ns, uint64_t* ticks, swy_error* error) {
  uint64_t closest = UINT64_MAX;
  const uint64_t begin = host_now();
  for (int i = 0; i < 2 || (i < 4 && host_now() - begin < kEnough); ++i) {
    uint64_t host = 0, device = 0, apart = 0;
    SWY_VK_TRY(read_once(d, &host, &device, &apart, error));
    if (apart >= closest) continue;
    closest = apart;
    *host_ns = host;
    *ticks = device;
  }
  return SWY_OK;
}

void free_clock(swy_device& d) {
  if (d.profile->now != VK_NULL_HANDLE) d.vk.DestroyQueryPool(d.handle, d.profile->now, nullptr);
}

}  // namespace gpu
