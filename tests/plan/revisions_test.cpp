// SPDX-License-Identifier: Apache-2.0
// A model of second revisions, MLP and MXFP4 weights: run by composites, and by their pieces.
#include <cmath>
#include <set>

#include "core/import/convert.h"
#include "core/import/random_weights.h"
#include "core/program/writer.h"
#include "tests/plan/support.h"
#include "tests/support/files.h"

namespace switchyard {
namespace {

// The program of tests/program/revisions.cpp with weights about which something can be said.
void write_model(const std::string& path) {
  const auto program = Program::load(Os::real(), SWITCHYARD_REVISIONS_PROGRAM);
  ASSERT_TRUE(program.ok()) << program.status().message();
  const ProgramSpec spec = spec_of(*program);
  auto writer = ProgramWriter::create(Os::real(), path, spec);
  ASSERT_TRUE(writer.ok()) << writer.status().message();
  for (size_t t = 0; t < spec.tensors.size(); ++t) {
    std::vector<std::byte> bytes(program->tensors[t].segments[0].bytes);
    random_weights(spec.tensors[t], {0.1f, spec.tensors[t].dims.size() > 1 ? 0.2f : 0.5f}, 1, 0, bytes);
    ASSERT_TRUE(writer->write_segment(t, bytes, 0).ok());
  }
  ASSERT_TRUE(writer->finish().ok());
}

class Revisions : public ::testing::Test {
 protected:
  void SetUp() override { write_model(program_); }

  TestModel model(const std::string& backends, const std::vector<std::string>& rules = {},
                  const BackendSettings& settings = {}) const {
    const Use use{backends, rules, settings};
    TestModel t;
    t.registry = std::make_unique<Registry>(find_backends(use));
    auto selection = t.registry->select(backends);
    auto program = Program::load(Os::real(), program_);
    const auto variants = rules_of(use);
    EXPECT_TRUE(selection.ok() && program.ok() && variants.ok());
    if (!selection.ok() || !program.ok() || !variants.ok()) return t;
    ModelOptions options;
    options.context = 256;
    options.variants = *variants;
    auto model = Model::create(std::make_shared<const Program>(std::move(*program)), std::move(selection->devices),
                               selection->policy, options);
    EXPECT_TRUE(model.ok()) << model.status().message();
    if (model.ok()) t.model = std::move(*model);
    return t;
  }

  // Of a prompt of 20 tokens, four times a window, and of each of three more.
  static std::vector<float> logits_of(const TestModel& t) {
    std::vector<float> all;
    auto session = t.model->session();
    EXPECT_TRUE(session.ok());
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 23; ++i) ids.push_back(i * 7 % 50);
    for (size_t at = 0; at < ids.size(); at += at == 0 ? 20 : 1) {
      const auto logits = (*session)->feed(std::span(ids).subspan(at, at == 0 ? 20 : 1));
      EXPECT_TRUE(logits.ok()) << logits.status().message();
      if (logits.ok()) all.insert(all.end(), logits->begin(), logits->end());
    }
    return all;
  }

  static std::set<std::string> kernels_of(const TestModel& t) {
    std::set<std::string> names;
    for (const PlanNode& n : plan_of(t, 16).nodes) {
      if (n.kernel != nullptr) names.insert(n.kernel->name);
    }
    return names;
  }

  testing::TemporaryFolder folder_;
  std::string program_ = folder_.path("revisions.swy");
};

TEST_F(Revisions, PiecesGiveTheBitsOfTheirComposites) {
  const TestModel whole = model("reference"),
                  pieces = model("reference", {"attention=!attention.plain", "mlp=!mlp.plain"});
  ASSERT_TRUE(whole.model != nullptr && pieces.model != nullptr);
  const std::vector<float> a = logits_of(whole), b = logits_of(pieces);
  EXPECT_EQ(a.size(), 4u * 50);
  for (const float x : a) EXPECT_TRUE(std::isfinite(x));
  EXPECT_GT(*std::max_element(a.begin(), a.end()) - *std::min_element(a.begin(), a.end()), 0.1f);
  EXPECT_TRUE(same_bits(a, b));
  const std::set<std::string> of_whole = kernels_of(whole), of_pieces = kernels_of(pieces);
  for (const char* name : {"attention.plain", "mlp.plain"}) {
    EXPECT_TRUE(of_whole.contains(name)) << name;
    EXPECT_FALSE(of_pieces.contains(name)) << name;
  }
  for (const char* name : {"mlp_add.plain", "moe_add.grouped"}) EXPECT_TRUE(of_whole.contains(name)) << name;
  for (const char* name : {"rope.plain", "attend.plain", "router_topk.plain", "experts.grouped", "silu_mul.plain"}) {
    EXPECT_TRUE(of_pieces.contains(name)) << name;
  }
}

// `parts` has what the pieces of MLP need, and neither MLP nor MLP_ADD.
TEST_F(Revisions, ABackendWithoutMlpRunsADenseModel) {
  ConvertOptions options;
  options.source = SWITCHYARD_TEST_DATA "/tiny/families/qwen3";
  options.output = program_ = folder_.path("dense.swy");
  ASSERT_TRUE(convert(Os::real(), options).ok());
  const TestModel whole = model("reference"), pieces = model("reference", {"mlp=!mlp.plain", "mlp_add=!mlp_add.plain"});
  ASSERT_TRUE(whole.model != nullptr && pieces.model != nullptr);
  EXPECT_TRUE(kernels_of(whole).contains("mlp_add.plain"));
  std::string names;
  for (const std::string& name : kernels_of(pieces)) {
    EXPECT_FALSE(name.starts_with("mlp")) << name;
    names += " " + name;
  }
  const TestModel without = model("parts", {}, {{"parts", {{"kernels", names}}}});
  ASSERT_NE(without.model, nullptr);
  EXPECT_TRUE(same_bits(logits_of(whole), logits_of(without)));
  EXPECT_TRUE(kernels_of(without).contains("parts.silu_mul.plain"));
}

}  // namespace
}  // namespace switchyard
