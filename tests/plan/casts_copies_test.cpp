// SPDX-License-Identifier: Apache-2.0
// Values that change their type or their device on the way.
#include "tests/plan/support.h"

namespace switchyard {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The demo has 8 layers with two sums each, so 16 additions.
constexpr size_t kSums = 16;

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    error += (a[i] - b[i]) * (a[i] - b[i]);
    size += a[i] * a[i];
  }
  return std::sqrt(error / size);
}

// The tokens that each of the six rows of some_logits() would be continued with.
std::vector<size_t> tokens(const std::vector<float>& logits) {
  std::vector<size_t> out;
  const size_t vocab = logits.size() / 6;
  for (size_t row = 0; row < 6; ++row) {
    const auto begin = logits.begin() + static_cast<ptrdiff_t>(row * vocab);
    out.push_back(static_cast<size_t>(std::max_element(begin, begin + static_cast<ptrdiff_t>(vocab)) - begin));
  }
  return out;
}

TEST(Casts, StandAroundAKernelThatTakesOnlyBf16) {
  const TestModel exact = demo({"reference"}), t = demo({"narrow,reference"});
  ASSERT_NE(t.model, nullptr);
  const Plan plan = plan_of(t, 1);
  EXPECT_EQ(count(plan, "add.narrow"), kSums);
  for (const PlanNode& n : plan.nodes) {
    if (n.kernel == nullptr || std::string(n.kernel->name) != "add.narrow") continue;
    for (const uint32_t v : n.op.inputs) EXPECT_EQ(plan.graph.values[v].dtype, SWY_BF16);
    for (const uint32_t v : n.op.outputs) EXPECT_EQ(plan.graph.values[v].dtype, SWY_BF16);
  }
  // Narrowed: the embedding, and the outputs of each mixer and each moe. Widened: every sum, for the next norm.
  EXPECT_EQ(plan.casts(), 1 + kSums + kSums);
  EXPECT_EQ(plan.copies(), 1 + kSums + kSums);
  const std::vector<float> a = some_logits(*exact.model), b = some_logits(*t.model);
  ASSERT_EQ(a.size(), b.size());
  EXPECT_FALSE(same_bits(a, b));    // it did round
  EXPECT_LT(distance(a, b), 0.05);  // sixteen roundings to 8 bits of mantissa
  EXPECT_EQ(tokens(a), tokens(b));
}

TEST(Casts, AreExplainedWhereTheyAreNeeded) {
  const TestModel t = demo({"narrow,reference"});
  ASSERT_NE(t.model, nullptr);
  const Plan plan = plan_of(t, 1);
  EXPECT_THAT(explain_text(plan, false), HasSubstr("33 casts, 33 copies"));
  // narrow has no cast: reference casts before the copy, which then is half as large
  EXPECT_THAT(decision(plan, "layers.0.mixer_sum").moves,
              ElementsAre("cast embedding from f32 to bf16 on reference:0 cast.plain",
                          "copy embedding:bf16 from reference:0 to narrow:0, 512 bytes",
                          "cast layers.0.out from f32 to bf16 on reference:0 cast.plain",
                          "copy layers.0.out:bf16 from reference:0 to narrow:0, 512 bytes"));
  EXPECT_THAT(decision(plan, "layers.0.moe_norm").moves,
              ElementsAre("copy layers.0.mixer_sum from narrow:0 to reference:0, 512 bytes",
                          "cast layers.0.mixer_sum from bf16 to f32 on reference:0 cast.plain"));
  EXPECT_THAT(explain_text(plan, true),
              HasSubstr("    cast layers.0.out from f32 to bf16 on reference:0 cast.plain\n"));
  EXPECT_THAT(plan_of(demo({"reference"}), 1).decisions[1].moves, IsEmpty());
}

// Where both devices can cast, a value crosses as bf16: it is narrowed before the copy and widened after it.
TEST(Casts, AreOnTheSideThatMakesTheCopySmaller) {
  const TestModel t = demo({"narrow,reference", {}, {{"narrow", {{"casts", "1"}}}}});
  ASSERT_NE(t.model, nullptr);
  const Plan plan = plan_of(t, 1);
  EXPECT_THAT(decision(plan, "layers.0.mixer_sum").moves,
              ::testing::Contains("copy embedding:bf16 from reference:0 to narrow:0, 512 bytes"));
  EXPECT_THAT(decision(plan, "layers.0.moe_norm").moves,
              ElementsAre("copy layers.0.mixer_sum from narrow:0 to reference:0, 512 bytes",
                          "cast layers.0.mixer_sum from bf16 to f32 on reference:0 cast.plain"));
}

TEST(Casts, ThatNoBackendOffersAreNamed) {
  const auto t = plan_of_changed({"narrow,parts",
                                  {},
                                  {{"parts",
                                    {{"kernels",
                                      "embedding.plain rms_norm.plain linear.plain moe.grouped "
                                      "attention.plain gated_delta.recurrent lm_head.plain"}}}}},
                                 [](Graph&) {});
  ASSERT_FALSE(t.ok());
  EXPECT_EQ(t.status().message(),
            "no chosen backend has a cast kernel, and embedding of parts:0 is needed as bf16 on narrow:0");
}

TEST(Casts, BringAResultBackToTheProgramsType) {
  const TestModel exact = demo({"reference"});
  const TestModel t = demo({"narrow,reference", {}, {{"narrow", {{"kernel", "lm_head.narrow"}}}}});
  ASSERT_NE(t.model, nullptr);
  const Plan plan = plan_of(t, 1);
  EXPECT_EQ(count(plan, "lm_head.narrow"), 1u);
  const uint32_t logits = plan.graph.results[0];
  EXPECT_EQ(plan.graph.values[logits].dtype, SWY_F32);
  EXPECT_EQ(plan.nodes.back().kernel->name, std::string("cast.plain"));
  EXPECT_THAT(plan.nodes.back().op.outputs, ElementsAre(logits));
  // It gives bf16: as f32 the low halves are zero, and every 256th logit is the same number.
  const std::vector<float> all = some_logits(*t.model);
  ASSERT_EQ(all.size(), some_logits(*exact.model).size());
  for (size_t i = 0; i < 1024; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, &all[i], sizeof bits);
    ASSERT_EQ(bits & 0xffff, 0u);
    ASSERT_EQ(all[i], all[i % 256]);
  }
  EXPECT_NE(all[0], all[1]);
}

// The sum of layer 1 reads the embedding, as that of layer 0 does.
void read_the_embedding_twice(Graph& graph) {
  for (GraphOp& op : graph.ops) {
    if (op.name == "layers.1.mixer_sum") op.inputs[0] = graph.ops[0].outputs[0];
  }
}

TEST(Casts, AreMadeOnceForAllThatRead) {
  const auto once = plan_of_changed({"narrow,reference"}, [](Graph&) {});
  const auto t = plan_of_changed({"narrow,reference"}, read_the_embedding_twice);
  ASSERT_TRUE(once.ok() && t.ok()) << t.status().message();
  EXPECT_EQ(t->plan.casts(), once->plan.casts());
}

TEST(Copies, AreMadeOnceForAllThatRead) {
  const auto once = plan_of_changed({"far,reference"}, [](Graph&) {});
  const auto t = plan_of_changed({"far,reference"}, read_the_embedding_twice);
  ASSERT_TRUE(once.ok() && t.ok()) << t.status().message();
  EXPECT_EQ(t->plan.copies(), once->plan.copies());
}

TEST(Copies, AreSegmentsOfTheirOwnBetweenDevices) {
  const TestModel t = demo({"far,reference"});
  ASSERT_NE(t.model, nullptr);
  const Plan plan = plan_of(t, 1);
  EXPECT_EQ(count(plan, "add.far"), kSums);
  EXPECT_EQ(plan.casts(), 0u);
  size_t copies = 0;
  for (const PlanSegment& s : plan.segments) {
    if (!s.copy) {
      for (uint32_t n = s.begin; n < s.end; ++n) EXPECT_EQ(plan.nodes[n].device, s.device);
      continue;
    }
    ++copies;
    EXPECT_EQ(s.end - s.begin, 1u);
    EXPECT_NE(plan.nodes[s.begin].copy_from, static_cast<int>(s.device));
  }
  EXPECT_EQ(copies, plan.copies());
  // The embedding and the outputs of each mixer and moe go to far; every sum comes back.
  EXPECT_EQ(copies, 1 + kSums + kSums);
  EXPECT_THAT(explain_text(plan, false), HasSubstr("33 copies"));
}

// Whoever reads what another device or a copy makes waits for it, and for nothing that did not come before.
TEST(Copies, WaitForTheirSourceAndAreWaitedFor) {
  const TestModel t = demo({"far,reference"});
  ASSERT_NE(t.model, nullptr);
  const Plan plan = plan_of(t, 1);
  std::vector<bool> awaited(plan.segments.size());
  for (uint32_t i = 0; i < plan.segments.size(); ++i) {
    const PlanSegment& s = plan.segments[i];
    std::vector<uint32_t> expected;
    for (uint32_t n = s.begin; n < s.end; ++n) {
      for (const uint32_t v : plan.nodes[n].op.inputs) {
        const uint32_t on = s.copy ? static_cast<uint32_t>(plan.nodes[n].copy_from) : s.device;
        for (uint32_t w = 0; w < i; ++w) {  // which write produced v?
          for (uint32_t m = plan.segments[w].begin; m < plan.segments[w].end; ++m) {
            const auto& outputs = plan.nodes[m].op.outputs;
            const bool writes =
                plan.nodes[m].device == on && std::find(outputs.begin(), outputs.end(), v) != outputs.end();
            if (writes && (s.copy || plan.segments[w].copy)) expected.push_back(w);
          }
        }
      }
    }
    EXPECT_EQ(s.waits, expected) << i;
    for (const uint32_t w : s.waits) awaited[w] = true;
  }
  for (uint32_t i = 0; i < plan.segments.size(); ++i) EXPECT_EQ(plan.segments[i].signals, awaited[i]) << i;
  const std::string text = explain_text(plan, true);
  EXPECT_THAT(text, HasSubstr("segment 0: 4 kernels on reference:0, signals\n"
                              "segment 1: copy embedding from reference:0 to far:0, waits for 0, signals\n"
                              "segment 2: copy layers.0.out from reference:0 to far:0, waits for 0, signals\n"
                              "segment 3: 1 kernels on far:0, waits for 1, 2, signals\n"
                              "segment 4: copy layers.0.mixer_sum from far:0 to reference:0, waits for 3, signals\n"));
}

// far's memory is invisible to the host; behind's is visible, and written after submit has returned.
class CopiesThrough : public ::testing::TestWithParam<const char*> {};

TEST_P(CopiesThrough, GiveTheSameBits) {
  const TestModel alone = demo({"reference"}), mixed = demo({std::string(GetParam()) + ",reference"});
  ASSERT_NE(mixed.model, nullptr);
  EXPECT_EQ(count(plan_of(mixed, 1), std::string("add.") + (GetParam()[0] == 'f' ? "far" : "behind")), kSums);
  EXPECT_TRUE(same_bits(some_logits(*alone.model), some_logits(*mixed.model)));
}

INSTANTIATE_TEST_SUITE_P(Devices, CopiesThrough, ::testing::Values("far", "behind", "behind_plain"),
                         [](const auto& param) { return std::string(param.param); });

TEST(Copies, FailWithTheTimelineThatTheyWaitFor) {
  const TestModel t = demo({"behind,reference", {}, {{"behind", {{"fail", "1"}}}}});
  ASSERT_NE(t.model, nullptr);
  auto session = t.model->session();
  ASSERT_TRUE(session.ok());
  const std::vector<int32_t> ids = {1, 2, 3};
  const auto logits = (*session)->feed(ids);
  ASSERT_FALSE(logits.ok());
  EXPECT_EQ(logits.status().code(), Code::device_lost);
  EXPECT_THAT(logits.status().message(), AllOf(HasSubstr("behind:0"), HasSubstr("the device fell off")));
}

// A write to memory that a list which was submitted before still reads comes after it, though the host sees the memory.
TEST(Copies, WriteAfterWhatWasSubmitted) {
  const Registry registry = find_backends({"behind"});
  const auto selection = registry.select("behind");
  ASSERT_TRUE(selection.ok()) << selection.status().message();
  const PlanDevice device = selection->devices[0]->plan();
  const auto buffer = [&](float value) {
    auto made = DeviceBuffer::allocate(device, SWY_MEMORY_DEVICE, 4096, "a test");
    EXPECT_TRUE(made.ok() && made->write(0, std::as_bytes(std::span(&value, 1))).ok());
    return std::move(*made);
  };
  const DeviceBuffer x = buffer(1), y = buffer(2), sum = buffer(0);
  swy_step step{};
  step.rows = 1;
  const DeviceBuffer block = buffer(0);
  ASSERT_TRUE(block.write(0, std::as_bytes(std::span(&step, 1))).ok());

  Graph graph;
  graph.values = {
      {"x", SWY_F32, SWY_ROWS_STEP, 1}, {"y", SWY_F32, SWY_ROWS_STEP, 1}, {"sum", SWY_F32, SWY_ROWS_STEP, 1}};
  GraphOp add;
  add.id = SWY_OP_ADD;
  add.inputs = {0, 1};
  add.outputs = {2};
  swy_bucket bucket{};
  bucket.struct_size = sizeof bucket;
  bucket.rows = 1;
  const OpView op(graph, add, bucket);
  const swy_binding inputs[] = {x.slice(0, 4), y.slice(0, 4)}, outputs[] = {sum.slice(0, 4)};
  const swy_bindings bindings{sizeof(swy_bindings), 0, inputs, nullptr, nullptr, outputs, {}};
  const swy_list_info info{sizeof(swy_list_info), 0, &bucket, block.all(), block.all()};
  swy_list* list = nullptr;
  PluginError e;
  ASSERT_EQ(device.api->list_begin(device.handle, &info, &list, e.get()), SWY_OK);
  const swy_kernel* kernel = device.api->kernel_at(device.handle, 0);
  ASSERT_EQ(kernel->record(list, kernel, op.get(), &bindings, e.get()), SWY_OK);
  ASSERT_EQ(device.api->list_finalize(list, e.get()), SWY_OK);
  ASSERT_EQ(device.api->list_submit(list, nullptr, e.get()), SWY_OK);
  const float late = 100;
  ASSERT_TRUE(x.write(0, std::as_bytes(std::span(&late, 1))).ok());
  float got = 0;
  ASSERT_TRUE(sum.read(0, std::as_writable_bytes(std::span(&got, 1))).ok());
  EXPECT_EQ(got, 3);
  device.api->list_free(list);
}

}  // namespace
}  // namespace switchyard
