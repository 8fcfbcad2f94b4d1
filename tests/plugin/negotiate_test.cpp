// SPDX-License-Identifier: Apache-2.0
// Hosts of another ABI, older and newer, meet this version's plugins.
#include <gtest/gtest.h>

#include <string>

#include "core/plugin/buffer.h"
#include "tests/plugin/support.h"

namespace switchyard::testing {
namespace {

// Negotiates with the reference backend as a host that speaks abi_min to abi_max; returns the status and the text.
struct Answer {
  swy_status status;
  std::string text;
  uint32_t abi;
};
Answer negotiate(uint32_t abi_min, uint32_t abi_max, uint64_t magic = SWY_NEGOTIATE_MAGIC) {
  Os& os = Os::real();
  const auto library = os.open_library(SWITCHYARD_TEST_BACKENDS "/switchyard_reference.so");
  EXPECT_TRUE(library.ok()) << library.status().message();
  const auto symbol = os.symbol(*library, SWY_NEGOTIATE_SYMBOL);
  EXPECT_TRUE(symbol.ok()) << symbol.status().message();
  PluginError e;
  const swy_negotiate_in in{sizeof in, abi_min, abi_max, 0, magic, test_host().table()};
  swy_negotiate_out out{};
  out.struct_size = sizeof out;
  out.error = e.get();
  const swy_status status = reinterpret_cast<swy_negotiate_fn>(*symbol)(&in, &out);
  return {status, e.get()->message, out.abi};
}

TEST(Negotiate, AnOlderHostIsRefused) {
  const Answer a = negotiate(0, 0);
  EXPECT_EQ(a.status, SWY_ABI_MISMATCH);
  EXPECT_EQ(a.text, "this plugin speaks ABI 1, the host speaks 0 to 0");
}

TEST(Negotiate, ANewerHostIsRefused) {
  const Answer a = negotiate(2, 9);
  EXPECT_EQ(a.status, SWY_ABI_MISMATCH);
  EXPECT_EQ(a.text, "this plugin speaks ABI 1, the host speaks 2 to 9");
}

TEST(Negotiate, AHostOfSeveralAbisGetsTheOneThatBothSpeak) {
  const Answer a = negotiate(0, 9);
  EXPECT_EQ(a.status, SWY_OK);
  EXPECT_EQ(a.abi, 1u);
}

TEST(Negotiate, WhatIsNoHostIsRefused) { EXPECT_EQ(negotiate(1, 1, 42).status, SWY_INVALID_ARGUMENT); }

TEST(Negotiate, EachSideKnowsTheOthersMinorVersion) {
  const Registry r = discover({fixture("good")});
  ASSERT_NE(r.candidates()[0].plugin, nullptr) << r.candidates()[0].reason;
  EXPECT_EQ(r.candidates()[0].plugin->abi_minor(), SWY_ABI_MINOR);
}

std::string refusal(const std::string& name) {
  const Registry r = discover({fixture(name)});
  EXPECT_EQ(r.candidates()[0].plugin, nullptr) << name;
  return r.candidates()[0].reason;
}

TEST(Negotiate, AKernelWithoutItsFunctionsIsRefusedByName) {
  EXPECT_EQ(refusal("no_cost"), "refused: good: kernel add.none has no cost; set HostKernel::cost");
  EXPECT_EQ(refusal("no_run"), "refused: good: kernel add.none has no run; set HostKernel::run");
}

TEST(Negotiate, ABackendInCHasItsMathematics) { EXPECT_EQ(refusal("in_c"), "refused: in_c: exp(1) is 2.7183"); }

// A plugin of a device with its own memory gets the host, too.
TEST(Negotiate, ADeviceBackendKeepsItsHost) {
  static std::string logged;
  static swy_host host = *test_host().table();
  host.log = [](void*, swy_log_level, const char* message) { logged = message; };
  PluginNote note;
  note.id = "on_device";
  const auto plugin = Plugin::open(Os::real(), fixture("on_device"), note, &host);
  ASSERT_TRUE(plugin.ok()) << plugin.status().message();
  EXPECT_EQ(logged, "");
  const auto device = Device::open(**plugin, 0, {});
  ASSERT_TRUE(device.ok()) << device.status().message();
  EXPECT_EQ(logged, "a device was opened");
}

}  // namespace
}  // namespace switchyard::testing
