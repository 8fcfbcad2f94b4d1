// SPDX-License-Identifier: Apache-2.0
#include "core/plan/emit.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/plan/range_view.h"
#include "core/plugin/buffer.h"
#include "core/plugin/call.h"
#include "core/program/op_names.h"

namespace switchyard {
namespace {

class Emitter {
 public:
  Emitter(Graph graph, const std::vector<PlanDevice>& devices, const Matcher& matcher, RangeCodes& codes, Plan& plan,
          std::vector<Refusal>& refused)
      : devices_(devices), matcher_(matcher), codes_(codes), plan_(plan), refused_(refused) {
    plan_.graph = std::move(graph);
    for (const GraphValue& v : plan_.graph.values) declared_.push_back(v.dtype);
    result_.resize(declared_.size());
    for (const uint32_t v : plan_.graph.results) result_[v] = true;
    inputs_.insert(plan_.graph.inputs.begin(), plan_.graph.inputs.end());
  }

  Status run(const std::vector<Choice>& choices, const CancelCheck& cancelled) {
    const auto going_on = [&] { return check_cancelled(cancelled, "a step was planned"); };
    for (const Choice& choice : choices) {
      SWY_TRY(going_on());
      decision_ = choice.begin;
      for (const PlanNode& node : choice.nodes) {
        const auto is_head = [](const GraphOp& op) {
          return op.id == SWY_OP_LM_HEAD || op.id == SWY_OP_LM_HEAD_SAMPLE;
        };
        head_ = head_ || is_head(node.op) || is_head(plan_.graph.ops[choice.begin]) ||
                std::any_of(node.range_ops.begin(), node.range_ops.end(), is_head);
        SWY_TRY(emit(node));
      }
    }
    SWY_TRY(going_on());
    make_segments();
    SWY_TRY(going_on());
    connect_segments();
    return going_on();
  }

 private:
  // Brings `value` to `device` in type `dtype`; returns the value to read.
  Result<uint32_t> fetch(uint32_t value, uint32_t device, swy_dtype dtype) {
    if (inputs_.contains(value)) home_.try_emplace(value, device);  // the host writes it where it is first read
    if (home_.find(value) == home_.end()) return error(Code::internal, "{} is read before it is written", name(value));
    if (plan_.graph.values[value].dtype != dtype) {
      SWY_LET(value, converted(value, device, dtype));
    }
    bring(value, device);
    return value;
  }

  // Copies `value` to `device`, once.
  void bring(uint32_t value, uint32_t device) {
    const uint32_t origin = home_.at(value);
    if (origin == device || !here_.insert({value, device}).second) return;
    PlanNode copy;
    copy.op.name = "copy " + name(value);
    copy.op.inputs = copy.op.outputs = {value};
    copy.device = device;
    copy.copy_from = static_cast<int>(origin);
    moved(fmt::format("copy {} from {} to {}, {} bytes", name(value), devices_[origin].name, devices_[device].name,
                      value_bytes(plan_.graph.values[value], plan_.bucket)));
    add(std::move(copy));
  }

  // `value` in another type, made once, for a reader on `device`.
  Result<uint32_t> converted(uint32_t value, uint32_t device, swy_dtype dtype) {
    const auto known = casts_.find(value);
    if (known != casts_.end()) return known->second;
    const uint32_t to = add_value(value, dtype);
    // On the side of a copy where the cast makes the copy smaller; otherwise on any device with a cast kernel.
    const uint32_t origin = home_.at(value);
    std::vector<uint32_t> makers = {origin, device};
    if (dtype == SWY_F32) std::swap(makers[0], makers[1]);
    for (uint32_t d = 0; d < devices_.size(); ++d) makers.push_back(d);
    for (const uint32_t maker : makers) {
      SWY_LET(const bool made, cast(value, to, maker));
      if (!made) continue;
      casts_[value] = to;
      return to;
    }
    return error(Code::unsupported, "no chosen backend has a cast kernel, and {} of {} is needed as {} on {}",
                 name(value), devices_[origin].name, dtype_name(dtype), devices_[device].name);
  }

  // A value like `value` in another type.
  uint32_t add_value(uint32_t value, swy_dtype dtype) {
    GraphValue to = plan_.graph.values[value];
    to.dtype = dtype;
    to.name = fmt::format("{}:{}", to.name, dtype_name(dtype));
    plan_.graph.values.push_back(std::move(to));
    declared_.push_back(dtype);
    return static_cast<uint32_t>(plan_.graph.values.size() - 1);
  }

  // Adds the cast of `from` into `to` on `device`; false if that has no kernel for it.
  Result<bool> cast(uint32_t from, uint32_t to, uint32_t device) {
    PlanNode node;
    node.op.name = "cast " + name(to);
    node.op.id = SWY_OP_CAST;
    node.op.inputs = {from};
    node.op.outputs = {to};
    node.device = device;
    std::vector<Considered> seen;
    const auto match = matcher_.best(plan_.graph, node.op, device, "cast", seen);
    if (!match) return false;
    node.kernel = match->kernel;
    node.cost_us = match->cost_us;
    bring(from, device);
    SWY_TRY(prepare(node));
    moved(fmt::format("cast {} from {} to {} on {} {}", name(from), dtype_name(plan_.graph.values[from].dtype),
                      dtype_name(plan_.graph.values[to].dtype), devices_[device].name, match->kernel->name));
    add(std::move(node));
    home_[to] = device;
    return true;
  }

  // The types in which a node takes its inputs. A kernel that accepts a value's type gets the value as it is; otherwise
  // the kernel's choice for the program's type holds. A range is always claimed with the program's types.
  std::vector<swy_dtype> wanted(const PlanNode& node) const {
    std::vector<swy_dtype> types;
    if (node.kernel == nullptr) {
      for (const uint32_t v : node.op.inputs) types.push_back(declared_[v]);
      return types;
    }
    OpView asked(plan_.graph, node.op, plan_.bucket, declared_), now(plan_.graph, node.op, plan_.bucket);
    set_kernel_dtypes(*node.kernel, asked);
    set_kernel_dtypes(*node.kernel, now);
    bool same = true;
    for (size_t i = 0; i < now.inputs().size(); ++i) same = same && now.inputs()[i].dtype == asked.inputs()[i].dtype;
    const bool as_is = same || matcher_.supports(node.device, *node.kernel, now);
    for (const swy_tensor& t : (as_is ? now : asked).inputs()) types.push_back(t.dtype);
    return types;
  }

  Status emit(PlanNode node) {
    const std::vector<swy_dtype> types = wanted(node);
    std::map<uint32_t, uint32_t> fetched;  // the program's values → what is read instead
    for (size_t i = 0; i < node.op.inputs.size(); ++i) {
      const uint32_t program_value = node.op.inputs[i];
      SWY_LET(node.op.inputs[i], fetch(program_value, node.device, types[i]));
      if (!node.range_ops.empty()) fetched[program_value] = node.op.inputs[i];
    }
    for (GraphOp& op : node.range_ops) {
      for (uint32_t& v : op.inputs) {
        if (const auto at = fetched.find(v); at != fetched.end()) v = at->second;
      }
    }
    std::vector<std::pair<uint32_t, uint32_t>> results;  // the kernel's output → the result in the program's type
    if (node.kernel != nullptr) {
      OpView view(plan_.graph, node.op, plan_.bucket);
      set_kernel_dtypes(*node.kernel, view);
      for (size_t i = 0; i < node.op.outputs.size(); ++i) {
        uint32_t& v = node.op.outputs[i];
        const swy_dtype made = view.outputs()[i].dtype;
        if (made != plan_.graph.values[v].dtype && is_result(v)) {
          const uint32_t own = add_value(v, made);
          results.emplace_back(own, v);
          v = own;
        }
        plan_.graph.values[v].dtype = made;
      }
    }
    for (const uint32_t v : node.op.outputs) home_[v] = node.device;
    const uint32_t device = node.device;
    SWY_TRY(prepare(node));
    add(std::move(node));
    for (const auto& [made, result] : results) SWY_TRY(convert_result(made, result, device));
    return {};
  }

  // The host reads results in the type that the program declares.
  Status convert_result(uint32_t made, uint32_t result, uint32_t device) {
    std::vector<uint32_t> makers = {device};
    for (uint32_t d = 0; d < devices_.size(); ++d) makers.push_back(d);
    for (const uint32_t maker : makers) {
      SWY_LET(const bool done, cast(made, result, maker));
      if (done) return {};
    }
    return error(Code::unsupported, "no chosen backend has a cast kernel, and {} makes {} as {}", devices_[device].name,
                 name(result), dtype_name(plan_.graph.values[made].dtype));
  }

  bool is_result(uint32_t value) const { return value < result_.size() && result_[value]; }

  void add(PlanNode node) {
    for (const uint32_t w : node.op.weights) {
      const GraphTensor& decoded = plan_.graph.weights[w];
      if (decoded.encoded == GraphTensor::kNone) continue;
      const swy_encoding& from = *plan_.graph.weights[decoded.encoded].desc.encoding;
      moved(fmt::format("decode {} from {} to {} at load", decoded.name, from.name, dtype_name(decoded.desc.dtype)));
    }
    node.head = head_;
    plan_.nodes.push_back(std::move(node));
  }

  void moved(std::string what) { plan_.decisions[decision_].moves.push_back(std::move(what)); }

  Status prepare(PlanNode& node) {
    const PlanDevice& device = devices_[node.device];
    PluginError e;
    node.prepared.struct_size = sizeof node.prepared;
    swy_status status = SWY_OK;
    if (node.range != nullptr) {
      const RangeView range(plan_.graph, node.range_ops, plan_.bucket, node.range_kept);
      node.range_layouts.assign(node.op.weights.size(), 0);
      status = RangeBackend(device).prepare(range, plan_.bucket, codes_, &node.range_code, node.range_layouts,
                                            &node.prepared.workspace_bytes, e.get());
    } else if (node.kernel->prepare != nullptr) {
      const OpView view(plan_.graph, node.op, plan_.bucket);
      const auto ask = [&](swy_error* x) {
        return node.kernel->prepare(device.handle, node.kernel, view.get(), &plan_.bucket, &node.prepared, x);
      };
      status = call_plugin(device.label, "prepare", node.kernel->name, e.get(), ask);
    }
    if (status == SWY_OK) return {};
    if (status != SWY_UNSUPPORTED) return e.status(status, device.name + ": preparing " + node.op.name);
    add_refusals(node, plan_.bucket, e.status(status, "refused in prepare").message(), refused_);
    return {};
  }

  void make_segments() {
    for (uint32_t i = 0; i < plan_.nodes.size(); ++i) {
      const PlanNode& n = plan_.nodes[i];
      const bool copy = n.copy_from >= 0, head = n.head && plan_.head_lists == HeadLists::apart;
      auto& segments = plan_.segments;
      if (!copy && !segments.empty() && !segments.back().copy && segments.back().device == n.device &&
          segments.back().head == head) {
        segments.back().end = i + 1;
      } else {
        segments.push_back({i, i + 1, n.device, head, copy});
      }
    }
  }

  // A list runs after the earlier lists of its device anyway; for everything else that it reads it waits.
  void connect_segments() {
    auto& segments = plan_.segments;
    std::map<std::pair<uint32_t, uint32_t>, uint32_t> writer;   // (value, device) → segment
    std::vector<uint32_t> waiter(segments.size(), UINT32_MAX);  // per segment: the last one that waits for it
    for (uint32_t s = 0; s < segments.size(); ++s) {
      PlanSegment& segment = segments[s];
      for (uint32_t i = segment.begin; i < segment.end; ++i) {
        const PlanNode& n = plan_.nodes[i];
        const uint32_t reads_on = segment.copy ? static_cast<uint32_t>(n.copy_from) : n.device;
        for (const uint32_t v : n.op.inputs) {
          const auto written = writer.find({v, reads_on});
          if (written == writer.end()) continue;  // by the host
          const uint32_t from = written->second;
          const bool in_order = !segment.copy && !segments[from].copy && segments[from].device == segment.device;
          if (in_order || waiter[from] == s) continue;
          waiter[from] = s;
          segment.waits.push_back(from);
          segments[from].signals = true;
        }
        for (const uint32_t v : n.op.outputs) writer[{v, n.device}] = s;
      }
    }
  }

  const std::string& name(uint32_t value) const { return plan_.graph.values[value].name; }

  const std::vector<PlanDevice>& devices_;
  const Matcher& matcher_;
  RangeCodes& codes_;
  Plan& plan_;
  std::vector<Refusal>& refused_;
  size_t decision_ = 0;                           // of the node being emitted
  bool head_ = false;                             // the head has begun
  std::vector<swy_dtype> declared_;               // per value: the type in the program
  std::vector<bool> result_;                      // per value of the program: the host reads it
  std::set<uint32_t> inputs_;                     // values that the host writes
  std::map<uint32_t, uint32_t> home_;             // value → the device that makes it
  std::set<std::pair<uint32_t, uint32_t>> here_;  // (value, device): copied already
  std::map<uint32_t, uint32_t> casts_;            // value → itself in the other type
};

}  // namespace

Status emit_nodes(Cover cover, const std::vector<PlanDevice>& devices, const Matcher& matcher, RangeCodes& codes,
                  const CancelCheck& cancelled, Plan& plan, std::vector<Refusal>& refused) {
  plan.decisions = std::move(cover.decisions);
  plan.warnings = std::move(cover.warnings);
  return Emitter(std::move(cover.graph), devices, matcher, codes, plan, refused).run(cover.choices, cancelled);
}

}  // namespace switchyard
