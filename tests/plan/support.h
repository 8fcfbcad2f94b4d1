// What the planner's tests share.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "core/plan/cover.h"
#include "tests/engine/fixture.h"

namespace switchyard {

inline const char* const kDemo = SWITCHYARD_DEMO_MODEL;

inline TestModel demo_on(const std::string& backend, const std::vector<std::string>& rules = {}) {
  ModelOptions options;
  for (const std::string& text : rules) {
    auto rule = parse_variant_rule(text);
    EXPECT_TRUE(rule.ok()) << rule.status().message();
    if (rule.ok()) options.variants.push_back(*rule);
  }
  options.chunk = 512;
  return make_model(kDemo, backend, options, SWITCHYARD_FIXTURES);
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

// A planner over the demo's graph, as `change` leaves it.
template <class Change>
Result<Planner> planner_on(const std::string& backend, Change change) {
  TestModel t;
  Host host(1);
  DiscoveryOptions discovery;
  discovery.search_path = std::string(SWITCHYARD_TEST_BACKENDS) + ":" + SWITCHYARD_FIXTURES;
  const Registry registry = Registry::discover(Os::real(), discovery, host);
  SWY_LET(auto selection, registry.select(backend));
  SWY_LET(const Program program, Program::load(Os::real(), kDemo));
  Graph graph = graph_of(program);
  std::vector<PlanDevice> devices;
  for (const auto& d : selection.devices) devices.push_back(d->plan());
  swy_bucket pool{};
  pool.struct_size = sizeof pool;
  pool.rows = pool.seqs = pool.logit_rows = pool.slots = 1;
  pool.context = 256;
  pool.pages = 4;
  pool.page_size = 64;
  change(graph);
  SWY_LET(Planner planner, Planner::create(std::move(graph), devices, selection.policy, {}, pool, 64));
  SWY_LET(const Plan plan, planner.plan(pool));
  return planner;
}

}  // namespace switchyard
