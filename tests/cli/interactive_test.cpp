// SPDX-License-Identifier: Apache-2.0
// A person at the keyboard: Ctrl-C.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstring>

#include "tests/cli/program.h"
#include "tests/support/files.h"
#include "tests/support/large_program.h"

namespace switchyard::testing {
namespace {

using ::testing::HasSubstr;

TEST(Run, ControlCEndsWithWhatThereIs) {
  Child run({"run", "-n", "4000", "--temp", "2", "--ignore-eos", "Once upon a time"});
  ASSERT_TRUE(run.wait_for(1, "Once upon a time"));
  run.signal(SIGINT);
  EXPECT_EQ(run.finish(), 130);
  EXPECT_THAT(run.err, HasSubstr("stopped: interrupt"));
}

TEST(Run, ControlCEndsALongPrompt) {
  std::string prompt = read_file(SWITCHYARD_TEST_DATA "/demo/val16.txt").substr(0, 12000);
  Child run({"run", "-n", "4000", "--chunk", "16", "--log", "debug"});
  run.write(prompt);
  run.close_input();
  ASSERT_TRUE(run.wait_until_it_catches(SIGINT));
  ::usleep(300000);  // it is reading the prompt by now; if it is not, the signal finds it earlier
  run.signal(SIGINT);
  EXPECT_EQ(run.finish(), 130);
  EXPECT_THAT(run.err, HasSubstr("stopped: interrupt"));
}

// A checkpoint that takes seconds to convert: half-rotary with a vocabulary that is much larger.
void write_slow_checkpoint(const TemporaryFolder& folder) {
  constexpr size_t kVocab = 400000;
  const std::string tiny = SWITCHYARD_TEST_DATA "/tiny/half-rotary/";
  nlohmann::json config = nlohmann::json::parse(read_file(tiny + "config.json"));
  config["vocab_size"] = kVocab;
  folder.write("config.json", config.dump());
  const std::string file = read_file(tiny + "model.safetensors");
  uint64_t size = 0;
  std::memcpy(&size, file.data(), 8);
  nlohmann::json header = nlohmann::json::parse(file.substr(8, size));
  std::string data = file.substr(8 + size), more(kVocab * 48 * 2, '\0');
  for (size_t i = 0; i < more.size(); i += 2) {  // bf16 values that differ
    more[i] = static_cast<char>(i * 7);
    more[i + 1] = '\x3c';
  }
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
    header[name]["shape"][0] = kVocab;
    header[name]["data_offsets"] = {data.size(), data.size() + more.size()};
  }
  data += more;
  const std::string text = header.dump();
  size = text.size();
  folder.write("model.safetensors", std::string(reinterpret_cast<const char*>(&size), 8) + text + data);
}

TEST(Convert, InterruptedLeavesNothing) {
  const TemporaryFolder checkpoint, out;
  write_slow_checkpoint(checkpoint);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    Child convert(
        {"convert", checkpoint.path(), "-o", out.path("x.swy"), "--quant", "i4a", "--group", "32", "--threads", "1"});
    ASSERT_TRUE(convert.wait_for(2, "writing ")) << convert.err;
    convert.signal(signal);
    EXPECT_EQ(convert.finish(), 128 + signal);
    EXPECT_THAT(convert.err, HasSubstr("switchyard: conversion stopped; nothing was written to " + out.path("x.swy")));
    EXPECT_TRUE(std::filesystem::is_empty(out.path()));
  }
}

// Far sooner than the largest program is planned.
TEST(Plan, ControlCEndsLoadingAtOnce) {
  const TemporaryFolder folder;
  write_large({.ops = 65536}, folder.path("large.swy"));
  for (const int after_ms : {50, 500}) {
    Child plan({"plan", "--backend", "reference", folder.path("large.swy")});
    ASSERT_TRUE(plan.wait_until_it_catches(SIGINT));
    ::usleep(static_cast<useconds_t>(after_ms) * 1000);
    const uint64_t begin = Os::real().now_ns();
    plan.signal(SIGINT);
    EXPECT_NE(plan.finish(), 0);
    EXPECT_LT(static_cast<double>(Os::real().now_ns() - begin) / 1e9, 1.5) << plan.err;  // 0.2, and a busy machine
    EXPECT_THAT(plan.err, HasSubstr("switchyard: stopped"));
    EXPECT_EQ(plan.out, "");
  }
}

}  // namespace
}  // namespace switchyard::testing
