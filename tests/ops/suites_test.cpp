// SPDX-License-Identifier: Apache-2.0
// Each suite of the kit finds what its fixture does wrong, and has nothing to say about one that is right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ops/run_program.h"

namespace switchyard::check {
namespace {

using ::testing::HasSubstr;

// The suite's verdict about a fixture.
std::string suite_verdict(const std::string& name, const std::string& suite, int seed = 42,
                          const std::string& more = "") {
  return run_program(fixture(name) + " --oracle naive --suite " + suite + " --seed " + std::to_string(seed) + " " +
                     more)
      .text;
}

TEST(Suites, HaveNothingToSayAboutWhatIsRight) {
  const Said said = run_program(fixture("EXT_RIGHT") + " --oracle naive");
  EXPECT_EQ(said.code, 0) << said.text;
}

TEST(Suites, Negotiation) {
  EXPECT_THAT(suite_verdict("ODD_AGREES_WITH_ALL", "negotiation"),
              HasSubstr("FAILED negotiation/host_is_newer: agreed"));
  EXPECT_THAT(suite_verdict("ODD_LONG_ERRORS", "negotiation"),
              HasSubstr("FAILED negotiation/error_of_capacity_8: wrote beyond an error buffer of 8 bytes"));
}

TEST(Suites, AbiAndDevice) {
  EXPECT_THAT(suite_verdict("ODD_NO_READ", "abi"), HasSubstr("FAILED abi/table: read is NULL, and mandatory"));
  EXPECT_THAT(suite_verdict("ODD_SILENT_OPTION", "device"),
              HasSubstr("FAILED device/options: no_such_option=1: refused without a line"));
  EXPECT_THAT(suite_verdict("ODD_REFUSES_WITH_DEVICE", "device"),
              HasSubstr("FAILED device/options: no_such_option=1: refused, and gave a device"));
  EXPECT_THAT(suite_verdict("ODD_TWINS", "device"), HasSubstr("FAILED device/kernels: two kernels are named add.odd"));
}

TEST(Suites, Copies) {
  EXPECT_THAT(suite_verdict("ODD_SHORT_COPIES", "copies"),
              HasSubstr("FAILED copies/pieces_of_device_memory: write of "));
  EXPECT_THAT(suite_verdict("ODD_UNCHECKED_COPIES", "copies"),
              HasSubstr("FAILED copies/pieces_of_device_memory: fill_zero of "));
}

TEST(Suites, Errors) {
  EXPECT_THAT(suite_verdict("ODD_UNCHECKED_COPIES", "errors"),
              HasSubstr("FAILED errors/ranges_of_copies: a fill_zero of 1 bytes at "));
}

TEST(Suites, Threads) {
  EXPECT_THAT(suite_verdict("ODD_THREADS", "threads"),
              HasSubstr("FAILED threads/devices: device_info says something else from several threads"));
  EXPECT_EQ(run_program(fixture("TAKES_NOTHING") + " --oracle naive --suite threads --seed 42").code, 0);
}

TEST(Suites, LargeCopiesBesideTimelines) {
  EXPECT_THAT(suite_verdict("ODD_HOLDS_LOCK", "threads"),
              HasSubstr("FAILED threads/copies_hold_nobody_up: timeline_value takes "));
  const Said said = run_program(fixture("ODD_NOTHING") + " --oracle naive --suite copies,timelines,threads --seed 42");
  EXPECT_EQ(said.code, 0) << said.text;
}

TEST(Suites, Memory) {
  EXPECT_THAT(suite_verdict("LEAKS", "memory"), HasSubstr("FAILED memory/nothing_leaks: 1 blocks leaked"));
  EXPECT_THAT(suite_verdict("WRONG_STATUS", "memory"), HasSubstr("which is no status for missing memory"));
  EXPECT_THAT(suite_verdict("WRONG_STATUS_LATE", "memory"), HasSubstr("which is no status for missing memory"));
  EXPECT_THAT(suite_verdict("SHORT_LEAKS", "memory"), HasSubstr("1 blocks of the host's memory leaked"));
  EXPECT_THAT(suite_verdict("SHORT_SILENT", "memory"), HasSubstr("was given without a line"));
  EXPECT_THAT(suite_verdict("SHORT_RETRIES", "memory"), HasSubstr("CRASHED memory/"));
  EXPECT_THAT(suite_verdict("FREES_WRONGLY", "memory"),
              HasSubstr("gave back 32 bytes aligned to 64 that it got as 64"));
}

TEST(Suites, Replay) {
  EXPECT_THAT(suite_verdict("KEEPS_INPUTS", "replay"), HasSubstr("replayed with other inputs: output 0 row 0"));
}

TEST(Suites, Numbers) {
  EXPECT_THAT(suite_verdict("SPREADS_NAN", "numbers"), HasSubstr("in an input of sequence "));
  EXPECT_THAT(suite_verdict("MEETS_LATER_ROWS", "numbers"),
              HasSubstr(" reached earlier rows: other bits in output 0 row "));
  EXPECT_EQ(run_program(fixture("NO_STATE_RULE") + " --oracle naive --suite numbers --seed 42").code, 0);
}

// The kit has nothing to say about a range that is right: of one case here, of all in SuitesSlow.
void expect_right_ranges(const std::string& name, const std::string& said_of_it, const std::string& more = "") {
  const Said said = run_program(fixture(name) + " --oracle naive --suite range --seed 42 " + more);
  EXPECT_EQ(said.code, 0) << said.text;
  EXPECT_THAT(said.text, HasSubstr(said_of_it));
}

TEST(Suites, RangesOfEveryKind) {
  expect_right_ranges("RANGED_RIGHT", "all passed", "--filter norm_linear");
  EXPECT_THAT(suite_verdict("RANGED_SKIPS_KEPT", "range", 42, "--filter norm_linear"),
              HasSubstr("FAILED range/norm_linear_kept: the range norm_linear, the value of whose operation 0 is read "
                        "outside, differs from its operations: output 0 of operation 0 (rms_norm) has a relative "
                        "error of "));
  EXPECT_THAT(suite_verdict("RANGED_WRONG_STATE", "range", 42, "--filter delta128_linear_add"),
              HasSubstr("FAILED range/delta128_linear_add: the range delta128_linear_add differs from its operations: "
                        "gated_delta: state 0 "));
  EXPECT_THAT(suite_verdict("RANGED_LOSES_NORM", "range", 42, "--filter norm_moe_add"),
              HasSubstr("FAILED range/norm_moe_add: "));
}

TEST(Suites, RangesThatAreCompiled) {
  expect_right_ranges("WHOLE_RIGHT", "all passed", "--filter layer");
  EXPECT_THAT(suite_verdict("WHOLE_ONE_KEY", "range", 42, "--filter layer_kept"),
              HasSubstr("FAILED range/layer_kept: record of a range: "));
  EXPECT_THAT(suite_verdict("WHOLE_LOSES_STORED", "range", 42, "--filter layer_stored"),
              HasSubstr("FAILED range/layer_stored: the range layer differs from its operations: "));
}

TEST(Suites, SamplingRangeAndProfile) {
  EXPECT_THAT(suite_verdict("ODD_SAMPLING", "sampling"),
              HasSubstr("FAILED sampling/TOKEN: the device says TOKEN, and no kernel takes a case of it"));
  EXPECT_THAT(suite_verdict("EXT_WRONG_RANGE", "range"), HasSubstr("FAILED range/add_add: "));
  EXPECT_THAT(suite_verdict("EXT_RANGE_OF_ONE", "range"), HasSubstr("claims 1 of "));
  EXPECT_THAT(suite_verdict("EXT_NO_RANGE", "range"),
              HasSubstr("FAILED range/takes_some: swy.range/1 is there and takes no"));
  EXPECT_THAT(suite_verdict("EXT_WRONG_SPANS", "profile"), HasSubstr("ends before it begins"));
}

TEST(Suites, Races) {
  EXPECT_THAT(suite_verdict("RACY_NO_BARRIER", "races"), HasSubstr("FAILED races/team"));
  EXPECT_THAT(suite_verdict("RACY_LOST_UPDATE", "races"), HasSubstr("FAILED races/team"));
  EXPECT_EQ(run_program(fixture("NOTHING") + " --oracle naive --suite races --seed 42").code, 0);
}

// Whatever the seed is.
TEST(SuitesSlow, RangesThatAreRight) {
  expect_right_ranges("RANGED_RIGHT", "ranged 0.1.0: 177 checks, all passed");  // as many as the kit has ranges
  expect_right_ranges("WHOLE_RIGHT", "whole 1: 235 checks, all passed");
}

TEST(SuitesSlow, AWrongAndARacyKernelAreCaughtWithEverySeed) {
  for (int seed = 1; seed <= 20; ++seed) {
    EXPECT_THAT(suite_verdict("LAST_ELEMENT", "ops", seed, "--filter rows65"), HasSubstr("output 0 row 64")) << seed;
    EXPECT_THAT(suite_verdict("RACY_NO_BARRIER", "races", seed), HasSubstr("with the members of the team held up"))
        << seed;
    EXPECT_THAT(suite_verdict("RACY_LOST_UPDATE", "races", seed), HasSubstr("with the members of the team held up"))
        << seed;
  }
}

}  // namespace
}  // namespace switchyard::check
