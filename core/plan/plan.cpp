// SPDX-License-Identifier: Apache-2.0
#include "core/plan/plan.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <map>

#include "core/plan/cover.h"
#include "core/plan/emit.h"
#include "core/plan/expand.h"
#include "core/plan/op_shape.h"
#include "core/plan/plan_memory.h"
#include "core/plan/state_home.h"
#include "core/plugin/kernel_names.h"
#include "core/program/op_names.h"

namespace switchyard {
namespace {

constexpr int kMaxRounds = 16;  // of planning one step, each without what refused in those before

// A forced or forbidden kernel must exist.
Status check_variant(const VariantRule& rule, const std::vector<PlanDevice>& devices) {
  const bool range = rule.op == "range";
  std::string known = range ? SWY_EXT_RANGE ", " SWY_EXT_RANGE_2 : "";
  for (const PlanDevice& d : devices) {
    for (uint32_t i = 0; !range && i < d.api->kernel_count(d.handle); ++i) {
      const swy_kernel* kernel = d.api->kernel_at(d.handle, i);
      if (kernel == nullptr || op_kind(*kernel) != rule.op) continue;
      if (kernel->name == rule.kernel) return {};
      known += fmt::format("{}{}", known.empty() ? "" : ", ", kernel->name);
    }
  }
  if (range && (rule.kernel == SWY_EXT_RANGE || rule.kernel == SWY_EXT_RANGE_2)) return {};
  return error(Code::usage, "--variant {}={}{}: no chosen backend has such a kernel; for {} there is {}", rule.op,
               rule.forbid ? "!" : "", rule.kernel, rule.op, known.empty() ? "none" : known);
}

// The graph that produces `results`, and changes the states of steps. Operations that neither needs are left out: of
// the head, and those after the last one with states where nothing is wanted of a step.
Graph graph_for(Graph graph, std::span<const uint32_t> results) {
  std::vector<bool> wanted(graph.values.size());
  for (const uint32_t v : results) wanted[v] = true;
  std::vector<GraphOp> kept;
  for (auto op = graph.ops.rbegin(); op != graph.ops.rend(); ++op) {
    const auto head = [&](uint32_t v) { return graph.values[v].rows != SWY_ROWS_STEP; };
    const auto needed = [&](uint32_t v) { return bool{wanted[v]}; };
    const bool changes = !op->states.empty() && std::none_of(op->outputs.begin(), op->outputs.end(), head);
    if (!changes && std::none_of(op->outputs.begin(), op->outputs.end(), needed)) continue;
    for (const uint32_t v : op->inputs) wanted[v] = true;
    kept.push_back(std::move(*op));
  }
  graph.ops.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
  graph.results.assign(results.begin(), results.end());
  return graph;
}

// Replaces the operations with names that no kernel takes. Kernels are asked once about operations of one shape.
void expand_refused(Graph& graph, const Matcher& matcher, size_t devices) {
  std::map<std::string, std::vector<Considered>> answers;  // by shape_bytes
  expand_named(graph, [&](const Graph& g, const GraphOp& op, std::vector<Considered>& considered) {
    const auto [known, fresh] = answers.try_emplace(shape_bytes(g, op));
    for (uint32_t d = 0; fresh && d < devices; ++d) matcher.best(g, op, d, "composite", known->second);
    considered = known->second;
    return std::any_of(considered.begin(), considered.end(), [](const Considered& c) { return c.accepted; });
  });
}

// Puts a line for each operation that was replaced before those of its function.
void explain_expansions(const Graph& graph, std::vector<PlanDecision>& decisions) {
  if (graph.expansions.empty()) return;
  std::vector<PlanDecision> all;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const auto begin = static_cast<ptrdiff_t>(all.size());
    for (int32_t e = graph.ops[i].expansion; e >= 0; e = graph.expansions[static_cast<size_t>(e)].outer) {
      const Expansion& x = graph.expansions[static_cast<size_t>(e)];
      all.insert(all.begin() + begin,
                 {x.op, x.kind, fmt::format("function {}", x.function), "decomposed", "estimate", x.considered, {}});
    }
    all.push_back(std::move(decisions[i]));
  }
  decisions = std::move(all);
}

}  // namespace

uint32_t bucket_size(uint32_t n, uint32_t limit) {
  return std::min(n > (1u << 31) ? limit : std::bit_ceil(std::max(n, 1u)), std::max(limit, 1u));
}

swy_bucket bucket_of(const StepCounts& n, const swy_bucket& pool, uint32_t max_rows) {
  swy_bucket b = pool;
  b.rows = bucket_size(n.rows, max_rows);
  b.seqs = bucket_size(n.seqs, pool.seqs);
  b.logit_rows = bucket_size(n.logit_rows, max_rows);
  const bool several = n.sample_rows > n.seqs;  // draws of a sequence
  b.sample_rows = n.sample_rows == 0 ? 0 : bucket_size(n.sample_rows, several ? max_rows : pool.seqs);
  b.context = bucket_size(std::max(n.context, kSmallestContextBucket), pool.context);
  if (n.rows == n.seqs) b.flags |= SWY_BUCKET_DECODE;
  if (several) b.flags |= SWY_BUCKET_DRAFTS;
  return b;
}

Result<VariantRule> parse_variant_rule(const std::string& text) {
  const size_t eq = text.find('=');
  VariantRule rule;
  rule.op = text.substr(0, eq);
  if (eq != std::string::npos) {
    rule.forbid = eq + 1 < text.size() && text[eq + 1] == '!';
    rule.kernel = text.substr(eq + 1 + (rule.forbid ? 1 : 0));
  }
  if (rule.kernel.empty()) {
    return error(Code::usage, "'{}' is not a variant rule; write OP=KERNEL to force one or OP=!KERNEL to forbid one",
                 text);
  }
  const bool known = rule.op == "range" || find_op(rule.op) != nullptr;
  if (!known && swy_is_name(rule.op.c_str()) == 0) {
    return error(Code::usage,
                 "unknown operation '{}' in variant rule '{}'; see switchyard backends --details for the names",
                 rule.op, text);
  }
  return rule;
}

Result<Planner> Planner::create(Graph graph, std::vector<PlanDevice> devices, PlanPolicy policy,
                                std::vector<VariantRule> variants, const swy_bucket& pool, uint32_t max_rows,
                                CancelCheck cancelled) {
  Planner p;
  p.graph_ = std::move(graph);
  p.devices_ = std::move(devices);
  p.policy_ = std::move(policy);
  p.variants_ = std::move(variants);
  p.cancelled_ = std::move(cancelled);
  if (p.policy_.memory == nullptr) p.policy_.memory = std::make_shared<PlanMemory>();

  for (const VariantRule& rule : p.variants_) SWY_TRY(check_variant(rule, p.devices_));
  SWY_TRY(p.home_states(pool, max_rows));
  return p;
}

// An operation with a name that has states is kept if a device announces a kernel for it and its states find a home
// then. The others are left for each plan to decide about, by its bucket.
Status Planner::home_states(const swy_bucket& pool, uint32_t max_rows) {
  const auto home = [&](Graph& graph) {
    return state_homes(graph, devices_, policy_, variants_, pool, max_rows, cancelled_);
  };
  if (graph_.functions == nullptr) {
    SWY_LET(state_device_, home(graph_));
    return {};
  }
  // Whether an operation stays; the answers say why it does not.
  const auto stays = [&](const GraphOp& op, const std::string& reason, std::vector<Considered>& considered) {
    bool announced = false;
    for (const PlanDevice& d : devices_) {
      const bool here = is_announced(d, op);
      announced = announced || here;
      considered.push_back(
          {d.name, "", "composite", false, 0, here ? reason : fmt::format("no kernel for {}", op_kind(op))});
    }
    return announced && reason.empty();
  };
  Graph whole = graph_;
  expand_named(whole, [&](const Graph&, const GraphOp& op, std::vector<Considered>& considered) {
    return op.states.empty() || stays(op, "", considered);
  });
  Result<std::vector<uint32_t>> homes = home(whole);
  const auto keeps_state = [](const GraphOp& op) { return !op.named.empty() && !op.states.empty(); };
  if (homes.status().code() == Code::unsupported && std::any_of(whole.ops.begin(), whole.ops.end(), keeps_state)) {
    whole = graph_;
    const std::string reason = "no device takes it and all that shares its states in every step size";
    expand_named(whole, [&](const Graph&, const GraphOp& op, std::vector<Considered>& considered) {
      return op.states.empty() || stays(op, reason, considered);
    });
    homes = home(whole);
  }
  SWY_TRY(homes.status());
  graph_ = std::move(whole);
  state_device_ = std::move(*homes);
  return {};
}

Result<Plan> Planner::plan(const swy_bucket& bucket, HeadLists head_lists) const {
  std::vector<uint32_t> results = graph_.results;
  if (bucket.sample_rows == 0) {
    std::erase_if(results, [&](uint32_t v) { return graph_.values[v].rows == SWY_ROWS_SAMPLE; });
  }
  return plan(bucket, results, head_lists);
}

Result<Plan> Planner::plan(const swy_bucket& bucket, std::span<const uint32_t> results, HeadLists head_lists) const {
  const Refusals* refusals = &policy_.memory->refusals;
  for (int round = 1;; ++round) {
    const Matcher matcher(devices_, variants_, bucket, policy_.tuning.get(), refusals);
    const Matcher untuned(devices_, variants_, bucket, nullptr, refusals);
    Graph graph = graph_for(graph_, results);
    expand_refused(graph, untuned, devices_.size());
    std::vector<Refusal> refused;
    auto covered = cover_graph(graph, devices_, policy_, matcher, state_device_, head_lists, cancelled_, refused);
    if (!covered.ok()) {
      drop(refused);
      return covered.status();
    }
    Plan plan;
    plan.bucket = bucket;
    plan.head_lists = head_lists;
    plan.state_device = state_device_;
    for (const PlanDevice& d : devices_) plan.device_names.push_back(d.name);
    SWY_TRY(emit_nodes(std::move(*covered), devices_, untuned, policy_.memory->codes, cancelled_, plan, refused));
    if (refused.empty()) {
      explain_expansions(graph, plan.decisions);
      SWY_TRY(check_cancelled(cancelled_, "a step was planned"));
      SWY_TRY(place_values(devices_, plan));
      return plan;
    }
    drop(refused);
    if (round == kMaxRounds) {
      return error(Code::unsupported, "{}; {} plans were made, and each met such a kernel",
                   describe(refused, plan.device_names).front(), round);
    }
  }
}

void Planner::drop(const std::vector<Refusal>& refused) const {
  std::vector<std::string> names;
  for (const PlanDevice& d : devices_) names.push_back(d.name);
  Refusals& all = policy_.memory->refusals;
  std::vector<Refusal> news;  // of kernels that have not refused in another step
  std::copy_if(refused.begin(), refused.end(), std::back_inserter(news),
               [&](const Refusal& r) { return !all.known(r.device, r.kernel); });
  for (const Refusal& r : refused) all.add(r);
  for (const std::string& line : describe(news, names)) spdlog::warn("{}: planned again without it", line);
}

size_t Plan::casts() const {
  return static_cast<size_t>(
      std::count_if(nodes.begin(), nodes.end(), [](const PlanNode& n) { return n.op.id == SWY_OP_CAST; }));
}

size_t Plan::copies() const {
  return static_cast<size_t>(
      std::count_if(nodes.begin(), nodes.end(), [](const PlanNode& n) { return n.copy_from >= 0; }));
}

}  // namespace switchyard
