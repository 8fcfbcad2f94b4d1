// SPDX-License-Identifier: Apache-2.0
// Operations and encodings that core does not know: through a plugin that has kernels for them, and without it through
// the functions and the decoded weights of the program.
#include <cmath>

#include <nlohmann/json.hpp>
#include "core/plan/expand.h"

#include "core/plan/explain_json.h"
#include "tests/plan/support.h"

namespace switchyard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TestModel named_model(const std::string& backends, const std::vector<std::string>& rules = {},
                      const std::map<std::string, std::vector<Setting>>& settings = {}) {
  Use use{backends, rules, settings};
  use.found.push_back("acme");
  TestModel t;
  t.registry = std::make_unique<Registry>(find_backends(use));
  auto selection = t.registry->select(backends);
  EXPECT_TRUE(selection.ok()) << selection.status().message();
  auto program = Program::load(Os::real(), SWITCHYARD_NAMED_PROGRAM);
  EXPECT_TRUE(program.ok()) << program.status().message();
  const auto variants = rules_of(use);
  EXPECT_TRUE(variants.ok()) << variants.status().message();
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

// Logits of a prompt of 20 tokens in one step, and after each of three more.
std::vector<float> logits_of(const TestModel& t) {
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

// The largest difference, as a share of the largest value.
double difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0, largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    EXPECT_TRUE(std::isfinite(a[i]) && std::isfinite(b[i]));
    largest = std::max(largest, std::fabs(static_cast<double>(a[i])));
    most = std::max(most, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  return most / largest;
}

TEST(Named, APluginAndTheProgramsFunctionsAgree) {
  const TestModel with = named_model("acme,reference"), without = named_model("reference");
  ASSERT_NE(with.model, nullptr);
  ASSERT_NE(without.model, nullptr);
  const auto served = logits_of(with), decomposed = logits_of(without);
  EXPECT_EQ(served.size(), 4u * 50);
  EXPECT_LT(difference(served, decomposed), 0.01);  // weights are rounded to bf16 without the plugin
  const Plan plan = plan_of(with, 1);
  EXPECT_EQ(count(plan, "gelu.acme"), 2u);
  EXPECT_EQ(count(plan, "conv.acme"), 2u);
  EXPECT_EQ(count(plan, "linear.acme"), 4u) << "two of them in the function of acme.gated/1";
  const Plan plain = plan_of(without, 1);
  EXPECT_EQ(count(plain, "sigmoid_mul.plain"), 2u);
  EXPECT_EQ(count(plain, "causal_conv.plain"), 2u);
}

// Only the operations differ, so that results are as close as an exponential function allows.
TEST(Named, OperationsAloneAgreeClosely) {
  const TestModel with = named_model("acme,reference", {"linear=!linear.acme"}), without = named_model("reference");
  ASSERT_NE(with.model, nullptr);
  EXPECT_EQ(count(plan_of(with, 1), "gelu.acme"), 2u);
  EXPECT_EQ(count(plan_of(with, 1), "linear.acme"), 0u);
  EXPECT_LT(difference(logits_of(with), logits_of(without)), 1e-5);
}

TEST(Named, ExplainShowsWhoServes) {
  const TestModel t = named_model("acme,reference");
  ASSERT_NE(t.model, nullptr);
  const std::string text = explain_text(plan_of(t, 1), true);
  EXPECT_THAT(text, AllOf(HasSubstr("acme.conv/1  acme:0 conv.acme (composite"),
                          HasSubstr("acme.gated/1 function gated (decomposed"),
                          HasSubstr("acme:0 - as composite: no kernel for acme.gated/1"),
                          HasSubstr("acme.gelu/1  acme:0 gelu.acme (composite"),
                          HasSubstr("decode embed from acme.nf4/1 to bf16 at load")));
  EXPECT_THAT(text, Not(HasSubstr("decode layers.0.up")));
  const std::string json = explain_json(plan_of(t, 1)).dump();
  EXPECT_THAT(json, HasSubstr("\"kind\":\"acme.gated/1\",\"chosen\":\"function gated\",\"reason\":\"decomposed\""));
}

TEST(Named, ExplainShowsWhatStandsForThem) {
  const TestModel t = named_model("reference");
  ASSERT_NE(t.model, nullptr);
  const std::string text = explain_text(plan_of(t, 1), true);
  EXPECT_THAT(text, AllOf(HasSubstr("acme.conv/1  function conv (decomposed"),
                          HasSubstr("reference:0 - as composite: no kernel for acme.conv/1"),
                          HasSubstr("acme.gelu/1  function gelu (decomposed"),
                          HasSubstr("decode layers.0.up from acme.nf4/1 to bf16 at load")));
}

TEST(Named, AVariantForbidsAKernelForThem) {
  const TestModel t = named_model("acme,reference", {"acme.gelu/1=!gelu.acme", "acme.conv/1=!conv.acme"});
  ASSERT_NE(t.model, nullptr);
  const Plan plan = plan_of(t, 1);
  EXPECT_EQ(count(plan, "gelu.acme") + count(plan, "conv.acme"), 0u);
  EXPECT_EQ(count(plan, "sigmoid_mul.plain"), 2u);
  EXPECT_THAT(explain_text(plan, true), HasSubstr("gelu.acme as composite: forbidden by --variant"));
  EXPECT_LT(difference(logits_of(t), logits_of(named_model("reference"))), 0.01);
}

TEST(Named, ARefusalOfOneStepSizeLeavesTheOthers) {
  const TestModel t = named_model("acme,reference", {}, {{"acme", {{"refuse", "32"}}}});
  ASSERT_NE(t.model, nullptr);
  EXPECT_EQ(count(plan_of(t, 1), "gelu.acme"), 2u);
  const Plan plan = plan_of(t, 32);
  EXPECT_EQ(count(plan, "gelu.acme"), 0u);
  EXPECT_EQ(count(plan, "sigmoid_mul.plain"), 2u);
  EXPECT_THAT(explain_text(plan, true), HasSubstr("acme:0 gelu.acme as composite: not 32 rows"));
  EXPECT_LT(difference(logits_of(t), logits_of(named_model("acme,reference"))), 1e-5);  // 20 rows are a bucket of 32
}

TEST(Named, VariantsKnowThem) {
  const auto parsed = parse_variant_rule("acme.gelu/1=gelu.acme");
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_THAT(parse_variant_rule("gelu=gelu.acme").status().message(), HasSubstr("unknown operation 'gelu'"));
}

// Decoded weights take memory beside the mapped file, once per device; those that a kernel reads as they are do not.
TEST(Named, DecodedWeightsCountAsCopied) {
  const TestModel with = named_model("acme,reference"), without = named_model("reference");
  ASSERT_NE(with.model, nullptr);
  ASSERT_NE(without.model, nullptr);
  constexpr uint64_t table = 50 * 32 * 2, layer = 2 * 64 * 32 * 2;
  EXPECT_EQ(with.model->weights().copied_bytes(), 2 * table);
  EXPECT_EQ(without.model->weights().copied_bytes(), 2 * table + 2 * layer);
}

}  // namespace
}  // namespace switchyard
