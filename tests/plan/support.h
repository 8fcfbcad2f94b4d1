// SPDX-License-Identifier: Apache-2.0
// Shared by the planner's tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/plan/cover.h"
#include "core/plan/tuning.h"
#include "tests/engine/fixture.h"

namespace switchyard {

// The backends of a test: those of this folder and reference, and no other that may have been built.
struct Use {
  std::string backend;
  std::vector<std::string> rules = {};                        // of --variant
  std::map<std::string, std::vector<Setting>> settings = {};  // per backend
  std::vector<std::string> found = {"reference", "narrow", "far", "parts", "ranger", "behind", "behind_plain"};
  std::shared_ptr<const Tuning> tuning = nullptr;
  bool deterministic = false;
  std::string code_folder = {};
};

inline Registry find_backends(const Use& use) {
  DiscoveryOptions discovery;
  discovery.cpu_features = default_discovery().cpu_features;
  for (const std::string& id : use.found) {
    const bool built_in = id == "reference" || id == "cpu";
    const std::string folder = built_in ? SWITCHYARD_TEST_BACKENDS : SWITCHYARD_FIXTURES;
    discovery.libraries.push_back(fmt::format("{}/switchyard_{}.so", folder, id));
  }
  discovery.settings = use.settings;
  return Registry::discover(Os::real(), discovery, test_host());
}

inline Result<std::vector<VariantRule>> rules_of(const Use& use) {
  std::vector<VariantRule> rules;
  for (const std::string& text : use.rules) {
    SWY_LET(VariantRule rule, parse_variant_rule(text));
    rules.push_back(std::move(rule));
  }
  return rules;
}

inline Result<TestModel> try_demo(const Use& use) {
  TestModel t;
  t.registry = std::make_unique<Registry>(find_backends(use));
  SWY_LET(auto selection, t.registry->select(use.backend));
  SWY_LET(Program program, Program::load(Os::real(), kDemo));
  ModelOptions options;
  options.chunk = 512;
  options.tuning = use.tuning;
  options.deterministic = use.deterministic;
  options.code_folder = use.code_folder;
  SWY_LET(options.variants, rules_of(use));
  SWY_LET(t.model, Model::create(std::make_shared<const Program>(std::move(program)), std::move(selection.devices),
                                 selection.policy, options));
  return t;
}

// The demo model on these backends; fails the calling test when that cannot be.
inline TestModel demo(const Use& use) {
  auto t = try_demo(use);
  EXPECT_TRUE(t.ok()) << t.status().message();
  return t.ok() ? std::move(*t) : TestModel{};
}

// Logits after a prompt of 70 tokens, and after each of five more.
inline std::vector<float> some_logits(Model& model) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 75; ++i) ids.push_back(i * 37 % 4000);
  std::vector<float> all;
  auto session = model.session();
  EXPECT_TRUE(session.ok());
  const auto feed = [&](std::span<const int32_t> part) {
    const auto logits = (*session)->feed(part);
    EXPECT_TRUE(logits.ok()) << logits.status().message();
    if (logits.ok()) all.insert(all.end(), logits->begin(), logits->end());
  };
  feed(std::span(ids).first(70));
  for (size_t i = 70; i < ids.size(); ++i) feed(std::span(ids).subspan(i, 1));
  return all;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return !a.empty() && a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Borrows from the model.
inline Plan plan_of(const TestModel& t, uint32_t rows) {
  auto plan = t.model->plan(rows, 1, 256);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? std::move(*plan) : Plan{};
}

inline const PlanDecision& decision(const Plan& plan, const std::string& op) {
  static const PlanDecision none;
  for (const PlanDecision& d : plan.decisions) {
    if (d.op == op) return d;
  }
  ADD_FAILURE() << "no operation " << op;
  return none;
}

// A plan for `bucket` over the demo's graph as modified by `change`, and the objects it refers to.
struct TestPlan {
  std::unique_ptr<Registry> registry;
  std::vector<std::shared_ptr<Device>> devices;
  Plan plan;
};

template <class Change>
Result<TestPlan> plan_of_changed(const Use& use, Change change, uint32_t sample_rows = 0,
                                 HeadLists head_lists = HeadLists::joined) {
  TestPlan t;
  t.registry = std::make_unique<Registry>(find_backends(use));
  SWY_LET(auto selection, t.registry->select(use.backend));
  SWY_LET(const Program program, Program::load(Os::real(), kDemo));
  SWY_LET(auto rules, rules_of(use));
  Graph graph = graph_of(program);
  swy_bucket pool{};
  pool.struct_size = sizeof pool;
  pool.rows = pool.seqs = pool.logit_rows = pool.slots = 1;
  pool.sample_rows = sample_rows;
  pool.context = 256;
  pool.pages = 4;
  pool.page_size = 64;
  change(graph);
  t.devices = std::move(selection.devices);
  std::vector<PlanDevice> devices;
  for (const auto& d : t.devices) devices.push_back(d->plan());
  SWY_LET(const Planner planner,
          Planner::create(std::move(graph), devices, selection.policy, std::move(rules), pool, 64));
  SWY_LET(t.plan, planner.plan(pool, head_lists));
  return t;
}

// How many nodes run a kernel.
inline size_t count(const Plan& plan, const std::string& kernel) {
  return static_cast<size_t>(std::count_if(plan.nodes.begin(), plan.nodes.end(), [&](const PlanNode& n) {
    return n.kernel != nullptr && n.kernel->name == kernel;
  }));
}

}  // namespace switchyard
