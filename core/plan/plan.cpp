// SPDX-License-Identifier: Apache-2.0
#include "core/plan/plan.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "core/plan/cover.h"
#include "core/plan/emit.h"
#include "core/program/op_names.h"

namespace switchyard {
namespace {

// Every bucket that a step within the pool can have, as far as operations on states can distinguish them.
std::vector<swy_bucket> buckets_of(const swy_bucket& pool, uint32_t max_rows) {
  std::vector<uint32_t> contexts;
  for (uint32_t c = std::min(kSmallestContextBucket, pool.context); c < pool.context;
       c = bucket_size(c + 1, pool.context)) {
    contexts.push_back(c);
  }
  contexts.push_back(pool.context);
  std::vector<swy_bucket> all;
  for (uint32_t rows = 1;; rows = bucket_size(rows + 1, max_rows)) {
    for (const uint32_t context : contexts) {
      swy_bucket b = pool;
      b.rows = rows;
      b.logit_rows = b.sample_rows = 1;
      b.context = context;
      if (rows > 1) {  // a part of one prompt
        b.seqs = 1;
        b.flags = pool.flags & ~static_cast<uint32_t>(SWY_BUCKET_DECODE);
        all.push_back(b);
      }
      if (rows > bucket_size(pool.seqs, max_rows)) continue;
      b.seqs = std::min(rows, std::max(pool.seqs, 1u));
      b.flags = pool.flags | SWY_BUCKET_DECODE;
      all.push_back(b);
    }
    if (rows >= max_rows) return all;
  }
}

// The best device, in the policy's order, that can run all of `ops` in all buckets.
Result<uint32_t> state_home(Graph& graph, const std::vector<const GraphOp*>& ops,
                            const std::vector<PlanDevice>& devices, const PlanPolicy& policy,
                            const std::vector<VariantRule>& variants, const std::vector<swy_bucket>& buckets) {
  std::vector<uint32_t> able;
  std::vector<Considered> considered;
  bool first = true;
  const GraphOp* op = ops.front();  // the one that the last device fell out at
  for (const GraphOp* each : ops) {
    for (const swy_bucket& bucket : buckets) {
      const Matcher matcher(devices, variants, bucket);
      const std::vector<uint32_t> now = devices_for(graph, *each, devices, policy, matcher, considered);
      if (first) {
        able = now;
        first = false;
      } else {
        std::erase_if(able, [&](uint32_t d) { return std::find(now.begin(), now.end(), d) == now.end(); });
      }
      if (able.empty()) break;
    }
    op = each;
    if (able.empty()) break;
  }
  if (!able.empty()) return able.front();
  std::string reasons;
  for (const Considered& c : considered) {
    const std::string reason = fmt::format("{}{}{}: {}", c.device, c.kernel.empty() ? "" : " ", c.kernel, c.reason);
    if (c.accepted || reasons.find(reason) != std::string::npos) continue;  // another step size gave the same reason
    reasons += (reasons.empty() ? "" : "; ") + reason;
  }
  return error(Code::unsupported, "no chosen backend can run {} ({}) in every step size: {}", op->name, op_name(op->id),
               reasons.empty() ? "no device" : reasons);
}

// The operations on each state; states that share an operation are grouped.
std::vector<std::vector<const GraphOp*>> ops_by_state(const Graph& graph) {
  std::vector<uint32_t> group(graph.states.size());
  for (uint32_t s = 0; s < group.size(); ++s) group[s] = s;
  for (const GraphOp& op : graph.ops) {
    for (const uint32_t s : op.states) {
      std::replace(group.begin(), group.end(), uint32_t{group[s]}, uint32_t{group[op.states[0]]});
    }
  }
  std::vector<std::vector<const GraphOp*>> ops(graph.states.size());
  for (const GraphOp& op : graph.ops) {
    for (uint32_t s = 0; !op.states.empty() && s < group.size(); ++s) {
      if (group[s] == group[op.states[0]]) ops[s].push_back(&op);
    }
  }
  return ops;
}

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
    return error(Code::usage, "unknown operation '{}' in variant rule '{}'; see switchyard backends for the names",
                 rule.op, text);
  }
  return rule;
}

Result<Planner> Planner::create(Graph graph, std::vector<PlanDevice> devices, PlanPolicy policy,
                                std::vector<VariantRule> variants, const swy_bucket& pool, uint32_t max_rows) {
  Planner p;
  p.graph_ = std::move(graph);
  p.devices_ = std::move(devices);
  p.policy_ = std::move(policy);
  p.variants_ = std::move(variants);
  p.state_device_.assign(p.graph_.states.size(), 0);

  for (const VariantRule& rule : p.variants_) SWY_TRY(check_variant(rule, p.devices_));
  const std::vector<swy_bucket> buckets = buckets_of(pool, max_rows);
  const auto ops = ops_by_state(p.graph_);
  for (size_t s = 0; s < ops.size(); ++s) {
    if (ops[s].empty()) continue;
    SWY_LET(p.state_device_[s], state_home(p.graph_, ops[s], p.devices_, p.policy_, p.variants_, buckets));
  }
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
  SWY_LET(Cover cover, cover_graph(graph, devices_, policy_, variants_, state_device_, bucket));
  Plan plan;
  plan.bucket = bucket;
  plan.head_lists = head_lists;
  plan.state_device = state_device_;
  for (const PlanDevice& d : devices_) plan.device_names.push_back(d.name);
  const Matcher matcher(devices_, variants_, bucket);
  SWY_TRY(emit_nodes(std::move(cover), devices_, matcher, plan));
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
