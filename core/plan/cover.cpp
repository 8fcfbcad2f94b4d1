// SPDX-License-Identifier: Apache-2.0
#include "core/plan/cover.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>

#include "core/plan/claim.h"
#include "core/plan/pieces.h"
#include "core/plan/range_view.h"
#include "core/plan/search.h"
#include "core/program/op_names.h"

namespace switchyard {
namespace {

constexpr double kCopyMicroseconds = 20;  // latency of a hop between devices
constexpr double kCopyBytesPerMicrosecond = 10e3;
// Operations that swy.range/1 is offered at a time: from each, as many again.
constexpr size_t kMaxRange = 1024;

// Collects choices for every position of the graph.
class Chooser {
 public:
  Chooser(const Graph& graph, const std::vector<PlanDevice>& devices, const PlanPolicy& policy, const Matcher& matcher,
          const std::vector<uint32_t>& state_device, HeadLists head_lists, const CancelCheck& cancelled,
          std::vector<Refusal>& refused)
      : devices_(devices),
        policy_(policy),
        matcher_(matcher),
        state_device_(state_device),
        head_lists_(head_lists),
        cancelled_(cancelled),
        op_count_(graph.ops.size()),
        reads_(reads_of(graph)),
        refused_(refused) {
    cover_.graph = graph;
    by_begin_.resize(op_count_);
    for (const GraphOp& op : graph.ops) cover_.decisions.push_back({op.name, op_kind(op), "", "", "", {}, {}});
  }

  Result<Cover> run() {
    for (size_t i = 0; i < op_count_; ++i) {
      SWY_TRY(check_cancelled(cancelled_, kPlanning));
      allow(i);
    }
    offer_ranges();
    for (size_t i = 0; i < op_count_; ++i) {
      SWY_TRY(check_cancelled(cancelled_, kPlanning));
      add_single(i);
      add_fused(i);
      add_ranges(i);
    }
    SWY_TRY(search());
    return std::move(cover_);
  }

 private:
  static constexpr char kPlanning[] = "a step was planned";

  const GraphOp& op(size_t i) const { return cover_.graph.ops[i]; }
  std::vector<Considered>& considered(size_t i) { return cover_.decisions[i].considered; }

  // Which devices run ops[i] alone: that of its state; with an ordered policy the first that can; otherwise all that
  // can, the last resort only if no other can.
  void allow(size_t i) {
    std::vector<uint32_t> able = devices_for(cover_.graph, op(i), devices_, policy_, matcher_, {}, considered(i));
    if (!op(i).states.empty()) {
      std::erase_if(able, [&](uint32_t d) { return d != state_device_[op(i).states[0]]; });
    } else if (policy_.ordered && able.size() > 1) {
      able.erase(able.begin() + 1, able.end());
    } else if (!able.empty() && !is_last_resort(able.front())) {
      std::erase_if(able, [&](uint32_t d) { return is_last_resort(d); });
    }
    allowed_.push_back(std::move(able));
  }

  bool is_last_resort(uint32_t device) const {
    return !policy_.ordered && devices_[device].backend == policy_.last_resort;
  }

  // Whether a device may run ops[i] as part of something larger, even if it cannot run it alone. It must not come later
  // in the list than the device that would run it alone, and states must not move.
  bool may_join(size_t i, uint32_t device) const {
    if (samples_elsewhere(policy_, op(i), device)) return false;
    if (!op(i).states.empty()) return state_device_[op(i).states[0]] == device;
    const std::vector<uint32_t>& alone = allowed_[i];
    if (alone.empty()) return true;
    return policy_.ordered ? device <= alone.front() : !is_last_resort(device) || is_last_resort(alone.front());
  }

  uint64_t rank(uint32_t device) const { return policy_.ordered ? device : is_last_resort(device) ? 1 : 0; }

  void add(Choice choice) {
    choice.rank = 0;
    for (const PlanNode& n : choice.nodes) choice.rank = std::max(choice.rank, rank(n.device));
    choice.rank *= choice.count;
    by_begin_[choice.begin].push_back(std::move(choice));
  }

  static PlanNode node(const GraphOp& op, uint32_t device, const Match& match) {
    PlanNode n;
    n.op = op;
    if (!match.weights.empty()) n.op.weights = match.weights;
    n.device = device;
    n.kernel = match.kernel;
    n.cost_us = match.cost_us;
    n.source = match.source;
    return n;
  }

  void add_single(size_t i) {
    std::vector<Considered> seen;  // `allow` has recorded these answers
    for (const uint32_t d : allowed_[i]) {
      if (const auto match = matcher_.best(cover_.graph, op(i), d, "composite", seen)) {
        Choice c{static_cast<uint32_t>(i), 1, d, match->cost_us, false, 0, "composite", {}};
        c.nodes.push_back(node(op(i), d, *match));
        add(std::move(c));
      } else {
        add_pieces(i, {d});
      }
    }
    if (allowed_[i].empty()) add_pieces(i, order());
  }

  std::vector<uint32_t> order() const {
    std::vector<uint32_t> all(devices_.size());
    for (uint32_t d = 0; d < all.size(); ++d) all[d] = d;
    return all;
  }

  // A decomposition whose pieces run on the first of `candidates` that can (or on the cheapest, if cost decides).
  void add_pieces(size_t i, const std::vector<uint32_t>& candidates) {
    if (!matcher_.forced(op_kind(op(i))).empty()) return;
    const size_t values = cover_.graph.values.size();
    const std::vector<GraphOp> pieces = decompose(cover_.graph, op(i), matcher_.bucket());
    Choice c{static_cast<uint32_t>(i), 1, 0, 0, false, 0, "", {}};
    c.reason = candidates.size() == 1 ? "decomposed" : "decomposed, mixed";
    for (const GraphOp& piece : pieces) {
      std::optional<Match> best;
      uint32_t device = 0;
      const auto order = [&](uint32_t d, const Match& m) {
        return std::pair(rank(d), policy_.ordered ? 0.0 : m.cost_us);
      };
      for (const uint32_t d : candidates) {
        if (!piece.states.empty() && state_device_[piece.states[0]] != d) continue;
        const auto match = matcher_.best(cover_.graph, piece, d, "piece " + op_kind(piece), considered(i));
        if (match && (!best || order(d, *match) < order(device, *best))) {
          best = match;
          device = d;
        }
      }
      if (!best) {
        cover_.graph.values.resize(values);
        return;
      }
      c.nodes.push_back(node(piece, device, *best));
      c.device = device;
      c.cost_us += best->cost_us;
    }
    if (!c.nodes.empty()) add(std::move(c));
  }

  // Why ops[begin .. begin + count) cannot be run as one by a device that could; empty: they can.
  std::string kept_apart(size_t begin, size_t count) const {
    for (size_t k = begin; k < begin + count; ++k) {
      const std::string kernel = matcher_.forced(op_kind(op(k)));
      if (!kernel.empty()) return fmt::format("--variant forces {} for {}", kernel, op(k).name);
    }
    return {};
  }

  void add_fused(size_t i) {
    const auto fused = fuse(cover_.graph, reads_, i);
    if (!fused) return;
    const bool forced = !matcher_.forced(op_name(fused->id)).empty();
    const std::string as = "fused with " + op(i + 1).name;
    for (uint32_t d = 0; d < devices_.size(); ++d) {
      if (samples_elsewhere(policy_, *fused, d)) continue;
      if (!forced && !(may_join(i, d) && may_join(i + 1, d))) continue;
      const auto match = matcher_.best(cover_.graph, *fused, d, as, considered(i));
      if (!match) continue;
      if (const std::string reason = kept_apart(i, 2); !reason.empty()) {
        considered(i).push_back({devices_[d].name, match->kernel->name, as, false, 0, reason});
        continue;
      }
      Choice c{static_cast<uint32_t>(i), 2, d, match->cost_us, forced, 0, "fused", {}};
      c.nodes.push_back(node(*fused, d, *match));
      add(std::move(c));
    }
  }

  // The operations offered for ranges. An operation's description is the same wherever a range begins, so each is made
  // once.
  void offer_ranges() {
    for (const PlanDevice& d : devices_) ranges_.emplace_back(d);
    if (std::none_of(ranges_.begin(), ranges_.end(), [](const RangeBackend& r) { return bool{r}; })) return;
    for (size_t i = 0; i < op_count_; ++i) {
      views_.push_back(std::make_unique<OpView>(cover_.graph, op(i), matcher_.bucket()));
      offered_.push_back(views_.back()->get());
    }
    claimable_.assign(devices_.size(), std::vector<size_t>(op_count_ + 1));
    for (size_t i = op_count_; i-- > 0;) {
      if (!kept_apart(i, 1).empty()) continue;
      for (uint32_t d = 0; d < devices_.size(); ++d) {
        if (!ranges_[d] || !may_join(i, d) || !is_known(devices_[d], cover_.graph, op(i))) continue;
        if (!matcher_.dropped(d, ranges_[d].name(), op(i).name).empty()) continue;
        claimable_[d][i] = 1 + (ends_before_head(i) ? 0 : claimable_[d][i + 1]);
      }
    }
    covered_.resize(devices_.size());
  }

  // Whether the head has lists of its own, which begin after ops[i].
  bool ends_before_head(size_t i) const {
    return head_lists_ == HeadLists::apart && i + 1 < op_count_ && op(i + 1).id == SWY_OP_LM_HEAD;
  }

  void add_ranges(size_t i) {
    for (uint32_t d = 0; d < devices_.size() && !claimable_.empty(); ++d) {
      if (!ranges_[d] || i < covered_[d]) continue;
      const size_t n = ranges_[d].compiles() ? claimable_[d][i] : std::min(claimable_[d][i], kMaxRange);
      std::string out = matcher_.dropped(d, ranges_[d].name(), op(i).name);
      if (out.empty() && n < 2) continue;
      if (out.empty()) out = matcher_.ruled_out("range", ranges_[d].name());
      if (!out.empty()) {
        considered(i).push_back({devices_[d].name, ranges_[d].name(), "range", false, 0, std::move(out)});
        continue;
      }
      const auto offered = std::span(std::as_const(offered_)).subspan(i, n);
      const Claim claim = claim_range(cover_.graph, reads_, i, offered, d, ranges_[d], matcher_, considered(i));
      if (claim.count == 0) continue;
      if (ranges_[d].compiles()) covered_[d] = i + claim.count;
      Choice c = range_choice(i, claim.count, d, claim.cost_us);
      c.forced = !matcher_.forced("range").empty();
      add(std::move(c));
    }
  }

  // `fill_range` adds what only a range that is chosen needs: those that begin at each operation overlap.
  Choice range_choice(size_t i, uint32_t count, uint32_t device, double cost) const {
    Choice c{static_cast<uint32_t>(i), count, device, cost, false, 0, fmt::format("range of {}", count), {}};
    PlanNode& n = c.nodes.emplace_back();
    n.device = device;
    n.cost_us = cost;
    n.range = ranges_[device].name();
    n.source = "claimed";
    return c;
  }

  void fill_range(Choice& c) const {
    PlanNode& n = c.nodes.front();
    const auto ops = std::span(std::as_const(cover_.graph.ops)).subspan(c.begin, c.count);
    n.op.name = range_name(ops);
    n.range_kept = kept_values(cover_.graph, reads_, c.begin, c.count);
    std::set<uint32_t> made;
    for (const GraphOp& o : ops) {
      n.range_ops.push_back(o);
      std::copy_if(o.inputs.begin(), o.inputs.end(), std::back_inserter(n.op.inputs),
                   [&](uint32_t v) { return !made.contains(v); });
      made.insert(o.outputs.begin(), o.outputs.end());
      if (!ranges_[c.device].compiles()) {  // all are bound, though only kept ones must be written
        n.op.outputs.insert(n.op.outputs.end(), o.outputs.begin(), o.outputs.end());
      }
      n.op.weights.insert(n.op.weights.end(), o.weights.begin(), o.weights.end());
      n.op.states.insert(n.op.states.end(), o.states.begin(), o.states.end());
    }
    if (ranges_[c.device].compiles()) n.op.outputs = n.range_kept;
  }

  double hop_us(size_t i) const {
    double bytes = 0;
    for (const uint32_t v : op(i).inputs) {
      bytes += static_cast<double>(value_bytes(cover_.graph.values[v], matcher_.bucket()));
    }
    return copy_cost_us(bytes);
  }

  Status search() {
    const auto way = best_way(by_begin_, devices_.size(), [&](size_t i) { return hop_us(i); });
    if (way.empty() && op_count_ != 0) {
      break_promises();
      return unsupported();
    }
    for (const Choice* c : way) {
      decide(*c);
      cover_.choices.push_back(*c);
      if (c->nodes.front().kernel == nullptr) fill_range(cover_.choices.back());
    }
    warn();
    return {};
  }

  // One warning for every kind of operation that only the last resort runs.
  void warn() {
    std::map<std::string, std::vector<std::string>> slow;  // "embedding runs on reference:0" → the operations
    for (const Choice& c : cover_.choices) {
      for (const PlanNode& n : c.nodes) {
        if (!is_last_resort(n.device)) continue;
        for (uint32_t k = c.begin; k < c.begin + c.count; ++k) {
          auto& names = slow[fmt::format("{} runs on {}", op_kind(op(k)), devices_[n.device].name)];
          if (names.empty() || names.back() != op(k).name) names.push_back(op(k).name);
        }
      }
    }
    const bool alone = std::all_of(devices_.begin(), devices_.end(),
                                   [&](const PlanDevice& d) { return d.backend == policy_.last_resort; });
    if (alone && !slow.empty()) {
      cover_.warnings.push_back(
          fmt::format("everything runs on {}, which is slow: no other backend was found", devices_[0].name));
      return;
    }
    for (const auto& [what, names] : slow) {
      cover_.warnings.push_back(
          fmt::format("{}, which is slow: no other backend took {}{}", what, names[0],
                      names.size() == 1 ? "" : fmt::format(" and {} more of its kind", names.size() - 1)));
    }
  }

  void decide(const Choice& c) {
    std::string names, sources;
    for (const PlanNode& n : c.nodes) {
      if (sources.find(n.source) == std::string::npos) sources += (sources.empty() ? "" : ", ") + n.source;
      names += fmt::format("{}{} {}", names.empty() ? "" : ", ", devices_[n.device].name, n.kernel_name());
    }
    for (uint32_t k = 0; k < c.count; ++k) {
      cover_.decisions[c.begin + k].chosen = names;
      cover_.decisions[c.begin + k].reason = c.reason;
      cover_.decisions[c.begin + k].source = sources;
    }
  }

  // The operations that no choice covers.
  std::vector<size_t> uncovered() const {
    std::vector<size_t> left;
    for (size_t i = 0, covered = 0; i < op_count_; ++i) {
      for (const Choice& c : by_begin_[i]) covered = std::max<size_t>(covered, c.begin + c.count);
      if (i >= covered) left.push_back(i);
    }
    return left;
  }

  // A device that keeps states and takes no range with their operations does not keep them from now on.
  void break_promises() {
    for (const size_t i : uncovered()) {
      if (op(i).states.empty() || claimable_.empty()) continue;
      const uint32_t home = state_device_[op(i).states[0]];
      if (!ranges_[home].compiles() || !matcher_.dropped(home, ranges_[home].name(), op(i).name).empty()) continue;
      refused_.push_back(
          {home, ranges_[home].name(), op(i).name, matcher_.bucket(),
           fmt::format("keeps its states, but takes no range with it in a step of {} rows", matcher_.bucket().rows)});
    }
  }

  // Names the first operation that no choice covers.
  Status unsupported() const {
    for (const size_t i : uncovered()) {
      std::string reasons;
      for (const Considered& c : cover_.decisions[i].considered) {
        if (c.accepted) continue;
        reasons += fmt::format("{}{}{}{}: {}", reasons.empty() ? "" : "; ", c.device, c.kernel.empty() ? "" : " ",
                               c.kernel, c.reason);
      }
      return error(Code::unsupported, "no chosen backend can run {} ({}): {}", op(i).name, op_kind(op(i)),
                   reasons.empty() ? "no device" : reasons);
    }
    return error(Code::unsupported,
                 "no choice of fused kernels and ranges covers the whole program; a backend that runs each operation "
                 "alone is missing");
  }

  const std::vector<PlanDevice>& devices_;
  const PlanPolicy& policy_;
  const Matcher& matcher_;
  const std::vector<uint32_t>& state_device_;
  const HeadLists head_lists_;
  const CancelCheck& cancelled_;
  size_t op_count_;
  const std::vector<ValueReads> reads_;         // of the operations as the program has them
  std::vector<std::vector<uint32_t>> allowed_;  // per op
  std::vector<std::vector<Choice>> by_begin_;
  std::vector<RangeBackend> ranges_;            // per device
  std::vector<size_t> covered_;                 // per device: the end of its last range that cannot overlap another
  std::vector<std::unique_ptr<OpView>> views_;  // of all operations, where some device offers ranges
  std::vector<const swy_op*> offered_;
  std::vector<std::vector<size_t>> claimable_;  // per device and op: the longest stretch from there that it may claim
  Cover cover_;
  std::vector<Refusal>& refused_;
};

}  // namespace

Result<Cover> cover_graph(const Graph& graph, const std::vector<PlanDevice>& devices, const PlanPolicy& policy,
                          const Matcher& matcher, const std::vector<uint32_t>& state_device, HeadLists head_lists,
                          const CancelCheck& cancelled, std::vector<Refusal>& refused) {
  return Chooser(graph, devices, policy, matcher, state_device, head_lists, cancelled, refused).run();
}

double copy_cost_us(double bytes) { return kCopyMicroseconds + bytes / kCopyBytesPerMicrosecond; }

}  // namespace switchyard
