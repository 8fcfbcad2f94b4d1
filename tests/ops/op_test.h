// What the op tests share: one kit for the backend that the command line names, and a test per kernel and case.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>

#include "plugins_api/check/check.h"

namespace switchyard::check {

Kit& the_kit();                          // main.cpp
const std::vector<Check>& all_checks();  // main.cpp

inline std::vector<Check> checks_of(std::initializer_list<swy_op_id> ops) {
  std::vector<Check> out;
  for (const Check& c : all_checks()) {
    if (std::find(ops.begin(), ops.end(), c.spec->op) != ops.end()) out.push_back(c);
  }
  return out;
}

inline std::string check_name(const ::testing::TestParamInfo<Check>& info) {
  std::string name = info.param.name();
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

inline void PrintTo(const Check& c, std::ostream* out) { *out << c.name(); }

// A test suite over the kernels of some operations. A backend need not have any.
#define SWITCHYARD_OP_TEST(suite, ...)                                 \
  class suite : public ::testing::TestWithParam<Check> {};             \
  TEST_P(suite, IsRight) { EXPECT_EQ(the_kit().run(GetParam()), ""); } \
  GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(suite);                \
  INSTANTIATE_TEST_SUITE_P(Kernel, suite, ::testing::ValuesIn(checks_of({__VA_ARGS__})), check_name)

}  // namespace switchyard::check
