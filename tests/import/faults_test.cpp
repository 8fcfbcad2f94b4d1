// SPDX-License-Identifier: Apache-2.0
// Conversions that the system or a person interrupts: they say so, leave nothing behind, and do not touch existing
// files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/import/export.h"
#include "tests/import/checkpoint.h"
#include "tests/import/faulty_os.h"

namespace switchyard::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A folder that holds an older program under the name that conversions write to.
class CutShort : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(convert_to(TinyCheckpoint("one-kv-head").path(), output()).ok());
    before_ = read_file(output());
    checkpoint_.write("tokenizer_config.json", R"({"chat_template": "x"})");
    checkpoint_.write("generation_config.json", "{}");
  }
  std::string output() const { return out_.path("out.swy"); }

  void expect_untouched(const std::string& when) const {
    EXPECT_THAT(*Os::real().list(out_.path()), ElementsAre("out.swy")) << when;
    EXPECT_EQ(read_file(output()), before_) << when;
  }

  const TinyCheckpoint checkpoint_{"multimodal"};
  const TemporaryFolder out_;
  const WeightEncoding encoding_{SWY_I4A, 32};
  std::string before_;
};

TEST_F(CutShort, EveryCallOfTheSystemMayFail) {
  uint64_t n = 1;
  for (;; ++n) {
    FaultyOs os;
    os.faults.fail_call = n;
    const auto report = convert_to(checkpoint_.path(), output(), encoding_, os);
    if (report.ok()) {
      // The only call whose failure does no harm: asking for the free space.
      if (os.faults.calls < n) break;
      EXPECT_NE(read_file(output()), before_);
      std::filesystem::remove(output());
      std::ofstream(output(), std::ios::binary) << before_;
      continue;
    }
    EXPECT_THAT(report.status().message(), HasSubstr("told to fail"));
    expect_untouched("call " + std::to_string(n));
  }
  EXPECT_GT(n, 100u);
  EXPECT_THAT(*Os::real().list(out_.path()), ElementsAre("out.swy"));
  EXPECT_NE(read_file(output()), before_);
}

TEST_F(CutShort, AFullDisk) {
  const TemporaryFolder elsewhere;
  const auto whole = convert_to(checkpoint_.path(), elsewhere.path("x.swy"), encoding_);
  ASSERT_TRUE(whole.ok());
  for (uint64_t bytes = 0; bytes < whole->file_bytes; bytes += 997) {
    FaultyOs os;
    os.faults.disk_bytes = bytes;
    const auto report = convert_to(checkpoint_.path(), output(), encoding_, os);
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.status().code(), Code::io);
    EXPECT_THAT(report.status().message(), HasSubstr("the disk is full"));
    expect_untouched(std::to_string(bytes) + " bytes");
  }
}

TEST_F(CutShort, ADiskThatIsTooSmallIsNoticedBeforeTheWork) {
  FaultyOs os;
  os.faults.lie_about_space = false;
  os.faults.disk_bytes = 100000;
  const auto report = convert_to(checkpoint_.path(), output(), encoding_, os);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), Code::io);
  EXPECT_THAT(report.status().message(), HasSubstr("MiB, and its disk has 0.1 MiB free; free some space or write"));
  EXPECT_LE(os.faults.writes, 2u);
  expect_untouched("small disk");
}

TEST_F(CutShort, StoppedByAPersonAtAnyTime) {
  int n = 0;
  for (bool stopped = true; stopped; ++n) {
    ConvertOptions options;
    options.source = checkpoint_.path();
    options.output = output();
    options.encoding = encoding_;
    int calls = 0;
    uint64_t last = 0;
    options.progress = [&](uint64_t done, uint64_t total) {
      EXPECT_GT(done, last);
      EXPECT_LE(done, total);
      last = done;
      return calls++ < n;
    };
    const auto report = convert(Os::real(), options);
    stopped = !report.ok();
    if (!stopped) break;
    EXPECT_EQ(report.status().code(), Code::cancelled);
    EXPECT_THAT(report.status().message(), HasSubstr("conversion stopped; nothing was written to " + output()));
    expect_untouched("stopped after " + std::to_string(n));
  }
  EXPECT_GT(n, 20);
  EXPECT_NE(read_file(output()), before_);
}

TEST_F(CutShort, WhatIsNoProgramIsNotReplaced) {
  const std::string weights = checkpoint_.path("model-00001-of-00003.safetensors");
  const std::string was = read_file(weights);
  const auto report = convert_to(checkpoint_.path(), weights, encoding_);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), Code::usage);
  EXPECT_THAT(report.status().message(), HasSubstr("exists and is not a program file; remove it or write elsewhere"));
  EXPECT_EQ(read_file(weights), was);
}

TEST_F(CutShort, WhereNothingCanBeWritten) {
  for (const std::string& path : {out_.path(), out_.path("absent/x.swy"), out_.path("out.swy/x.swy"), std::string()}) {
    const auto report = convert_to(checkpoint_.path(), path, encoding_);
    ASSERT_FALSE(report.ok()) << path;
    EXPECT_THAT(report.status().message(), HasSubstr(path));
    expect_untouched(path);
  }
}

TEST_F(CutShort, ExportOfDequantizedWeights) {
  const auto program = Program::load(Os::real(), output());
  ASSERT_TRUE(program.ok());
  const TemporaryFolder folder;
  for (uint64_t n = 1;; ++n) {
    FaultyOs os;
    os.faults.fail_call = n;
    const Status status = export_dequantized(os, *program, folder.path("w.safetensors"));
    if (status.ok()) {
      EXPECT_LT(os.faults.calls, n);
      EXPECT_GT(n, 100u);
      break;
    }
    EXPECT_THAT(*Os::real().list(folder.path()), ElementsAre()) << n;
    if (n > 40) n += 37;  // a write per row: not every one
  }
}

}  // namespace
}  // namespace switchyard::testing
