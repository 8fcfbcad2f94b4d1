#include "core/plan/emit.h"

#include <algorithm>
#include <array>
#include <map>

namespace switchyard {
namespace {

class Emitter {
 public:
  Emitter(Graph graph, const std::vector<PlanDevice>& devices, const Matcher& matcher, Plan& plan)
      : devices_(devices), matcher_(matcher), plan_(plan) {
    plan_.graph = std::move(graph);
  }

  Status run(const std::vector<Choice>& choices) {
    bool head = false;
    for (const Choice& choice : choices) {
      for (const PlanNode& node : choice.nodes) {
        head = head || node.op.id == SWY_OP_LM_HEAD || node.op.id == SWY_OP_LM_HEAD_SAMPLE ||
               plan_.graph.ops[choice.begin].id == SWY_OP_LM_HEAD;
        SWY_TRY(emit(node, head));
      }
    }
    make_segments();
    return {};
  }

 private:
  // Brings `value` to `device` in type `dtype`; returns the value to read.
  Result<uint32_t> fetch(uint32_t value, uint32_t device, swy_dtype dtype, bool head) {
    const auto origin = home_.find(value);
    if (origin == home_.end()) return error(Code::internal, "{} is read before it is written", name(value));
    if (origin->second != device && here_.insert({{value, device}, true}).second) {
      PlanNode copy;
      copy.op.name = "copy " + name(value);
      copy.op.inputs = copy.op.outputs = {value};
      copy.device = device;
      copy.copy_from = static_cast<int>(origin->second);
      copy.head = head;
      plan_.nodes.push_back(std::move(copy));
    }
    if (plan_.graph.values[value].dtype == dtype) return value;
    const auto known = casts_.find({value, device});
    if (known != casts_.end()) return known->second;
    return cast(value, device, dtype, head);
  }

  Result<uint32_t> cast(uint32_t value, uint32_t device, swy_dtype dtype, bool head) {
    GraphValue to = plan_.graph.values[value];
    to.dtype = dtype;
    to.name += dtype == SWY_BF16 ? ":bf16" : ":f32";
    const auto index = static_cast<uint32_t>(plan_.graph.values.size());
    plan_.graph.values.push_back(std::move(to));
    PlanNode node;
    node.op.name = "cast " + plan_.graph.values[index].name;
    node.op.id = SWY_OP_CAST;
    node.op.inputs = {value};
    node.op.outputs = {index};
    node.device = device;
    node.head = head;
    std::vector<Considered> seen;
    const auto match = matcher_.best(plan_.graph, node.op, device, "cast", seen);
    if (!match) {
      return error(Code::unsupported, "{} has no cast kernel, and {} needs one", devices_[device].name, name(value));
    }
    node.kernel = match->kernel;
    node.cost_us = match->cost_us;
    SWY_TRY(prepare(node));
    plan_.nodes.push_back(std::move(node));
    home_[index] = device;
    casts_[{value, device}] = index;
    return index;
  }

  Status emit(PlanNode node, bool head) {
    node.head = head;
    std::vector<swy_dtype> wanted;
    if (node.kernel != nullptr) {
      OpView view(plan_.graph, node.op, plan_.bucket);
      set_kernel_dtypes(*node.kernel, view);
      for (const swy_tensor& t : view.inputs()) wanted.push_back(t.dtype);
      for (size_t i = 0; i < node.op.outputs.size(); ++i) {
        plan_.graph.values[node.op.outputs[i]].dtype = view.outputs()[i].dtype;
      }
    }
    for (size_t i = 0; i < node.op.inputs.size(); ++i) {
      const swy_dtype dtype = wanted.empty() ? plan_.graph.values[node.op.inputs[i]].dtype : wanted[i];
      SWY_LET(node.op.inputs[i], fetch(node.op.inputs[i], node.device, dtype, head));
    }
    for (const uint32_t v : node.op.outputs) home_[v] = node.device;
    SWY_TRY(prepare(node));
    plan_.nodes.push_back(std::move(node));
    return {};
  }

  Status prepare(PlanNode& node) {
    const PlanDevice& device = devices_[node.device];
    std::array<char, 512> text{};
    swy_error e{sizeof(swy_error), static_cast<uint32_t>(text.size()), text.data(), SWY_REASON_NONE, 0};
    node.prepared.struct_size = sizeof node.prepared;
    swy_status status = SWY_OK;
    if (node.kernel == nullptr) {
      std::vector<std::unique_ptr<OpView>> views;
      std::vector<const swy_op*> ops;
      for (const GraphOp& op : node.range_ops) {
        views.push_back(std::make_unique<OpView>(plan_.graph, op, plan_.bucket));
        ops.push_back(views.back()->get());
      }
      node.range_layouts.assign(node.op.weights.size(), 0);
      status = device.range()->prepare(device.handle, ops.data(), static_cast<uint32_t>(ops.size()), &plan_.bucket,
                                       &node.prepared.workspace_bytes, node.range_layouts.data(),
                                       static_cast<uint32_t>(node.range_layouts.size()), &e);
    } else if (node.kernel->prepare != nullptr) {
      const OpView view(plan_.graph, node.op, plan_.bucket);
      status = node.kernel->prepare(device.handle, node.kernel, view.get(), &plan_.bucket, &node.prepared, &e);
    }
    if (status != SWY_OK) {
      return error(Code::unsupported, "{} cannot prepare {}: {}", device.name, node.op.name, text.data());
    }
    return {};
  }

  void make_segments() {
    for (uint32_t i = 0; i < plan_.nodes.size(); ++i) {
      const PlanNode& n = plan_.nodes[i];
      const bool copy = n.copy_from >= 0;
      auto& segments = plan_.segments;
      if (!copy && !segments.empty() && !segments.back().copy && segments.back().device == n.device &&
          segments.back().head == n.head) {
        segments.back().end = i + 1;
      } else {
        segments.push_back({i, i + 1, n.device, n.head, copy});
      }
    }
  }

  const std::string& name(uint32_t value) const { return plan_.graph.values[value].name; }

  const std::vector<PlanDevice>& devices_;
  const Matcher& matcher_;
  Plan& plan_;
  std::map<uint32_t, uint32_t> home_;                        // value → the device that makes it
  std::map<std::pair<uint32_t, uint32_t>, bool> here_;       // copied already
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> casts_;  // (value, device) → the cast value
};

}  // namespace

Status emit_nodes(Cover cover, const std::vector<PlanDevice>& devices, const Matcher& matcher, Plan& plan) {
  plan.decisions = std::move(cover.decisions);
  plan.warnings = std::move(cover.warnings);
  return Emitter(std::move(cover.graph), devices, matcher, plan).run(cover.choices);
}

}  // namespace switchyard
