#include "core/plan/cover.h"

#include <algorithm>
#include <array>
#include <limits>

#include "core/plan/pieces.h"
#include "core/program/op_names.h"

namespace switchyard {
namespace {

constexpr double kCopyMicroseconds = 20;  // latency of a hop between devices
constexpr double kCopyBytesPerMicrosecond = 10e3;

// Collects choices for every position of the graph.
class Chooser {
 public:
  Chooser(const Graph& graph, const std::vector<PlanDevice>& devices, const PlanPolicy& policy, const Matcher& matcher,
          const std::vector<uint32_t>& state_device)
      : devices_(devices),
        policy_(policy),
        matcher_(matcher),
        state_device_(state_device),
        op_count_(graph.ops.size()) {
    cover_.graph = graph;
    by_begin_.resize(op_count_);
    for (const GraphOp& op : graph.ops) cover_.decisions.push_back({op.name, op_name(op.id), "", "", {}});
  }

  Result<Cover> run() {
    for (size_t i = 0; i < op_count_; ++i) SWY_TRY(allow(i));
    for (size_t i = 0; i < op_count_; ++i) {
      add_single(i);
      add_fused(i);
      add_ranges(i);
    }
    SWY_TRY(search());
    return std::move(cover_);
  }

 private:
  const GraphOp& op(size_t i) const { return cover_.graph.ops[i]; }
  std::vector<Considered>& considered(size_t i) { return cover_.decisions[i].considered; }

  // Which devices may run ops[i]: that of its state; under an ordered policy the first that can; else all that can, the
  // last resort only when it is alone.
  Status allow(size_t i) {
    std::vector<uint32_t> able = devices_for(cover_.graph, op(i), devices_, policy_, matcher_, considered(i));
    if (!op(i).states.empty()) {
      const uint32_t home = state_device_[op(i).states[0]];
      std::erase_if(able, [&](uint32_t d) { return d != home; });
    } else if (policy_.ordered && able.size() > 1) {
      able.erase(able.begin() + 1, able.end());
    }
    if (!policy_.ordered && !able.empty() &&
        std::all_of(able.begin(), able.end(), [&](uint32_t d) { return devices_[d].backend == policy_.last_resort; })) {
      for (const PlanDevice& d : devices_) {
        if (d.backend == policy_.last_resort) continue;
        cover_.warnings.push_back(fmt::format("{} runs on {}, which is slow: no other backend supports it", op(i).name,
                                              devices_[able[0]].name));
        break;
      }
    }
    allowed_.push_back(std::move(able));
    return {};
  }

  bool is_allowed(size_t i, uint32_t device) const {
    return std::find(allowed_[i].begin(), allowed_[i].end(), device) != allowed_[i].end();
  }

  void add(Choice choice) { by_begin_[choice.begin].push_back(std::move(choice)); }

  static PlanNode node(const GraphOp& op, uint32_t device, const Match& match) {
    PlanNode n;
    n.op = op;
    n.device = device;
    n.kernel = match.kernel;
    n.cost_us = match.cost_us;
    return n;
  }

  void add_single(size_t i) {
    std::vector<Considered> seen;  // `allow` has recorded these answers
    for (const uint32_t d : allowed_[i]) {
      if (const auto match = matcher_.best(cover_.graph, op(i), d, "composite", seen)) {
        Choice c{static_cast<uint32_t>(i), 1, d, match->cost_us, "composite", {}};
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
    const size_t values = cover_.graph.values.size();
    const std::vector<GraphOp> pieces = decompose(cover_.graph, op(i), matcher_.bucket());
    Choice c{static_cast<uint32_t>(i), 1, 0, 0, candidates.size() == 1 ? "decomposed" : "decomposed, mixed", {}};
    for (const GraphOp& piece : pieces) {
      std::optional<Match> best;
      uint32_t device = 0;
      for (const uint32_t d : candidates) {
        if (!piece.states.empty() && state_device_[piece.states[0]] != d) continue;
        const auto match = matcher_.best(cover_.graph, piece, d, "piece " + op_name(piece.id), considered(i));
        const bool better = match && (!best || (!policy_.ordered && match->cost_us < best->cost_us));
        if (better) {
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

  void add_fused(size_t i) {
    const auto fused = fuse(cover_.graph, i);
    if (!fused) return;
    for (const uint32_t d : allowed_[i]) {
      if (!is_allowed(i + 1, d)) continue;
      if (const auto match = matcher_.best(cover_.graph, *fused, d, "fused with " + op(i + 1).name, considered(i))) {
        Choice c{static_cast<uint32_t>(i), 2, d, match->cost_us, "fused", {}};
        c.nodes.push_back(node(*fused, d, *match));
        add(std::move(c));
      }
    }
  }

  // The longest stretch from ops[i] in which every operation may run on the device.
  size_t allowed_stretch(size_t i, uint32_t device) const {
    size_t end = i;
    while (end < op_count_ && is_allowed(end, device) && op(end).id != SWY_OP_LM_HEAD) ++end;
    return end - i;
  }

  void add_ranges(size_t i) {
    for (uint32_t d = 0; d < devices_.size(); ++d) {
      const swy_range* range = devices_[d].range();
      if (range == nullptr || range->claim == nullptr) continue;
      const size_t n = allowed_stretch(i, d);
      if (n == 0) continue;
      std::vector<std::unique_ptr<OpView>> views;
      std::vector<const swy_op*> ops;
      for (size_t k = i; k < i + n; ++k) {
        views.push_back(std::make_unique<OpView>(cover_.graph, op(k), matcher_.bucket()));
        ops.push_back(views.back()->get());
      }
      std::array<char, 512> text{};
      swy_error error{sizeof(swy_error), static_cast<uint32_t>(text.size()), text.data(), 0, 0};
      uint32_t accepted = 0;
      double cost = 0;
      const swy_status status = range->claim(devices_[d].handle, ops.data(), static_cast<uint32_t>(n),
                                             &matcher_.bucket(), &accepted, &cost, &error);
      if (status != SWY_OK || accepted < 2 || accepted > n) {
        if (text[0] != '\0') considered(i).push_back({devices_[d].name, SWY_EXT_RANGE, "range", false, 0, text.data()});
        continue;
      }
      considered(i).push_back({devices_[d].name, SWY_EXT_RANGE, fmt::format("range of {}", accepted), true, cost, ""});
      add(range_choice(i, accepted, d, cost));
    }
  }

  Choice range_choice(size_t i, uint32_t count, uint32_t device, double cost) const {
    Choice c{static_cast<uint32_t>(i), count, device, cost, fmt::format("range of {}", count), {}};
    PlanNode n;
    n.device = device;
    n.cost_us = cost;
    n.op.name = op(i).name + ".." + op(i + count - 1).name;
    std::vector<uint32_t> made;
    for (size_t k = i; k < i + count; ++k) {
      n.range_ops.push_back(op(k));
      for (const uint32_t v : op(k).inputs) {
        if (std::find(made.begin(), made.end(), v) == made.end()) n.op.inputs.push_back(v);
      }
      made.insert(made.end(), op(k).outputs.begin(), op(k).outputs.end());
      n.op.weights.insert(n.op.weights.end(), op(k).weights.begin(), op(k).weights.end());
      n.op.states.insert(n.op.states.end(), op(k).states.begin(), op(k).states.end());
    }
    n.op.outputs = made;  // all bound, though only those read outside must be written
    c.nodes.push_back(std::move(n));
    return c;
  }

  double hop_us(size_t i) const {
    double bytes = 0;
    for (const uint32_t v : op(i).inputs) {
      bytes += static_cast<double>(value_bytes(cover_.graph.values[v], matcher_.bucket()));
    }
    return kCopyMicroseconds + bytes / kCopyBytesPerMicrosecond;
  }

  // The cheapest sequence of choices, by (position, device of the last node).
  Status search() {
    const double inf = std::numeric_limits<double>::infinity();
    const size_t devices = devices_.size();
    struct Cell {
      double cost;
      const Choice* via;
      size_t from;
    };
    std::vector<Cell> cells((op_count_ + 1) * (devices + 1), Cell{inf, nullptr, 0});
    const auto at = [&](size_t i, size_t d) -> Cell& { return cells[i * (devices + 1) + d]; };
    at(0, devices).cost = 0;  // `devices` stands for "nowhere yet"
    for (size_t i = 0; i < op_count_; ++i) {
      for (size_t from = 0; from <= devices; ++from) {
        if (at(i, from).cost == inf) continue;
        for (const Choice& c : by_begin_[i]) {
          const bool hop = from != devices && c.nodes.front().device != from;
          const double cost = at(i, from).cost + c.cost_us + (hop ? hop_us(i) : 0);
          Cell& to = at(i + c.count, c.device);
          if (cost < to.cost) to = {cost, &c, from};
        }
      }
    }
    size_t d = 0;
    for (size_t k = 1; k < devices; ++k) {
      if (at(op_count_, k).cost < at(op_count_, d).cost) d = k;
    }
    if (devices == 0 || at(op_count_, d).cost == inf) return unsupported();
    for (size_t i = op_count_; i > 0;) {
      const Cell& cell = at(i, d);
      cover_.choices.push_back(*cell.via);
      d = cell.from;
      i = cell.via->begin;
    }
    std::reverse(cover_.choices.begin(), cover_.choices.end());
    for (const Choice& c : cover_.choices) decide(c);
    return {};
  }

  void decide(const Choice& c) {
    std::string names;
    for (const PlanNode& n : c.nodes) {
      names += fmt::format("{}{} {}", names.empty() ? "" : ", ", devices_[n.device].name,
                           n.kernel != nullptr ? n.kernel->name : SWY_EXT_RANGE);
    }
    for (uint32_t k = 0; k < c.count; ++k) {
      cover_.decisions[c.begin + k].chosen = names;
      cover_.decisions[c.begin + k].reason = c.reason;
    }
  }

  // The first operation that nothing can start at or pass over.
  Status unsupported() const {
    for (size_t i = 0; i < op_count_; ++i) {
      if (!by_begin_[i].empty()) continue;
      std::string reasons;
      for (const Considered& c : cover_.decisions[i].considered) {
        if (c.accepted) continue;
        reasons += fmt::format("{}{}{}{}: {}", reasons.empty() ? "" : "; ", c.device, c.kernel.empty() ? "" : " ",
                               c.kernel, c.reason);
      }
      return error(Code::unsupported, "no chosen backend can run {} ({}): {}", op(i).name, op_name(op(i).id),
                   reasons.empty() ? "no device" : reasons);
    }
    return error(Code::unsupported, "no chosen backend can run the whole program; see switchyard plan --explain");
  }

  const std::vector<PlanDevice>& devices_;
  const PlanPolicy& policy_;
  const Matcher& matcher_;
  const std::vector<uint32_t>& state_device_;
  size_t op_count_;
  std::vector<std::vector<uint32_t>> allowed_;  // per op
  std::vector<std::vector<Choice>> by_begin_;
  Cover cover_;
};

}  // namespace

std::vector<uint32_t> devices_for(const Graph& graph, const GraphOp& op, const std::vector<PlanDevice>& devices,
                                  const PlanPolicy& policy, const Matcher& matcher,
                                  std::vector<Considered>& considered) {
  std::vector<std::pair<double, uint32_t>> able;
  for (uint32_t d = 0; d < devices.size(); ++d) {
    if (const auto match = matcher.best(graph, op, d, "composite", considered)) {
      able.emplace_back(match->cost_us, d);
      continue;
    }
    Graph scratch = graph;
    const std::vector<GraphOp> pieces = decompose(scratch, op, matcher.bucket());
    std::vector<Considered> ignored;
    double cost = 0;
    bool all = !pieces.empty();
    for (const GraphOp& piece : pieces) {
      const auto match = matcher.best(scratch, piece, d, "piece", ignored);
      all = all && match.has_value();
      cost += match ? match->cost_us : 0;
    }
    if (all) able.emplace_back(cost, d);
  }
  if (!policy.ordered) {
    const auto last = [&](uint32_t d) { return devices[d].backend == policy.last_resort; };
    const bool others = std::any_of(able.begin(), able.end(), [&](const auto& a) { return !last(a.second); });
    if (others) std::erase_if(able, [&](const auto& a) { return last(a.second); });
    std::stable_sort(able.begin(), able.end());
  }
  std::vector<uint32_t> out;
  for (const auto& [cost, d] : able) out.push_back(d);
  return out;
}

Result<Cover> cover_graph(const Graph& graph, const std::vector<PlanDevice>& devices, const PlanPolicy& policy,
                          const std::vector<VariantRule>& variants, const std::vector<uint32_t>& state_device,
                          const swy_bucket& bucket) {
  const Matcher matcher(devices, variants, bucket);
  return Chooser(graph, devices, policy, matcher, state_device).run();
}

}  // namespace switchyard
