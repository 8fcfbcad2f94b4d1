#include "core/plan/plan.h"

#include <algorithm>

#include "core/plan/cover.h"
#include "core/plan/emit.h"
#include "core/program/op_names.h"

namespace switchyard {
namespace {

// The first device, in the policy's order, that can run `op` both for one row and for the largest step.
Result<uint32_t> state_home(const Graph& graph, const GraphOp& op, const std::vector<PlanDevice>& devices,
                            const PlanPolicy& policy, const std::vector<VariantRule>& variants,
                            const std::vector<swy_bucket>& extremes) {
  std::vector<uint32_t> able;
  std::vector<Considered> considered;
  for (const swy_bucket& bucket : extremes) {
    const Matcher matcher(devices, variants, bucket);
    const std::vector<uint32_t> now = devices_for(graph, op, devices, policy, matcher, considered);
    if (&bucket == extremes.data()) {
      able = now;
    } else {
      std::erase_if(able, [&](uint32_t d) { return std::find(now.begin(), now.end(), d) == now.end(); });
    }
  }
  if (!able.empty()) return able.front();
  std::string reasons;
  for (const Considered& c : considered) {
    const std::string reason = fmt::format("{}{}{}: {}", c.device, c.kernel.empty() ? "" : " ", c.kernel, c.reason);
    if (c.accepted || reasons.find(reason) != std::string::npos) continue;  // the other step size said it, too
    reasons += (reasons.empty() ? "" : "; ") + reason;
  }
  return error(Code::unsupported, "no chosen backend can run {} ({}) in every step size: {}", op.name, op_name(op.id),
               reasons.empty() ? "no device" : reasons);
}

}  // namespace

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
  if (find_op(std::string_view(rule.op)) == nullptr) {
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

  swy_bucket small = pool, large = pool;
  small.rows = small.seqs = small.logit_rows = small.sample_rows = 1;
  small.flags |= SWY_BUCKET_DECODE;
  large.rows = max_rows;
  large.seqs = large.logit_rows = large.sample_rows = 1;
  large.flags &= ~static_cast<uint32_t>(SWY_BUCKET_DECODE);
  for (const GraphOp& op : p.graph_.ops) {
    if (op.states.empty()) continue;
    SWY_LET(const uint32_t home, state_home(p.graph_, op, p.devices_, p.policy_, p.variants_, {small, large}));
    for (const uint32_t s : op.states) p.state_device_[s] = home;
  }
  return p;
}

Result<Plan> Planner::plan(const swy_bucket& bucket) const {
  SWY_LET(Cover cover, cover_graph(graph_, devices_, policy_, variants_, state_device_, bucket));
  Plan plan;
  plan.bucket = bucket;
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
