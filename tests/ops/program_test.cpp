// SPDX-License-Identifier: Apache-2.0
// switchyard-plugin-check as a user runs it: its output and exit code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "tests/ops/run_program.h"

namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using switchyard::check::fixture;
using switchyard::check::Said;

Said check(const std::string& arguments) { return switchyard::check::run_program(arguments); }

// The five widths of two rows, one of which the fixtures stumble over.
FILE* start_to_stumble(const std::string& name, const std::string& more) {
  return switchyard::check::start_program(fixture(name) +
                                          " --oracle naive --suite ops --seed 42 --filter rows2.width " + more);
}
Said stumble(const std::string& name, const std::string& more = "") {
  return switchyard::check::end_of_program(start_to_stumble(name, more));
}

// Those that hang, who are waited for all at the same time.
class Hanging : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    for (const char* name : {"HANGS", "HANGS_AT_EXIT", "CLOSES_AND_HANGS"}) {
      started_[name] = start_to_stumble(name, "--limit-s 2");
    }
  }
  static Said said(const std::string& name) {
    return switchyard::check::end_of_program(std::exchange(started_[name], nullptr));
  }
  static void TearDownTestSuite() {
    for (const auto& [name, pipe] : started_) {
      if (pipe != nullptr) ::pclose(pipe);
    }
  }

 private:
  static inline std::map<std::string, FILE*> started_;
};

TEST(Program, PassesARightPlugin) {
  const Said said = stumble("NOTHING");
  EXPECT_EQ(said.code, 0) << said.text;
  EXPECT_THAT(said.text, HasSubstr("broken 1: 4 checks, all passed, seed 42"));
}

void expect_one_bad(const Said& said, const std::string& line, int checks = 4) {
  EXPECT_EQ(said.code, 1) << said.text;
  EXPECT_THAT(said.text, HasSubstr(line));
  EXPECT_THAT(said.text, HasSubstr("broken 1: " + std::to_string(checks) + " checks, 1 not"));
}

TEST(Program, ACrashAndAnExitCostOneCheck) {
  for (const auto& [name, line] :
       {std::pair{"CRASHES", "CRASHED ops/add.broken/add.rows2.width100: killed by signal 11"},
        std::pair{"EXITS", "CRASHED ops/add.broken/add.rows2.width100: it ended the process"}}) {
    if (std::string(name) == "CRASHES" && SWITCHYARD_SANITIZED) continue;  // the sanitizer prints its own report
    expect_one_bad(stumble(name, "--limit-s 2"), line);
  }
}

TEST_F(Hanging, CostsOneCheck) {
  expect_one_bad(said("HANGS"), "HUNG ops/add.broken/add.rows2.width100: took more than 2 s");
}

TEST_F(Hanging, AProcessThatDoesNotEndIsEnded) {
  expect_one_bad(said("HANGS_AT_EXIT"), "HUNG ops/exit: at the end of the process: the process did not end within 5 s",
                 5);
  expect_one_bad(said("CLOSES_AND_HANGS"),
                 "HUNG ops/add.broken/add.rows2.width100: the process did not end within 5 s");
}

// In the process that a debugger started, so that it is this one which ends.
TEST(Program, RunsHereForADebugger) {
  EXPECT_EQ(stumble("NOTHING", "--here").code, 0);
  if (SWITCHYARD_SANITIZED) return;  // the sanitizer ends it with a code of its own
  EXPECT_THAT(stumble("CRASHES", "--here || echo ended with $?").text, HasSubstr("ended with 139"));
}

TEST(Program, SaysWhatWasNotCheckedAndWhy) {
  const Said said = check(fixture("NOTHING") + " --oracle naive --suite range,profile --seed 42");
  EXPECT_THAT(said.text, HasSubstr("unsupported: range, 1 of its checks: "));
  EXPECT_THAT(said.text, HasSubstr("unsupported: profile, 1 of its checks: "));
}

TEST(Program, WhatAPluginWritesToThePipeCostsOneCheck) {
  for (const char* name : {"WRITES_GARBAGE", "FORGES", "FLOODS"}) {
    const Said said = stumble(name);
    EXPECT_EQ(said.code, 1) << said.text;
    EXPECT_THAT(said.text, HasSubstr("CRASHED ops/add.broken/add.rows2.width100: wrote to the judge's pipe"));
    EXPECT_THAT(said.text, HasSubstr("broken 1: 4 checks, 1 not"));
  }
}

TEST(Program, SaysWhyAProcessGaveUp) {
  const Said said = check(fixture("OPENS_FOR_TWO") + " --oracle naive --suite races --seed 42");
  EXPECT_EQ(said.code, 1) << said.text;
  EXPECT_THAT(said.text, HasSubstr("FAILED races/team4.list: broken: device_open: "));
  EXPECT_THAT(said.text, HasSubstr("the team is too large"));
}

TEST(Program, APluginPrintsNothing) {
  EXPECT_THAT(stumble("PRINTS").text, HasSubstr("the plugin wrote to standard output: 'added"));
}

TEST(Program, TheSameSeedGivesTheSameRun) {
  const std::string a = stumble("LAST_ELEMENT", "--json -").text, b = stumble("LAST_ELEMENT", "--json -").text;
  const auto whys = [](const std::string& all) {
    std::vector<std::string> out;
    const nlohmann::json j = nlohmann::json::parse(all);
    for (const auto& c : j["checks"]) out.push_back(c["why"]);
    return out;
  };
  EXPECT_EQ(whys(a), whys(b));
  EXPECT_THAT(whys(a)[0], HasSubstr("[--seed 42]"));
}

TEST(Program, JsonTellsVerdictsApart) {
  const nlohmann::json j = nlohmann::json::parse(stumble("EXITS", "--json -").text);
  EXPECT_EQ(j["plugin"]["id"], "broken");
  EXPECT_EQ(j["seed"], 42);
  EXPECT_EQ(j["suites"]["ops"]["passed"], 3);
  EXPECT_EQ(j["suites"]["ops"]["crashed"], 1);
  EXPECT_EQ(j["suites"]["ops"]["failed"], 0);
  EXPECT_EQ(j["checks"][0]["facts"]["op"], "add");
}

TEST(Program, SaysWhatIsWrongWithItsArguments) {
  EXPECT_EQ(check("").code, 2);
  EXPECT_THAT(check("x.so --suite nothing").text, HasSubstr("there is no suite 'nothing'; there are: negotiation"));
  EXPECT_THAT(check("x.so --seed many").text, HasSubstr("--seed takes a whole number, not 'many'"));
  EXPECT_THAT(check("x.so --here").text, HasSubstr("--here runs one suite: name it with --suite"));
  EXPECT_THAT(check("x.so --frobnicate").text, HasSubstr("what is '--frobnicate'?"));
  const Said nowhere = check("/nowhere/x.so");
  EXPECT_EQ(nowhere.code, 2);
  EXPECT_THAT(nowhere.text, HasSubstr("cannot open /nowhere/x.so"));
  EXPECT_THAT(nowhere.text, Not(HasSubstr("json")));
  EXPECT_EQ(check("--help").code, 0);
}

TEST(Program, OnTheWrongMachineItChecksWhatItCan) {
  const Said said = check(fixture("WRONG_MACHINE") + " --oracle naive");
  EXPECT_EQ(said.code, 77) << said.text;
  EXPECT_THAT(said.text, HasSubstr("only what needs no device was checked: broken: the processor lacks everything"));
  EXPECT_THAT(said.text, HasSubstr("negotiation"));
  EXPECT_THAT(said.text, Not(HasSubstr("ops ")));
}

}  // namespace
