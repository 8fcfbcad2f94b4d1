// SPDX-License-Identifier: Apache-2.0
// `switchyard bench` from outside: its measurements and comparisons, and backends that fail while they are measured.
#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>

#include "bench/report.h"
#include "tests/cli/program.h"
#include "tests/support/files.h"

namespace switchyard::testing {
namespace {

using bench::Configuration;
using bench::Report;
using bench::State;
using ::testing::HasSubstr;

// Everything small: two cells of the demo model.
Arguments small(const Arguments& more) {
  Arguments all = {"bench", "--prefill", "4", "--context", "8",    "--decode",
                   "3",     "--repeat",  "2", "--format",  "json", "--no-probes"};
  const bool one = !more.empty() && more[0] == "--backend";
  if (!one && std::find(more.begin(), more.end(), "--seconds") == more.end()) {
    all.insert(all.end(), {"--seconds", "0.01"});
  }
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::string fixture(const std::string& name) { return SWITCHYARD_FIXTURES "/switchyard_bench_" + name + ".so"; }

Report report_of(const std::string& json) {
  auto r = bench::parse_report(json);
  EXPECT_TRUE(r.ok()) << r.status().message() << "\n" << json.substr(0, 500);
  return r.ok() ? std::move(*r) : Report{};
}

Report bench_report(const Arguments& more) {
  const Ran ran = run_program(small(more));
  EXPECT_EQ(ran.exit, 0) << ran.err;
  return report_of(ran.out);
}

TEST(BenchCommand, MeasuresOneBackendInAWorker) {
  const Report r = bench_report({"--backend", "reference", "--ops"});
  ASSERT_EQ(r.configurations.size(), 1u);
  const Configuration& c = r.configurations[0];
  EXPECT_EQ(c.name, "reference");
  EXPECT_EQ(c.backend, "reference");
  EXPECT_EQ(c.devices, std::vector<std::string>{"reference:0"});
  EXPECT_GT(c.load_seconds, 0);
  EXPECT_GT(c.peak_host_bytes, 1u << 20);
  EXPECT_EQ(c.peak_device_bytes, 0u);
  ASSERT_EQ(c.cells.size(), 2u);
  EXPECT_EQ(c.cells[0].samples.size(), 2u) << "--repeat";
  EXPECT_EQ(c.cells[1].samples.size(), 3u) << "--decode";
  for (const bench::Cell& cell : c.cells) {
    EXPECT_EQ(cell.state, State::measured) << cell.reason;
    ASSERT_TRUE(cell.rate && cell.overhead && cell.bytes_per_token);
    EXPECT_FALSE(cell.bandwidth_share) << "of nothing that was measured";
    EXPECT_LE(cell.rate->low, cell.rate->median);
    EXPECT_GE(cell.rate->high, cell.rate->median);
    EXPECT_EQ(cell.overhead->lists, 1);
    double calls = 0;
    for (const bench::CellKernel& k : cell.kernels) calls += k.calls;
    EXPECT_GT(calls, 30) << "the demo has 8 layers of several operations";
  }
  EXPECT_TRUE(r.comparisons.empty());
  EXPECT_FALSE(c.correctness) << "one backend alone is checked when --check says so";
  EXPECT_EQ(r.prompt, "text");
  EXPECT_EQ(r.command.at(1), "bench");
  EXPECT_EQ(r.model.layers, 8u);
}

TEST(BenchCommand, SharesAreOfTheMeasuredMachine) {
  const Ran ran = run_program({"bench", "--backend", "reference", "--metrics", "prefill", "--prefill", "4", "--repeat",
                               "1", "--random", "--json"});
  ASSERT_EQ(ran.exit, 0) << ran.err;
  const Report r = report_of(ran.out);
  EXPECT_GT(r.probes.read_gbs, 0);
  EXPECT_EQ(r.prompt, "random ids");
  const bench::Cell& cell = r.configurations.at(0).cells.at(0);
  ASSERT_TRUE(cell.bandwidth_share && cell.bound_share);
  EXPECT_GT(*cell.bandwidth_share, 0);
  EXPECT_EQ(cell.bound, "bandwidth");
}

TEST(BenchCommand, ComparesTwoOfOneIdAndChecksThem) {
  const Report r =
      bench_report({"--backends", "reference," + std::string(SWITCHYARD_TEST_BACKENDS) + "/switchyard_reference.so",
                    "--check-tokens", "4,2"});
  ASSERT_EQ(r.configurations.size(), 2u);
  EXPECT_EQ(r.configurations[0].name, "reference#1");
  EXPECT_EQ(r.configurations[1].name, "reference#2");
  EXPECT_FALSE(r.configurations[0].correctness) << "it is what the others are held against";
  ASSERT_TRUE(r.configurations[1].correctness);
  const bench::Correctness& c = *r.configurations[1].correctness;
  EXPECT_EQ(c.state, State::measured) << c.reason;
  EXPECT_EQ(c.positions, 6u);
  EXPECT_NEAR(c.kl_worst, 0, 1e-9);
  EXPECT_EQ(c.top1, 1);
  EXPECT_FALSE(c.divergence);
  EXPECT_FALSE(c.ops.empty());
  for (const bench::OpError& op : c.ops) EXPECT_EQ(op.worst_row, 0) << op.op;
  ASSERT_EQ(r.comparisons.size(), 2u) << "a cell each";
  for (const bench::Comparison& k : r.comparisons) {
    EXPECT_EQ(k.base, "reference#1");
    EXPECT_EQ(k.other, "reference#2");
    EXPECT_GE(k.pairs, 3u);
    EXPECT_LE(k.low, k.ratio);
    EXPECT_GE(k.high, k.ratio);
  }
}

TEST(BenchCommand, WhoHelpsABackendIsAnother) {
  const Ran ran = run_program(small({"--backends", "reference+reference", "--no-check"}));
  EXPECT_EQ(ran.exit, 2);
  EXPECT_THAT(ran.err, HasSubstr("names reference:0 twice"));
}

TEST(BenchCommand, SweepsAreCrossProducts) {
  const Report r = bench_report(
      {"--backend", "reference", "--sampling", "auto,logits", "--batch", "1,2", "--no-check", "--seconds", "0.01"});
  std::vector<std::string> names;
  for (const Configuration& c : r.configurations) names.push_back(c.name);
  EXPECT_THAT(names,
              ::testing::ElementsAre("reference, sampling=auto, batch=1", "reference, sampling=auto, batch=2",
                                     "reference, sampling=logits, batch=1", "reference, sampling=logits, batch=2"));
  for (const Configuration& c : r.configurations) {
    ASSERT_EQ(c.cells.size(), 2u);
    EXPECT_EQ(c.cells[1].state, State::measured) << c.cells[1].reason;
    EXPECT_EQ(c.cells[1].tokens, c.batch);
    EXPECT_EQ(c.cells[0].samples, r.configurations[0].cells[0].samples) << "prompts are the same for all of a process";
  }
  EXPECT_EQ(r.configurations[2].cells[1].read_bytes, 4.0 * 4096) << "a row of logits";
  EXPECT_EQ(r.configurations[2].cells[1].drawn, "logits: asked for");
  EXPECT_THAT(r.configurations[0].cells[1].drawn, HasSubstr("reference:0")) << "why there";
  EXPECT_EQ(r.configurations[0].cells[0].drawn, "") << "a prompt draws nothing";
}

// The model's own layer always guesses.
TEST(BenchCommand, TellsWhatDraftsGave) {
  const Report r = bench_report({"--backend", "reference", "--no-check", "--seconds", "0.01", "--speculate", "mtp",
                                 "--temp", "0.3", "--metrics", "decode"});
  ASSERT_EQ(r.configurations.size(), 1u);
  const bench::Cell& cell = r.configurations[0].cells.at(0);
  EXPECT_EQ(cell.state, State::measured) << cell.reason;
  EXPECT_EQ(cell.tokens, 16);
  ASSERT_TRUE(cell.drafts.has_value());
  EXPECT_EQ(cell.drafts->by, "mtp");
  EXPECT_GT(cell.drafts->steps, 0u);
  EXPECT_GT(cell.drafts->drafted, 0u);
  EXPECT_LE(cell.drafts->accepted, cell.drafts->drafted);
  EXPECT_EQ(cell.drafts->share_by_place.size(), 3u);
}

TEST(BenchCommand, EncodingsThatAModelCannotHaveAreUnsupported) {
  const Ran ran = run_program(small({"--backends", "reference", "--quant", "i4,i8"}));
  EXPECT_EQ(ran.exit, 1) << "nothing was measured";
  const Report r = report_of(ran.out);
  ASSERT_EQ(r.configurations.size(), 2u);
  EXPECT_EQ(r.configurations[1].name, "reference, quant=i8");
  EXPECT_EQ(r.configurations[1].state, State::unsupported);
  EXPECT_THAT(r.configurations[1].reason, HasSubstr("--quant applies to synth: models only"));
}

struct Wrong {
  const char* name;
  State state;
  const char* reason;
};
void PrintTo(const Wrong& w, std::ostream* out) { *out << w.name; }

class GoesWrong : public ::testing::TestWithParam<Wrong> {};

TEST_P(GoesWrong, CostsItsOwnRowAlone) {
  const Wrong& w = GetParam();
  const Report r = bench_report({"--backends", fixture(w.name) + ",reference", "--check-tokens", "2,1", "--time-limit",
                                 std::string(w.name) == "hang" ? "5" : "120"});
  ASSERT_EQ(r.configurations.size(), 2u);
  const Configuration& bad = r.configurations[0];
  EXPECT_EQ(bad.name, std::string("bench_") + w.name);
  const bool in_cell = bad.state == State::measured;
  ASSERT_TRUE(!in_cell || !bad.cells.empty());
  EXPECT_EQ(in_cell ? bad.cells[0].state : bad.state, w.state);
  EXPECT_THAT(in_cell ? bad.cells[0].reason : bad.reason, HasSubstr(w.reason));
  for (const bench::Cell& cell : r.configurations[1].cells) EXPECT_EQ(cell.state, State::measured) << cell.reason;
  EXPECT_EQ(r.configurations[1].cells.size(), 2u);
}

// Under a sanitizer a crash becomes an exit.
INSTANTIATE_TEST_SUITE_P(Backends, GoesWrong,
                         ::testing::Values(Wrong{"crash", State::crashed, "prefill at 4"},
                                           Wrong{"hang", State::time_limit, "no answer within 5 s in prefill at 4"},
                                           Wrong{"leave", State::crashed, "ended the process in prefill at 4"},
                                           Wrong{"full", State::out_of_memory, "no memory is left"},
                                           Wrong{"refuse", State::failed, "not in the mood"}),
                         [](const auto& wrong) { return std::string(wrong.param.name); });

TEST(BenchCommand, AfterATimeLimitTheNextCellIsMeasured) {
  const Report r = bench_report(
      {"--backends", fixture("stall") + ",reference", "--prefill", "64", "--no-check", "--time-limit", "5"});
  ASSERT_EQ(r.configurations.size(), 2u);
  const Configuration& c = r.configurations[0];
  ASSERT_EQ(c.cells.size(), 3u);
  EXPECT_EQ(c.cells[0].state, State::measured) << c.cells[0].reason;
  EXPECT_EQ(c.cells[1].state, State::time_limit) << "prefill at 64";
  EXPECT_EQ(c.cells[2].state, State::measured) << c.cells[2].reason;
}

TEST(BenchCommand, WhatAnEarlierStartMeasuredStays) {
  const TemporaryFolder folder;
  ASSERT_EQ(::setenv("WRAPPED_MARK", folder.path("mark").c_str(), 1), 0);
  const Report r = bench_report({"--backends", fixture("wear") + ",reference", "--starts", "2", "--no-check"});
  ::unsetenv("WRAPPED_MARK");
  ASSERT_EQ(r.configurations.size(), 2u);
  for (const Configuration& c : r.configurations) {
    ASSERT_EQ(c.cells.size(), 2u);
    for (const bench::Cell& cell : c.cells) {
      EXPECT_EQ(cell.state, State::measured) << cell.reason;
      EXPECT_FALSE(cell.samples.empty());
      ASSERT_TRUE(cell.rate);
    }
  }
  EXPECT_THAT(r.configurations[0].cells[0].reason, HasSubstr("afterwards: crashed in prefill at 4"));
  EXPECT_EQ(r.configurations[1].cells[0].reason, "");
}

TEST(BenchCommand, AFileThatIsNoBackendCostsItsRow) {
  const TemporaryFolder folder;
  const Report r = bench_report({"--backends", folder.write("x.so", "no library") + ",reference", "--no-check"});
  ASSERT_EQ(r.configurations.size(), 2u);
  EXPECT_EQ(r.configurations[0].name, "x.so");
  EXPECT_EQ(r.configurations[0].state, State::failed);
  EXPECT_THAT(r.configurations[0].reason, HasSubstr("x.so"));
  EXPECT_EQ(r.configurations[1].cells[0].state, State::measured);
}

TEST(BenchCommand, UnknownNamesListTheKnown) {
  const auto refused = [](const Arguments& more, const std::string& part) {
    Arguments all = {"bench"};
    all.insert(all.end(), more.begin(), more.end());
    const Ran ran = run_program(all);
    EXPECT_EQ(ran.exit, 2) << ran.err;
    EXPECT_THAT(ran.err, HasSubstr(part));
    EXPECT_EQ(ran.out, "");
  };
  refused({"--format", "xml"}, "table");
  refused({"--metrics", "speed"}, "prefill");
  refused({"--backends", "reference,warp"}, "there is no backend 'warp'; found: ");
  refused({"--backends", "relative/x.so"}, "absolute path");
  refused({"--backends", "reference", "--ab", "reference", "reference"}, "give either --backends or --ab");
  refused({"--quant", "i3", "-m", "synth:x"}, "choose bf16, i8, i4 or i4a");
  refused({"--sampling", "gpu"}, "--sampling is 'gpu'");
  refused({"--prefill", "100", "--ctx", "64"}, "--prefill 100 does not fit the context of 64; --ctx raises it");
  refused({"--backend", "reference", "--set", "reference.warp=1"}, "warp");
}

TEST(BenchCommand, AnInterruptWritesWhatWasMeasured) {
  Child child(small({"--backends", "reference,reference", "--seconds", "100", "--time-limit", "600", "--no-check"}));
  ASSERT_TRUE(child.wait_for(2, "2 configurations"));
  ::usleep(6'000'000);
  child.signal(SIGINT);
  EXPECT_EQ(child.finish(), 130) << child.err;
  const Report r = report_of(child.out);
  ASSERT_EQ(r.configurations.size(), 2u);
  const Configuration& c = r.configurations[0];
  ASSERT_GE(c.cells.size(), 2u) << c.reason;
  EXPECT_EQ(c.cells[0].state, State::measured) << c.cells[0].reason;
  EXPECT_FALSE(c.cells[0].samples.empty());
  EXPECT_EQ(c.cells[1].state, State::interrupted) << "its turn had not come";
}

TEST(BenchCommand, WritesFilesInEveryFormat) {
  const TemporaryFolder folder;
  const std::string html = folder.path("r.html"), csv = folder.path("r.csv");
  const Ran ran = run_program({"bench", "--backend", "reference", "--metrics", "prefill", "--prefill", "4", "--repeat",
                               "1", "--no-probes", "--format", "csv", "-o", csv, "--html", html});
  ASSERT_EQ(ran.exit, 0) << ran.err;
  EXPECT_EQ(ran.out, "");
  EXPECT_THAT(read_file(csv), HasSubstr("reference"));
  EXPECT_THAT(read_file(html), HasSubstr("<svg"));
}

}  // namespace
}  // namespace switchyard::testing
