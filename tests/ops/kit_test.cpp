// SPDX-License-Identifier: Apache-2.0
// The kit itself: it must find faults, and only faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "plugins_api/check/kit.h"
#include "plugins_api/check/naive.h"
#include "plugins_api/check/quantize.h"
#include "switchyard/weights.h"

namespace switchyard::check {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The kit's verdict about a fixture on one case.
std::string verdict(const std::string& fixture, const std::string& reference = "",
                    const std::string& name = "add.rows65.width36") {
  Kit kit({std::string(SWITCHYARD_FIXTURES "/switchyard_broken_") + fixture + ".so", {}, reference, false, 42});
  EXPECT_EQ(kit.error(), "");
  for (const Check& c : kit.claims().checks) {
    if (c.spec->name == name) return kit.run(c);
  }
  return "no such case";
}
std::string state_verdict(const std::string& fixture, const std::string& scene) {
  return verdict(fixture, "", "causal_conv.2k6v.dims12_20.kernel4." + scene);
}

TEST(Kit, PassesARightKernel) {
  EXPECT_EQ(verdict("NOTHING"), "");
  EXPECT_EQ(verdict("NOTHING", SWITCHYARD_REFERENCE), "");
}

TEST(Kit, ReportsOperationKernelCaseRowErrorAndSeed) {
  for (const std::string oracle : {"", SWITCHYARD_REFERENCE}) {
    EXPECT_THAT(
        verdict("LAST_ELEMENT", oracle),
        AllOf(HasSubstr("backend broken, operation add, kernel add.broken, case add.broken/add.rows65.width36"),
              HasSubstr("output 0 row 64: relative error "), HasSubstr("element 35 is "), HasSubstr("[--seed 42]")));
  }
}

TEST(Kit, FindsWhatAKernelMayNotDo) {
  EXPECT_THAT(verdict("READS_TOO_FAR"), HasSubstr("nan instead of"));
  EXPECT_THAT(verdict("WRITES_TOO_FAR"), HasSubstr("wrote outside output 0: byte"));
  EXPECT_THAT(verdict("CHANGES_INPUT"), HasSubstr("changed its input 1"));
  EXPECT_THAT(verdict("WRITES_WEIGHT", "", "linear.i4.g32.rows65.in100.out_36_17"), HasSubstr("changed its weight 0"));
  EXPECT_THAT(verdict("PACKS_PARTLY", "", "linear.i4.g32.rows65.in100.out_36_17"),
              HasSubstr("packing weight 0 twice into layout 1 gives different bytes, or does not write all of them"));
  EXPECT_THAT(verdict("WRITES_ONCE"), HasSubstr("but a second submission has other bits in output 0"));
  EXPECT_THAT(verdict("NOT_SAFE"), HasSubstr("is not CAPTURE_SAFE, which is mandatory"));
  EXPECT_THAT(verdict("ALLOCATES"), HasSubstr("list_submit allocated memory of the host"));
}

TEST(Kit, HoldsFlagsToTheirWord) {
  EXPECT_THAT(verdict("NOT_DETERMINISTIC"),
              HasSubstr("DETERMINISTIC, but a second submission has other bits in output 0"));
  // wrong for a single row, between two prompts
  EXPECT_THAT(verdict("NOT_INVARIANT"), HasSubstr("BATCH_INVARIANT, but sequence 1 alone"));
  EXPECT_THAT(verdict("NOT_IN_PLACE"), HasSubstr("IN_PLACE, but with output 0 on input 0 it has other bits"));
}

TEST(Kit, GuardsStates) {
  for (const std::string scene : {"ragged", "chunks", "rollback", "prompt65", "decode4"}) {
    EXPECT_EQ(state_verdict("NO_STATE_RULE", scene), "");
  }
  EXPECT_THAT(state_verdict("WRITES_INACTIVE", "ragged"), HasSubstr("changed though no step writes it"));
  EXPECT_THAT(state_verdict("WRITES_READ_SLOT", "prompt65"), HasSubstr("state 0"));
  EXPECT_THAT(state_verdict("READS_FRESH", "prompt65"), HasSubstr("output 0 row 0: relative error inf"));
  EXPECT_THAT(state_verdict("DIFFERS_IN_CHUNKS", "prompt130"), HasSubstr("in chunks of 64 it has other bits in"));
  EXPECT_THAT(state_verdict("LOSES_HISTORY", "chunks"), HasSubstr("output 0 of step 1 row 1: relative error"));
}

TEST(Kit, GuardsCounts) {
  const std::string drawn = "sample.penalties.rows7.vocab77", failed = "sample.bad_penalties.rows7.vocab77";
  for (const std::string& name : {drawn, failed}) EXPECT_EQ(verdict("NO_COUNT_RULE", "", name), "");
  EXPECT_THAT(verdict("IGNORES_COUNTS", "", "sample.greedy_penalties.rows65.vocab77"), HasSubstr("output 0 row"));
  EXPECT_THAT(verdict("COUNTS_NOTHING", "", drawn), HasSubstr("state 0 unit 0 element"));
  EXPECT_THAT(verdict("FORGETS_THE_PROMPT", "", drawn), HasSubstr("state 0 unit 0 element"));
  EXPECT_THAT(verdict("COUNTS_A_FAILED_ROW", "", failed), HasSubstr("state 0 unit"));
}

TEST(Kit, HoldsKernelsToTheBudgetOfWhatTheyDeclare) {
  for (const std::string name : {"linear.i4.g32.rows65.in100.out_36_17", "linear.i4a.row.rows65.in100.out_36_17"}) {
    EXPECT_EQ(verdict("8_BITS", "", name), "");
    EXPECT_THAT(verdict("5_BITS", "", name), HasSubstr("relative error"));
  }
}

// An id that no table has can come from a device's token buffer. Its row is zeros: nothing beyond the table is read.
TEST(Embedding, OfAnIdOutsideItsTableIsZeros) {
  for (const auto& path : std::vector<std::string>{SWITCHYARD_REFERENCE, SWITCHYARD_CPU}) {
    if (path.empty()) continue;  // cpu is not built
    const Kit kit({path, {}, "", false, 1});
    ASSERT_EQ(kit.error(), "");
    uint32_t cases = 0;
    for (const Check& check : kit.claims().checks) {
      if (check.spec->op != SWY_OP_EMBEDDING || check.spec->name.find(".rows63.width100") == std::string::npos) {
        continue;
      }
      ++cases;
      Case c = kit.build(check);
      const auto vocab = static_cast<int32_t>(c.weights[0].desc.dims[0]);
      std::vector<int32_t>& tokens = c.steps[0].tokens;
      c.tokens[0] = vocab;
      tokens[3] = -1;  // entry 0 of the token buffer
      tokens[5] = vocab;
      tokens[7] = INT32_MAX;
      const Outcome got = Execution(kit.plugin(), *check.kernel, c).run(c);
      for (const uint64_t row : {3u, 5u, 7u}) {
        for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(got.outputs[0][0].values[row * 100 + i], 0) << check.name();
      }
    }
    EXPECT_GT(cases, 5u) << "encodings";
  }
}

TEST(Kit, SaysWhyAPluginDoesNotOpen) {
  const Kit nowhere({"/nowhere/switchyard_x.so", {}, "", false, 1});
  EXPECT_THAT(nowhere.error(), HasSubstr("cannot open /nowhere"));
  EXPECT_FALSE(nowhere.wrong_machine());
  const Kit unknown({SWITCHYARD_FIXTURES "/switchyard_broken_NOTHING.so", {{"isa", "avx2"}}, "", false, 1});
  EXPECT_EQ(unknown.error(), "broken has no option 'isa'");
  const Kit here({SWITCHYARD_FIXTURES "/switchyard_broken_WRONG_MACHINE.so", {}, "", false, 1});
  EXPECT_EQ(here.error(), "broken: the processor lacks everything");
  EXPECT_TRUE(here.wrong_machine());
}

TEST(Table, HasCasesForEveryOperation) {
  std::set<swy_op_id> there;
  for (const CaseSpec& s : all_cases()) there.insert(s.op);
  for (swy_op_id op = 0; op < 128; ++op) {
    const bool known = op_name(op) != "op" + std::to_string(op);
    EXPECT_EQ(there.contains(op), known) << op_name(op);
    EXPECT_EQ(naive_of(op) != nullptr, known && op != SWY_OP_LM_HEAD_SAMPLE) << op_name(op);
  }
}

TEST(Table, NamesAreUnique) {
  std::set<std::string> names;
  for (const CaseSpec& s : all_cases()) EXPECT_TRUE(names.insert(s.name).second) << s.name;
}

// The quantizer's own arithmetic against the function that backends use.
TEST(Quantize, AgreesWithTheHeader) {
  Random random(7);
  for (const Encoding& e : all_encodings()) {
    Builder b(SWY_OP_LINEAR, random);
    const Case c = b.rows({1}).matrix({3, 100}, e.dtype, e.group).done();
    const Weight& w = c.weights[0];
    swy_weight_planes planes;
    ASSERT_EQ(swy_weight_planes_of(&w.desc, &planes), 0);
    ASSERT_EQ(w.segment.size(), planes.total_bytes);
    std::vector<float> row(100);
    for (uint64_t r = 0; r < 3; ++r) {
      swy_weight_row(&w.desc, &planes, w.segment.data(), r, row.data());
      for (uint64_t i = 0; i < 100; ++i) EXPECT_NEAR(row[i], w.at(r, i), 1e-7) << e.name();
    }
  }
}

TEST(Quantize, RoundsToTheNearestHalf) {
  for (const double x : {1.0, -2.5, 0.1, 65504.0, 6.1e-5, 3e-6, 5.96e-8, 0.0}) {
    const auto f = static_cast<float>(x);
    EXPECT_NEAR(swy_f16_to_f32(to_half(f)), f, std::max(std::fabs(x) / 2048, 2.99e-8)) << x;
  }
  EXPECT_EQ(to_half(1.0f), 0x3c00);
  EXPECT_EQ(to_half(2049.0f), 0x6800);  // a tie: to even
}

}  // namespace
}  // namespace switchyard::check
