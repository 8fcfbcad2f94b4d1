// SPDX-License-Identifier: Apache-2.0
// swy.range/2: a backend that compiles whole graphs and has no kernels keeps the states, runs head and sampler, and is
// given what it compiled in an earlier run.
#include "tests/plan/fixtures/whole.h"

#include <filesystem>

#include "core/engine/batch.h"
#include "tests/plan/support.h"
#include "tests/support/batches.h"
#include "tests/support/files.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryFolder;

Use whole(std::vector<Setting> settings = {}, std::string backend = "whole") {
  Use use{std::move(backend)};
  use.settings["whole"] = std::move(settings);
  use.found.push_back("whole");
  return use;
}

const WholeReport& report_of(const TestModel& t) {
  for (const PlanDevice& d : t.model->devices()) {
    if (d.backend == "whole") {
      return *static_cast<const WholeReport*>(d.api->get_extension(d.handle, kWholeReport));
    }
  }
  throw std::runtime_error("the model has no device of the fixture");
}

size_t lists(const Plan& plan) {
  return static_cast<size_t>(
      std::count_if(plan.segments.begin(), plan.segments.end(), [](const PlanSegment& s) { return !s.copy; }));
}

const SamplingParams kSampled{.temperature = 0.8f, .top_p = 0.95f, .top_k = 40, .seed = 11};

TEST(Whole, IsOneListWithItsOwnStates) {
  const TestModel t = demo(whole()), alone = demo({"reference"});
  ASSERT_NE(t.model, nullptr);
  for (const uint32_t rows : {1u, 64u}) {
    const Plan plan = plan_of(t, rows);
    ASSERT_EQ(plan.nodes.size(), 1u);
    EXPECT_EQ(plan.nodes[0].range_ops.size(), plan.decisions.size() - 1);  // the last says who samples
    EXPECT_EQ(lists(plan), 1u);
    EXPECT_EQ(plan.copies(), 0u);
    EXPECT_EQ(plan.placements.size(), 1u);  // only the logits have memory of the host's
  }
  EXPECT_TRUE(same_bits(some_logits(*alone.model), some_logits(*t.model)));
}

TEST(Whole, IsExplained) {
  const TestModel t = demo(whole());
  ASSERT_NE(t.model, nullptr);
  const std::string text = explain_text(plan_of(t, 1), true);
  EXPECT_THAT(text, HasSubstr("1 kernel in 1 list, 0 casts, 0 copies"));
  EXPECT_THAT(text, HasSubstr("whole:0 swy.range/2 (range of 67; claimed)"));
  EXPECT_THAT(text, HasSubstr("whole:0 swy.range/2 as range of 67: can, 67.0 us\n"));
}

// The head and the sampler are in the same list; a mask, which the host makes meanwhile, takes a second one.
TEST(Whole, SamplesInItsList) {
  const TestModel t = demo(whole()), alone = demo({"reference"});
  ASSERT_NE(t.model, nullptr);
  const auto masked = [](std::span<const int32_t>, std::span<uint32_t> mask) { mask[3] = mask[50] = 0xff; };
  for (const bool mask : {false, true}) {
    Request r = request_of(kShortPrompt, kSampled, 12);
    if (mask) r.mask = masked;
    SubmitCounts counts;
    t.model->runner().watch(&counts);
    const Drawn drawn = draw_alone(*t.model, r, SamplingPath::fused);
    t.model->runner().watch(nullptr);
    EXPECT_TRUE(drawn == draw_alone(*alone.model, r, SamplingPath::logits));
    EXPECT_EQ(drawn.ids.size(), 12u);
    EXPECT_EQ(counts.lists, 12u * (mask ? 2 : 1));
  }
  const Request penalties = request_of(kShortPrompt, {.repetition_penalty = 1.3f, .seed = 5}, 12);
  EXPECT_TRUE(draw_alone(*t.model, penalties, SamplingPath::fused) ==
              draw_alone(*alone.model, penalties, SamplingPath::logits));
}

TEST(Whole, IsCompiledOnceAndKeptForTheNextRun) {
  const TemporaryFolder folder;
  Use use = whole();
  use.code_folder = folder.path("a/b");
  const Request r = request_of(kShortPrompt, kSampled, 8);
  uint64_t compiled = 0, loaded = 0, freed = 0;
  Drawn first;
  {
    const TestModel t = demo(use);
    ASSERT_NE(t.model, nullptr);
    first = draw_alone(*t.model, r, SamplingPath::fused);
    compiled = report_of(t).compiled, loaded = report_of(t).loaded, freed = report_of(t).freed;
    const uint64_t before = report_of(t).compiled;
    t.model->runner().forget_lists();
    EXPECT_TRUE(first == draw_alone(*t.model, r, SamplingPath::fused));
    EXPECT_EQ(report_of(t).compiled, before);  // planned and recorded again, and not compiled
  }
  const size_t files = static_cast<size_t>(std::distance(std::filesystem::directory_iterator(use.code_folder), {}));
  EXPECT_GT(files, 0u);
  const TestModel t = demo(use);
  ASSERT_NE(t.model, nullptr);
  const WholeReport& report = report_of(t);
  EXPECT_TRUE(first == draw_alone(*t.model, r, SamplingPath::fused));
  EXPECT_EQ(report.compiled, compiled);
  EXPECT_EQ(report.loaded - loaded, files);
  EXPECT_EQ(report.freed - freed, files);  // those of the first model
}

// Damaged, cut, of another range, or of another compiler: it is compiled again, and stored.
TEST(Whole, IsCompiledAgainWhereTheStoredFormIsNoGood) {
  namespace fs = std::filesystem;
  const TemporaryFolder folder;
  Use use = whole();
  use.code_folder = folder.path();
  const auto run = [&](uint64_t* stale) {
    const TestModel t = demo(use);
    const uint64_t before = report_of(t).stale, compiled = report_of(t).compiled;
    draw_alone(*t.model, request_of(kShortPrompt, kSampled, 3), SamplingPath::fused);
    *stale = report_of(t).stale - before;
    return report_of(t).compiled - compiled;
  };
  uint64_t stale = 0;
  run(&stale);
  std::vector<fs::path> paths;
  for (const auto& f : fs::directory_iterator(folder.path())) paths.push_back(f.path());
  ASSERT_GT(paths.size(), 2u);
  const auto damage = [&](const auto& change) {
    for (const fs::path& p : paths) {
      std::string bytes = testing::read_file(p);
      change(bytes);
      std::ofstream(p, std::ios::binary) << bytes;
    }
  };
  EXPECT_EQ(run(&stale), 0u);
  damage([](std::string& bytes) { bytes[bytes.size() - 2] ^= 1; });
  EXPECT_GT(run(&stale), 0u);
  EXPECT_EQ(stale, 0u);  // the plugin has not seen it
  EXPECT_EQ(run(&stale), 0u);
  damage([](std::string& bytes) { bytes.resize(bytes.size() / 2); });
  EXPECT_GT(run(&stale), 0u);
  damage([](std::string& bytes) { bytes.clear(); });
  EXPECT_GT(run(&stale), 0u);
  const std::string one = testing::read_file(paths[0]);
  damage([&](std::string& bytes) { bytes = one; });
  EXPECT_GT(run(&stale), 0u);
  EXPECT_EQ(stale, 0u);
  use.settings["whole"] = {{"distrust", "1"}};
  EXPECT_GT(run(&stale), 0u);
  EXPECT_GT(stale, 0u);
}

// What accept refuses is offered again with fewer operations: as many as it says, or one fewer each time.
TEST(Whole, IsAskedAgainForLess) {
  const TestModel alone = demo({"reference"});
  const TestModel t = demo(whole({{"most", "20"}}));
  ASSERT_NE(t.model, nullptr);
  const Plan plan = plan_of(t, 1);
  EXPECT_EQ(plan.nodes.size(), 4u);  // of 20, 20, 20 and 7
  EXPECT_EQ(lists(plan), 1u);
  EXPECT_EQ(plan.decisions[0].reason, "range of 20");
  EXPECT_THAT(explain_text(plan, true), HasSubstr("whole:0 swy.range/2 as range: 67 operations are too many\n"));
  EXPECT_TRUE(same_bits(some_logits(*alone.model), some_logits(*t.model)));

  const TestModel u = demo(whole({{"most", "61"}, {"hint", "0"}}));
  ASSERT_NE(u.model, nullptr);
  EXPECT_EQ(plan_of(u, 1).nodes.size(), 2u);
}

// It gives up after some offers, and then the next backend runs everything.
TEST(Whole, LeavesTheProgramToOthersWhereItTakesNothing) {
  const TestModel alone = demo({"reference"});
  for (const Setting& setting : {Setting{"refuse", "1"}, Setting{"up_to", "1"}, Setting{"most", "1"}}) {
    SCOPED_TRACE(setting.name);
    const TestModel t = demo(whole({setting}, "whole,reference"));
    ASSERT_NE(t.model, nullptr);
    const Plan plan = plan_of(t, 64);
    for (const PlanNode& n : plan.nodes) EXPECT_EQ(n.range, nullptr);
    EXPECT_TRUE(same_bits(some_logits(*alone.model), some_logits(*t.model)));
  }
  const auto t = try_demo(whole({{"refuse", "1"}}));
  ASSERT_FALSE(t.ok());
  EXPECT_THAT(t.status().message(), HasSubstr("dropped: it refused in prepare: the compiler gave up"));
}

TEST(Whole, IsForbiddenByVariant) {
  Use use = whole({}, "whole,reference");
  use.rules = {"range=!swy.range/2"};
  const TestModel t = demo(use);
  ASSERT_NE(t.model, nullptr);
  const Plan plan = plan_of(t, 1);
  for (const PlanNode& n : plan.nodes) EXPECT_EQ(n.range, nullptr);
  EXPECT_THAT(explain_text(plan, true), HasSubstr("whole:0 swy.range/2 as range: forbidden by --variant\n"));
}

TEST(CodeStore, KeepsTheNewestFiles) {
  const TemporaryFolder folder;
  const CodeStore store(Os::real(), folder.path("code"), 3);
  const auto bytes = [](const std::string& text) { return std::as_bytes(std::span(text)); };
  for (int i = 0; i < 10; ++i) {
    const std::string name = std::to_string(i);
    store.save(name, bytes("code of " + name));
    if (i >= 2) {
      EXPECT_TRUE(store.load("1").has_value());  // what is used stays
    }
  }
  EXPECT_EQ(store.load("9"), "code of 9");
  EXPECT_EQ(store.load("3"), std::nullopt);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path("code")), {}), 3);
  EXPECT_EQ(CodeStore(Os::real(), "").load("9"), std::nullopt);
}

}  // namespace
}  // namespace switchyard
