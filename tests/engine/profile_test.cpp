// SPDX-License-Identifier: Apache-2.0
// When kernels ran: on a device with its own clock, on host backends, and how that appears in a trace or a table.
#include "core/engine/profile.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <set>

#include "bench/measure.h"
#include "bench/trace_file.h"
#include "tests/engine/fixture.h"
#include "tests/engine/fixtures/late.h"
#include "tests/support/batches.h"
#include "tests/support/files.h"

namespace switchyard {
namespace {

using bench::TraceFile;
using nlohmann::json;
using ::testing::IsEmpty;

struct Kept final : ProfileListener {
  struct Kernel {
    std::string name, op;
    uint64_t list, begin_ns, end_ns;
  };
  struct List {
    uint64_t begin_ns, end_ns;
  };
  std::vector<Kernel> kernels;
  std::vector<List> lists;
  std::vector<std::string> stretches;
  uint64_t waited_ns = 0;
  void stretch(const char* what, uint64_t begin_ns, uint64_t end_ns) override {
    stretches.push_back(what);
    if (stretches.back() == "wait") waited_ns += end_ns - begin_ns;
  }
  void submitted(uint64_t, const Plan&, const PlanSegment&, uint64_t begin_ns, uint64_t end_ns) override {
    lists.push_back({begin_ns, end_ns});
  }
  void kernel(const KernelSpan& s) override {
    kernels.push_back({s.name, s.node == nullptr ? "" : s.node->op.name, s.list, s.begin_ns, s.end_ns});
  }
};

TestModel late_model(const std::vector<Setting>& settings = {}, uint32_t sessions = 1) {
  ModelOptions options = with_context(256);
  options.sessions = sessions;
  return make_model(kDemo, "late", options, SWITCHYARD_FIXTURES, {{"late", settings}});
}

LateReport& report_of(const TestModel& t) {
  const PlanDevice& d = t.model->devices()[0];
  return *const_cast<LateReport*>(static_cast<const LateReport*>(d.api->get_extension(d.handle, kLateReport)));
}

// Draws `tokens` tokens from a prompt of some.
Status draw(Model& model, uint32_t tokens, const SamplingParams& params = {.temperature = 0}) {
  SWY_LET(auto session, model.session());
  Batch batch(model);
  Request request;
  request.prompt = {5, 6, 7, 8, 9};
  request.max_tokens = tokens;
  request.sampling = params;
  SWY_LET(const Batch::Id id, batch.add(*session, std::move(request)));
  SWY_TRY(batch.run(id));
  return batch.outcome(id)->status;
}

TEST(ClockLine, GoesThroughTwoPoints) {
  const ClockLine line({1000, 50}, {3000, 150}, 999);
  EXPECT_EQ(line.host_ns(50), 1000u);
  EXPECT_EQ(line.host_ns(100), 2000u);
  EXPECT_EQ(line.host_ns(150), 3000u);
  EXPECT_EQ(line.host_ns(200), 4000u);
  EXPECT_EQ(line.host_ns(0), 0u);
  EXPECT_EQ(line.host_ns(10), 200u);
  EXPECT_EQ(ClockLine({1000, 50}, {1000, 50}, 2500).host_ns(54), 1010u) << "one point: the nominal tick";
  EXPECT_EQ(line.host_ns(UINT64_MAX), UINT64_MAX);
}

// A clock that runs a hundredth off, from its own start: kernels are reported at their true times.
TEST(Profile, TellsWhenKernelsOfADeviceRan) {
  const TestModel t = late_model({{"delay", "2000"}});
  ASSERT_NE(t.model, nullptr);
  ASSERT_TRUE(draw(*t.model, 2).ok());  // lists of before the profile
  LateReport& late = report_of(t);
  late.took.clear();
  const uint64_t violations = late.violations;
  Kept kept;
  auto profile = Profile::start(*t.model, test_host(), kept);
  ASSERT_TRUE(profile.ok()) << profile.status().message();
  ASSERT_TRUE(draw(*t.model, 30).ok());
  const Status stopped = (*profile)->stop();
  ASSERT_TRUE(stopped.ok()) << stopped.message();
  EXPECT_THAT((*profile)->blind(), IsEmpty());
  EXPECT_EQ((*profile)->dropped(), 0u);

  std::vector<Kept::Kernel> first;  // launches
  for (const auto& k : kept.kernels) {
    if (k.name.find('/') == std::string::npos) first.push_back(k);
  }
  ASSERT_EQ(first.size(), late.took.size());
  std::set<std::string> ops;
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].name, late.took[i].kernel);
    ASSERT_NEAR(static_cast<double>(first[i].begin_ns), static_cast<double>(late.took[i].begin_ns), 100) << i;
    ASSERT_FALSE(first[i].op.empty()) << first[i].name;
    ASSERT_GE(first[i].list, 1u);
    ASSERT_GE(first[i].begin_ns + 100, kept.lists[first[i].list - 1].begin_ns) << "not before it was submitted";
    ops.insert(first[i].op);
  }
  EXPECT_GE(ops.size(), 40u) << "operations of eight layers";
  EXPECT_GT(kept.waited_ns, 10'000'000u);
  EXPECT_THAT(kept.stretches, ::testing::IsSupersetOf({"prepare", "write", "wait", "sample", "step"}));

  const size_t told = kept.kernels.size();
  const uint64_t enabled = late.enabled;
  ASSERT_TRUE(draw(*t.model, 3).ok());
  EXPECT_EQ(kept.kernels.size(), told) << "nothing is told afterwards";
  EXPECT_EQ(late.took.size(), first.size()) << "and lists are without timestamps";
  EXPECT_EQ(late.enabled, enabled);
  EXPECT_EQ(late.violations, violations);
}

TEST(Profile, LaunchesOfOneOperationBelongTogether) {
  const TestModel t = late_model();
  ASSERT_NE(t.model, nullptr);
  Kept kept;
  auto profile = Profile::start(*t.model, test_host(), kept);
  ASSERT_TRUE(profile.ok());
  auto session = t.model->session();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE((*session)->feed(std::vector<int32_t>{7}).ok());
  ASSERT_TRUE((*profile)->stop().ok());
  size_t rest = 0;
  for (size_t i = 1; i < kept.kernels.size(); ++i) {
    if (kept.kernels[i].name != "lm_head.plain/rest") continue;
    ++rest;
    EXPECT_EQ(kept.kernels[i - 1].name, "lm_head.plain");
    EXPECT_EQ(kept.kernels[i].op, kept.kernels[i - 1].op);
    EXPECT_EQ(kept.kernels[i].list, kept.kernels[i - 1].list);
  }
  EXPECT_EQ(rest, 3u);
}

TEST(Profile, CountsWhatADeviceHadNoRoomFor) {
  const TestModel t = late_model({{"spans", "10"}});
  ASSERT_NE(t.model, nullptr);
  report_of(t).took.clear();
  Kept kept;
  auto profile = Profile::start(*t.model, test_host(), kept);
  ASSERT_TRUE(profile.ok());
  ASSERT_TRUE(draw(*t.model, 3).ok());
  ASSERT_TRUE((*profile)->stop().ok());
  EXPECT_GT((*profile)->dropped(), 50u);
  EXPECT_GE(kept.kernels.size(), 10u);
  EXPECT_GE(kept.kernels.size() + (*profile)->dropped(), report_of(t).took.size());
}

TEST(Profile, NamesADeviceThatDoesNotTell) {
  const TestModel t = late_model({{"blind", "1"}});
  ASSERT_NE(t.model, nullptr);
  Kept kept;
  auto profile = Profile::start(*t.model, test_host(), kept);
  ASSERT_TRUE(profile.ok());
  ASSERT_TRUE(draw(*t.model, 3).ok());
  ASSERT_TRUE((*profile)->stop().ok());
  EXPECT_THAT((*profile)->blind(), ::testing::ElementsAre("late:0"));
  EXPECT_FALSE(kept.lists.empty());
}

TEST(Profile, OfAHostBackend) {
  const TestModel t = make_model(kDemo, "reference", with_context(64));
  ASSERT_NE(t.model, nullptr);
  Kept kept;
  auto profile = Profile::start(*t.model, test_host(), kept);
  ASSERT_TRUE(profile.ok());
  ASSERT_TRUE(draw(*t.model, 3).ok());
  ASSERT_TRUE((*profile)->stop().ok());
  EXPECT_THAT((*profile)->blind(), IsEmpty());
  ASSERT_FALSE(kept.kernels.empty());
  for (const auto& k : kept.kernels) {
    EXPECT_FALSE(k.op.empty()) << k.name;
    ASSERT_GE(k.list, 1u);
    EXPECT_GE(k.begin_ns, kept.lists[k.list - 1].begin_ns);
    EXPECT_LE(k.end_ns, kept.lists[k.list - 1].end_ns);
  }
}

// The rules of the Trace Event format that viewers rely on.
void check_trace(const json& file) {
  ASSERT_TRUE(file["traceEvents"].is_array());
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> lanes;
  std::set<std::pair<int, int>> named;
  std::map<uint64_t, int> arrows;
  for (const json& e : file["traceEvents"]) {
    const std::string kind = e["ph"];
    ASSERT_TRUE(e["pid"].is_number_integer() && e["tid"].is_number_integer() && e["name"].is_string()) << e;
    const std::pair<int, int> lane = {e["pid"], e["tid"]};
    if (kind == "M") {
      ASSERT_TRUE(e["args"].is_object());
      if (e["name"] == "thread_name") named.insert(lane);
      continue;
    }
    ASSERT_TRUE(e["ts"].is_number()) << e;
    ASSERT_GE(e["ts"].get<double>(), 0);
    if (kind == "s" || kind == "f") {
      arrows[e["id"]] += kind == "s" ? 1 : 100;
      continue;
    }
    ASSERT_EQ(kind, "X") << e;
    ASSERT_GE(e["dur"].get<double>(), 0);
    ASSERT_TRUE(!e.contains("args") || e["args"].is_object());
    lanes[lane].emplace_back(e["ts"], e["ts"].get<double>() + e["dur"].get<double>());
  }
  for (auto& [lane, spans] : lanes) {
    EXPECT_TRUE(named.contains(lane)) << "lane " << lane.first << "." << lane.second << " has no name";
    std::sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    std::vector<double> open;
    for (const auto& [begin, end] : spans) {  // each lies inside the one around it, or after it
      while (!open.empty() && open.back() <= begin + 1e-6) open.pop_back();
      ASSERT_TRUE(open.empty() || end <= open.back() + 0.0015) << "lane " << lane.first << "." << lane.second;
      open.push_back(end);
    }
  }
  for (const auto& [id, ends] : arrows) EXPECT_TRUE(ends == 101 || ends == 1) << "arrow " << id;
}

json trace_of(const TestModel& t, size_t most = TraceFile::kMostEvents) {
  TraceFile file({t.model->devices()[0].name}, Os::real().now_ns(), most);
  file.describe("model", "a \"name\"\n\xff");
  auto profile = Profile::start(*t.model, test_host(), file);
  EXPECT_TRUE(profile.ok());
  EXPECT_TRUE(draw(*t.model, 5, {.temperature = 0.8f, .seed = 1}).ok());
  EXPECT_TRUE((*profile)->stop().ok());
  const switchyard::testing::TemporaryFolder folder;
  const auto output = Os::real().create(folder.path("trace.json"));
  EXPECT_TRUE(output.ok() && file.write(**output).ok());
  return json::parse(*Os::real().read(folder.path("trace.json"), 1 << 26));
}

TEST(Trace, IsWhatViewersRead) {
  for (const bool late : {true, false}) {
    const TestModel t = late ? late_model({{"delay", "300"}}) : make_model(kDemo, "reference", with_context(64));
    ASSERT_NE(t.model, nullptr);
    const json file = trace_of(t);
    check_trace(file);
    std::set<std::string> names;
    bool layer = false;
    for (const json& e : file["traceEvents"]) {
      names.insert(e["name"]);
      if (e["name"] != "attention.plain") continue;
      layer = e["args"]["layer"].is_number() && e["args"]["kind"] == "attention" && e["args"]["rows"].is_number() &&
              !e["args"]["shape"].get<std::string>().empty();
    }
    EXPECT_TRUE(layer) << "a kernel says which operation it is";
    EXPECT_THAT(names, ::testing::IsSupersetOf({"step", "prepare", "sample", "list 1"}));
    EXPECT_TRUE(names.contains(late ? "submit late:0" : "submit reference:0"));
  }
}

TEST(Trace, KeepsSoMuchAndCountsTheRest) {
  const TestModel t = make_model(kDemo, "reference", with_context(64));
  ASSERT_NE(t.model, nullptr);
  const json file = trace_of(t, 20);
  check_trace(file);
  EXPECT_EQ(file["otherData"]["events"], 20);
  EXPECT_GT(file["otherData"]["events left out, the last ones, for want of room"].get<int>(), 100);
}

// Work of an asynchronous device is waited for; it does not count as the host's work.
TEST(Overhead, WaitingForADeviceIsNotCore) {
  const TestModel t = late_model({{"delay", "4000"}}, 2);
  ASSERT_NE(t.model, nullptr);
  std::vector<int32_t> text(30);
  for (size_t i = 0; i < text.size(); ++i) text[i] = 100 + static_cast<int32_t>(i);
  bench::Contexts contexts(*t.model, text);
  ASSERT_TRUE(contexts.read(10, 1, 100, [] { return true; }).ok());
  const auto stepper = bench::text_stepper(contexts, 20);
  bench::Overhead overhead;
  ASSERT_TRUE(bench::watch_turn(*stepper, *t.model, test_host(), 2, 8, overhead).ok());
  EXPECT_GT(overhead.wait_share(), 0.5);
  EXPECT_LT(overhead.core_share(), 0.2);
  std::map<std::string, bench::KernelTime> kernels;
  ASSERT_TRUE(bench::trace_turn(*stepper, *t.model, test_host(), 2, 8, kernels).ok());
  ASSERT_TRUE(kernels.contains("attention.plain"));
  EXPECT_EQ(kernels.at("attention.plain").calls, 2 * 8u);
  EXPECT_EQ(kernels.at("lm_head.plain").calls, 8u) << "of two launches each";
  EXPECT_FALSE(kernels.contains("lm_head.plain/rest"));
}

}  // namespace
}  // namespace switchyard
