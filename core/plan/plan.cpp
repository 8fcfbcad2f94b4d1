// SPDX-License-Identifier: Apache-2.0
#include "core/plan/plan.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "core/plan/cover.h"
#include "core/plan/emit.h"
#include "core/plan/state_home.h"
#include "core/program/op_names.h"

namespace switchyard {
namespace {

// A forced or forbidden kernel must exist.
Status check_variant(const VariantRule& rule, const std::vector<PlanDevice>& devices) {
  const bool range = rule.op == "range";
  std::string known = range ? SWY_EXT_RANGE : "";
  for (const PlanDevice& d : devices) {
    for (uint32_t i = 0; !range && i < d.api->kernel_count(d.handle); ++i) {
      const swy_kernel* kernel = d.api->kernel_at(d.handle, i);
      if (kernel == nullptr || op_name(kernel->op) != rule.op) continue;
      if (kernel->name == rule.kernel) return {};
      known += fmt::format("{}{}", known.empty() ? "" : ", ", kernel->name);
    }
  }
  if (range && rule.kernel == SWY_EXT_RANGE) return {};
  return error(Code::usage, "--variant {}={}{}: no chosen backend has such a kernel; for {} there is {}", rule.op,
               rule.forbid ? "!" : "", rule.kernel, rule.op, known.empty() ? "none" : known);
}

// The graph that produces `results`: operations of the head that these do not need are left out.
Graph graph_for(Graph graph, std::span<const uint32_t> results) {
  std::vector<bool> wanted(graph.values.size());
  for (const uint32_t v : results) wanted[v] = true;
  std::vector<GraphOp> kept;
  for (auto op = graph.ops.rbegin(); op != graph.ops.rend(); ++op) {
    const auto head = [&](uint32_t v) { return graph.values[v].rows != SWY_ROWS_STEP; };
    const auto needed = [&](uint32_t v) { return bool{wanted[v]}; };
    if (std::any_of(op->outputs.begin(), op->outputs.end(), head) &&
        std::none_of(op->outputs.begin(), op->outputs.end(), needed)) {
      continue;
    }
    for (const uint32_t v : op->inputs) wanted[v] = true;
    kept.push_back(std::move(*op));
  }
  graph.ops.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
  graph.results.assign(results.begin(), results.end());
  return graph;
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
  b.sample_rows = n.sample_rows == 0 ? 0 : bucket_size(n.sample_rows, pool.seqs);
  b.context = bucket_size(std::max(n.context, kSmallestContextBucket), pool.context);
  if (n.rows == n.seqs) b.flags |= SWY_BUCKET_DECODE;
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
  if (rule.op != "range" && find_op(std::string_view(rule.op)) == nullptr) {
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

  for (const VariantRule& rule : p.variants_) SWY_TRY(check_variant(rule, p.devices_));
  SWY_LET(p.state_device_, state_homes(p.graph_, p.devices_, p.policy_, p.variants_, pool, max_rows, p.cancelled_));
  return p;
}

Result<Plan> Planner::plan(const swy_bucket& bucket, HeadLists head_lists) const {
  std::vector<uint32_t> results = graph_.results;
  if (bucket.sample_rows == 0) {
    std::erase_if(results, [&](uint32_t v) { return graph_.values[v].rows == SWY_ROWS_SAMPLE; });
  }
  return plan(bucket, results, head_lists);
}

Result<Plan> Planner::plan(const swy_bucket& bucket, std::span<const uint32_t> results, HeadLists head_lists) const {
  const Graph graph = graph_for(graph_, results);
  SWY_LET(Cover cover, cover_graph(graph, devices_, policy_, variants_, state_device_, bucket, cancelled_));
  Plan plan;
  plan.bucket = bucket;
  plan.head_lists = head_lists;
  plan.state_device = state_device_;
  for (const PlanDevice& d : devices_) plan.device_names.push_back(d.name);
  const Matcher matcher(devices_, variants_, bucket);
  SWY_TRY(emit_nodes(std::move(cover), devices_, matcher, cancelled_, plan));
  SWY_TRY(place_values(devices_, plan));
  return plan;
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
