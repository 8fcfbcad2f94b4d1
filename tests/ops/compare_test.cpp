// SPDX-License-Identifier: Apache-2.0
// What the kit makes of differences: each is found wherever it may hide.
#include "plugins_api/check/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "plugins_api/check/cases.h"
#include "plugins_api/check/naive.h"

namespace switchyard::check {
namespace {

using ::testing::HasSubstr;

Case case_named(const std::string& name) {
  for (const CaseSpec& s : all_cases()) {
    if (s.name != name) continue;
    Random random(1);
    return s.build(random);
  }
  ADD_FAILURE() << "no case " << name;
  return {};
}

// One element that is wrong by less than the row's budget as a whole, but by more than any element may be.
TEST(Compare, OneWrongElementOfAWideRow) {
  Random random(3);
  const Case c = Builder(SWY_OP_ADD, random).rows({1}).input(4096).input(4096).output(4096).done();
  const Outcome wanted = run_naive(c);
  double norm = 0;
  for (const double x : wanted.outputs[0][0].values) norm += x * x;
  Outcome got = wanted;
  got.outputs[0][0].values[1234] += 0.6e-6 * std::sqrt(norm);
  EXPECT_THAT(compare(c, wanted, got, SWY_F32, nullptr), HasSubstr("element 1234 is"));
  got.outputs[0][0].values[1234] = NAN;
  EXPECT_THAT(compare(c, wanted, got, SWY_F32, nullptr), HasSubstr("element 1234 is nan"));
}

// One row that is worse than any may be, among so many good ones that the mean hides it.
TEST(Compare, OneWrongRowAmongMany) {
  Random random(3);
  const Case c = Builder(SWY_OP_ADD, random).rows({200}).input(64).input(64).output(64).done();
  const Outcome wanted = run_naive(c);
  Outcome got = wanted;
  for (size_t i = 0; i < 64; ++i) got.outputs[0][0].values[100 * 64 + i] *= 1 + 3e-6;
  EXPECT_THAT(compare(c, wanted, got, SWY_F32, nullptr), HasSubstr("row 100: relative error"));
}

TEST(Compare, EveryEntryOfTheTokenBuffer) {
  const Case c = case_named("sample.penalties.rows7.vocab77");
  const Outcome wanted = run_naive(c);
  ASSERT_EQ(compare(c, wanted, wanted, SWY_F32, nullptr), "");
  ASSERT_FALSE(wanted.tokens.empty());
  for (size_t i = 0; i < wanted.tokens.size(); ++i) {
    Outcome got = wanted;
    ++got.tokens[i];
    EXPECT_THAT(compare(c, wanted, got, SWY_F32, nullptr), HasSubstr("of the token buffer is"));
  }
}

TEST(Compare, TheBitsOfStates) {
  const Case c = case_named("causal_conv.2k6v.dims12_20.kernel4.prompt65");
  const Outcome one = run_naive(c);
  ASSERT_EQ(differing_bits(c, one, one), "");
  Outcome other = one;
  for (double& x : other.states[0]) x = static_cast<double>(std::nextafter(static_cast<float>(x), INFINITY));
  EXPECT_THAT(differing_bits(c, one, other), HasSubstr("state 0 unit"));
}

TEST(Budgets, AreOfTheOperationAndItsTypes) {
  const auto worst = [](swy_op_id op, swy_dtype encoding, swy_dtype activations, swy_dtype output) {
    return budget(op, encoding, activations, output).worst;
  };
  EXPECT_EQ(worst(SWY_OP_CAST, SWY_F32, SWY_F32, SWY_BF16), 0) << "a cast has one right answer";
  EXPECT_GT(worst(SWY_OP_ADD, SWY_F32, SWY_F32, SWY_BF16), worst(SWY_OP_ADD, SWY_F32, SWY_F32, SWY_F32));
  EXPECT_EQ(worst(SWY_OP_LINEAR, SWY_I4A, SWY_I8, SWY_F32), 2 * worst(SWY_OP_LINEAR, SWY_I4, SWY_I8, SWY_F32));
  EXPECT_EQ(worst(SWY_OP_SAMPLE, SWY_F32, SWY_F32, SWY_I32), 0);
}

}  // namespace
}  // namespace switchyard::check
