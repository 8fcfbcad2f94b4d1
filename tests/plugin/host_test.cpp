// SPDX-License-Identifier: Apache-2.0
// What plugins keep of a host, and what is told of calls that do not return.
#include "core/plugin/host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <thread>

#include "core/plugin/call.h"
#include "core/plugin/cancel.h"
#include "core/plugin/stall_watch.h"
#include "switchyard/extensions.h"
#include "tests/plugin/support.h"

namespace switchyard::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(HostServices, OutliveTheHost) {
  const swy_host* kept = nullptr;
  {
    const Host host(3);
    kept = host.table();
  }
  EXPECT_EQ(kept->executor->width(kept->executor->ctx), 3u);
  std::atomic<int> calls{0};
  kept->executor->run(
      kept->executor->ctx, [](void* arg, const swy_team*) { static_cast<std::atomic<int>*>(arg)->fetch_add(1); },
      &calls);
  EXPECT_EQ(calls.load(), 3);
  kept->log(kept->ctx, SWY_LOG_DEBUG, "still here");
}

TEST(HostServices, AreUsedAgainByALaterHostAloneAndWithoutATrace) {
  const swy_host* first = nullptr;
  {
    Host host(3);
    host.set_trace([](void*, const char*, uint64_t, uint64_t) {}, &host);
    first = host.table();
  }
  const Host again(3), beside(3), narrower(2);
  EXPECT_EQ(again.table(), first);
  EXPECT_EQ(again.table()->trace, nullptr);
  EXPECT_NE(beside.table(), first);
  EXPECT_EQ(narrower.threads(), 2u);
}

// Two engines of one process: the second negotiates again, and neither may lose its team.
TEST(HostServices, EachDeviceKeepsTheHostThatItWasOpenedWith) {
  std::vector<Registry> registries;  // devices belong to them
  const auto open = [&](const Host& host) {
    DiscoveryOptions options;
    options.libraries = {fixture("good")};
    registries.push_back(Registry::discover(Os::real(), options, host));
    return registries.back().select("good");
  };
  auto wide = std::make_unique<Host>(4);
  const auto first = open(*wide);
  ASSERT_TRUE(first.ok()) << first.status().message();
  std::optional<Host> narrow(std::in_place, 1);
  const auto second = open(*narrow);
  ASSERT_TRUE(second.ok()) << second.status().message();
  narrow.reset();
  const PlanDevice& device = first->devices[0]->plan();
  auto memory = DeviceBuffer::allocate(device, SWY_MEMORY_DEVICE, 1 << 20, "a test");
  ASSERT_TRUE(memory.ok());
}

TEST(HostServices, OfferAPlaceForTheKernelThatRuns) {
  const swy_host* h = test_host().table();
  const auto* doing = static_cast<const swy_doing*>(h->get_extension(h->ctx, SWY_EXT_DOING));
  ASSERT_NE(doing, nullptr);
  EXPECT_EQ(h->get_extension(h->ctx, "swy.none/1"), nullptr);
  const PluginCall now("mine:0", "list_submit");
  *doing->place(doing->ctx) = "add.mine";
  char text[200];
  const size_t size = describe_call(this_call_site(), "crashed", "; sorry", text, sizeof text);
  EXPECT_EQ(std::string(text, size), "backend mine:0 crashed (list_submit, kernel add.mine); sorry\n");
}

TEST(CallSite, IsBoundedAndPrintable) {
  const std::string name = "add.\033" + std::string(5000, 'x');
  const PluginCall now("mine:0", "record", name.c_str());
  char text[100];
  const size_t size = describe_call(this_call_site(), "crashed", "", text, sizeof text);
  EXPECT_EQ(size, sizeof text);
  EXPECT_EQ(text[size - 1], '\n');
  EXPECT_THAT(std::string(text, size), HasSubstr("kernel add.?xxx"));
}

TEST(CallPlugin, AnExceptionIsAFailedCall) {
  PluginError e;
  const PlanDevice device{.name = "mine:0", .label = "mine:0"};
  const auto fail = [](swy_error*) -> swy_status { throw std::runtime_error("out of\nideas"); };
  EXPECT_EQ(call_plugin(device, "pack", e.get(), fail), SWY_INTERNAL);
  EXPECT_STREQ(e.get()->message, "the backend threw an exception in pack: out of\\x0Aideas");
  EXPECT_EQ(this_call_site().backend.load(), nullptr);
}

// ---- StallWatch

class Said {
 public:
  StallWatch::Options options(double seconds) {
    return {.seconds = seconds,
            .patience = 0.2,
            .interrupted = [this] { return interrupted.load(); },
            .say =
                [this](const std::string& line) {
                  const std::lock_guard lock(mutex_);
                  lines_.push_back(line);
                }};
  }
  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  bool wait_for(size_t count) {
    for (int i = 0; i < 1000 && lines().size() < count; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return lines().size() >= count;
  }
  std::atomic<bool> interrupted{false};

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

TEST(StallWatch, TellsOfACallThatDoesNotReturn) {
  Said said;
  const StallWatch watch(said.options(0.3));
  const PluginCall now("slow:0", "timeline_wait", "add.slow");
  ASSERT_TRUE(said.wait_for(1));
  EXPECT_THAT(said.lines()[0], HasSubstr("backend slow:0 has not returned for 0 s (timeline_wait, kernel add.slow)"));
}

TEST(StallWatch, TellsNothingOfManyShortCalls) {
  Said said;
  const StallWatch watch(said.options(0.5));
  for (int i = 0; i < 100; ++i) {
    const PluginCall now("quick:0", "list_submit");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_THAT(said.lines(), ElementsAre());
}

TEST(StallWatch, AnInterruptAsksOnceWhetherTheDeviceCancels) {
  Said said;
  const StallWatch watch(said.options(1000));
  const PluginCall now("slow:0", "list_submit");
  said.interrupted = true;
  ASSERT_TRUE(said.wait_for(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_THAT(said.lines(),
              ElementsAre("backend slow:0 does not stop by itself (list_submit); press Ctrl-C again to end "
                          "the program"));
}

}  // namespace
}  // namespace switchyard::testing
