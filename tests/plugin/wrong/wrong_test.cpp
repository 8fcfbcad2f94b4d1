// SPDX-License-Identifier: Apache-2.0
// The conformance kit sees every fault of wrong.h in the suite that is for it, and sees none in the plugin without a
// fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "tests/ops/run_program.h"
#include "tests/plugin/wrong/wrong.h"

namespace wrong {
namespace {

using switchyard::check::run_program;
using switchyard::check::Said;
using ::testing::HasSubstr;

Said judge(const std::string& fault, const std::string& checks) {
  ::setenv("SWITCHYARD_WRONG", fault.c_str(), 1);
  const size_t slash = checks.find('/');
  std::string arguments = SWITCHYARD_WRONG_PLUGIN " --oracle naive --seed 42 --suite " + checks.substr(0, slash);
  if (slash != std::string::npos) arguments += " --filter " + checks;
  return run_program(arguments);
}

class Wrong : public ::testing::TestWithParam<Fault> {};

TEST_P(Wrong, IsSeen) {
  const Fault& f = GetParam();
  const Said said = judge(f.name, f.checks);
  if (*f.line == '\0') {
    EXPECT_EQ(said.code, 0) << said.text;
    return;
  }
  EXPECT_EQ(said.code, 1) << said.text;
  EXPECT_THAT(said.text, HasSubstr("FAILED " + std::string(f.checks).substr(0, std::string(f.checks).find('/')) + "/"));
  EXPECT_THAT(said.text, HasSubstr(f.line));
}

INSTANTIATE_TEST_SUITE_P(Faults, Wrong, ::testing::ValuesIn(all_faults()), [](const auto& fault) {
  std::string name = fault.param.name;
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
});

TEST(Right, IsNotSeen) {
  std::set<std::string> checks;
  for (const Fault& f : all_faults()) checks.insert(f.checks);
  for (const std::string& some : checks) {
    // Only the plugins that are queued or joined have any: rows of their own say that they are right.
    if (some.starts_with("timelines") || some == "ahead") continue;
    const Said said = judge("", some);
    EXPECT_EQ(said.code, 0) << some << "\n" << said.text;
  }
}

}  // namespace
}  // namespace wrong
