// SPDX-License-Identifier: Apache-2.0
// The profiler with a device that returns timestamps without end.
#include "core/plugin/profiler.h"

#include <gmock/gmock.h>

#include <algorithm>

namespace switchyard {
namespace {

uint64_t left = 0;  // spans that the device has

swy_status collect(swy_device*, swy_profile_span* to, uint32_t* count, swy_error*) {
  *count = static_cast<uint32_t>(std::min<uint64_t>(*count, left));
  std::fill_n(to, *count, swy_profile_span{"k", 1, 2});
  left -= *count;
  return SWY_OK;
}

constexpr swy_profile kProfile = {
    .struct_size = sizeof(swy_profile),
    .reserved = 0,
    .enable = [](swy_device*, uint32_t, swy_error*) -> swy_status { return SWY_OK; },
    .collect = collect,
    .correlate = [](swy_device*, uint64_t* host_ns, uint64_t* ticks, uint64_t* tick_ps, swy_error*) -> swy_status {
      *host_ns = *ticks = Os::real().now_ns();
      *tick_ps = 1000;
      return SWY_OK;
    },
    .dropped = nullptr};

TEST(Profiler, EndsWithADeviceThatDoesNot) {
  swy_plugin api{};
  api.get_extension = [](swy_device*, const char*) -> const void* { return &kProfile; };
  PlanDevice device;
  device.name = "endless:0";
  device.api = &api;
  size_t told = 0;
  const auto profiler = DeviceProfiler::start(Os::real(), device, [&](const DeviceSpan&) { ++told; });
  ASSERT_TRUE(profiler.ok()) << profiler.status().message();
  left = 100'000;
  ASSERT_TRUE((*profiler)->collect(true).ok());
  EXPECT_EQ(told, 100'000u);
  left = UINT64_MAX;
  const Status endless = (*profiler)->collect(true);
  EXPECT_EQ(endless.code(), Code::internal);
  EXPECT_THAT(endless.message(), ::testing::HasSubstr("endless:0: it gave "));
  left = 3;
  ASSERT_TRUE((*profiler)->collect(true).ok()) << "and goes on when it is sane again";
  EXPECT_EQ(told, 100'003u);
}

}  // namespace
}  // namespace switchyard
