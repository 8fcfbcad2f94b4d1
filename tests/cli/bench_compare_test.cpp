// SPDX-License-Identifier: Apache-2.0
// `bench compare` as a script sees it: exit codes, formats, and one line for what is wrong.
#include <gmock/gmock.h>

#include "tests/cli/program.h"
#include "tests/support/files.h"

namespace switchyard::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kReport = SWITCHYARD_TEST_DATA "/bench/demo.json";

// The report with the times of `cpu` taking `factor` times as long.
std::string slower(const TemporaryFolder& folder, double factor) {
  json j = json::parse(read_file(kReport));
  for (json& cell : j["configurations"][1]["cells"]) {
    if (!cell.contains("samples")) continue;
    for (json& s : cell["samples"]) s = s.get<double>() * factor;
  }
  return folder.write("slower.json", j.dump());
}

TEST(BenchCompare, ExitCodes) {
  const TemporaryFolder folder;
  const std::string slow = slower(folder, 1.5);
  const Ran same = run_program({"bench", "compare", kReport, kReport, "--fail"});
  EXPECT_EQ(same.exit, 0) << same.err;
  EXPECT_THAT(same.out, AllOf(HasSubstr("nothing regressed"), Not(HasSubstr("\033"))));
  const Ran told = run_program({"bench", "compare", kReport, slow});
  EXPECT_EQ(told.exit, 0) << "only with --fail";
  EXPECT_THAT(told.out, HasSubstr("1.50x slower"));
  EXPECT_EQ(run_program({"bench", "compare", kReport, slow, "--fail"}).exit, 3);
  EXPECT_EQ(run_program({"bench", "compare", slow, kReport, "--fail"}).exit, 0) << "faster is no regression";
  EXPECT_EQ(run_program({"bench", "compare", kReport, slow, "--fail", "--threshold", "40%"}).exit, 0);
}

TEST(BenchCompare, NothingComparedIsAFailure) {
  const TemporaryFolder folder;
  json j = json::parse(read_file(kReport));
  for (json& c : j["configurations"]) c["name"] = c["name"].get<std::string>() + "-other";
  const std::string other = folder.write("other.json", j.dump());
  EXPECT_EQ(run_program({"bench", "compare", kReport, other}).exit, 0);
  const Ran ran = run_program({"bench", "compare", kReport, other, "--fail"});
  EXPECT_EQ(ran.exit, 1);
  EXPECT_THAT(ran.err, HasSubstr("switchyard: nothing was compared: "));
}

TEST(BenchCompare, FormatsAndFiles) {
  const TemporaryFolder folder;
  const json j = run_json({"bench", "compare", kReport, slower(folder, 1.5), "--json"});
  EXPECT_GT(j["regressions"], 3);
  const std::string page = folder.path("compare.html");
  EXPECT_EQ(run_program({"bench", "compare", kReport, kReport, "--format", "html", "-o", page}).exit, 0);
  EXPECT_THAT(read_file(page), HasSubstr("<svg"));
}

TEST(BenchCompare, WhatIsWrongIsOneLine) {
  const TemporaryFolder folder;
  const auto fault = [](const Arguments& arguments) {
    Arguments all = {"bench", "compare"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Ran ran = run_program(all);
    EXPECT_NE(ran.exit, 0);
    EXPECT_EQ(ran.out, "");
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    return ran.err;
  };
  EXPECT_THAT(fault({kReport, folder.path("none.json")}), HasSubstr("none.json"));
  EXPECT_THAT(fault({kReport, folder.write("text.json", "text")}), HasSubstr("not valid JSON"));
  EXPECT_THAT(fault({kReport, folder.write("two.json", R"({"format": "switchyard.bench/2"})")}),
              HasSubstr("reads \"switchyard.bench/1\""));
  EXPECT_THAT(fault({kReport, folder.write("half.json", R"({"format": "switchyard.bench/1"})")}),
              HasSubstr("version is missing"));
  EXPECT_THAT(fault({kReport, kReport, "--format", "pdf"}), HasSubstr("known: table, json, csv, md, html"));
  for (const char* bad : {"-1%", "x", "3%%", "100%", "nan"}) {
    EXPECT_THAT(fault({kReport, kReport, std::string("--threshold=") + bad}), HasSubstr("percentage below 100"));
  }
  EXPECT_THAT(fault({kReport}), HasSubstr("new"));
}

}  // namespace
}  // namespace switchyard::testing
