#include "bench/op_shapes.h"

#include <algorithm>

#include "core/program/op_names.h"

namespace switchyard::bench {
namespace {

void append(std::string& key, const swy_tensor& t) {
  key += fmt::format("{}/{}/{}x{}x{}x{};", t.dtype, t.group, t.dims[0], t.dims[1], t.dims[2], t.dims[3]);
}

// Equal for operations of one shape.
std::string key_of(const Graph& graph, const GraphOp& op) {
  std::string key = fmt::format("{}.{}|", op.id, op.revision);
  key.append(reinterpret_cast<const char*>(op.attrs.data()), op.attrs.size());
  for (const auto* values : {&op.inputs, &op.outputs}) {
    key += '|';
    for (const uint32_t v : *values) {
      key += fmt::format("{}/{}x{};", graph.values[v].dtype, graph.values[v].rows, graph.values[v].width);
    }
  }
  for (const uint32_t w : op.weights) append(key, graph.weights[w].desc);
  for (const uint32_t s : op.states) append(key, graph.states[s].desc);
  return key;
}

std::string widths(const Graph& graph, const std::vector<uint32_t>& values) {
  std::string text;
  for (const uint32_t v : values) {
    text += fmt::format("{}{}", text.empty() ? "" : "+", graph.values[v].width);
  }
  return text;
}

// The encoding of the largest weight.
std::string encoding(const Graph& graph, const GraphOp& op) {
  const swy_tensor* largest = nullptr;
  uint64_t most = 0;
  for (const uint32_t w : op.weights) {
    const swy_tensor& t = graph.weights[w].desc;
    const uint64_t n = t.dims[0] * t.dims[1] * t.dims[2];
    if (n > most) most = n, largest = &t;
  }
  if (largest == nullptr) return {};
  const std::string group = largest->group != 0 ? fmt::format("/{}", largest->group) : "";
  return ", " + dtype_name(largest->dtype) + group;
}

std::string details(const GraphOp& op) {
  switch (op.id) {
    case SWY_OP_MOE:
    case SWY_OP_MOE_ADD:
    case SWY_OP_EXPERTS: {
      const auto a = op.attrs_as<swy_moe_attrs>();
      return fmt::format(", {} of {} experts x {}", a.top_k, a.experts, a.width);
    }
    case SWY_OP_ATTENTION:
    case SWY_OP_ATTEND: {
      const auto a = op.attrs_as<swy_attention_attrs>();
      return fmt::format(", heads {}/{} x {}", a.heads, a.kv_heads, a.head_dim);
    }
    case SWY_OP_GATED_DELTA:
    case SWY_OP_DELTA_RULE: {
      const auto a = op.attrs_as<swy_gated_delta_attrs>();
      return fmt::format(", heads {}/{} x {}x{}", a.value_heads, a.key_heads, a.key_dim, a.value_dim);
    }
    default:
      return {};
  }
}

std::string describe(const Graph& graph, const GraphOp& op) {
  const std::string in = widths(graph, op.inputs);
  return fmt::format("{}{}{}{}{}", in, in.empty() ? "" : " -> ", widths(graph, op.outputs), details(op),
                     encoding(graph, op));
}

class Collector {
 public:
  explicit Collector(const Graph& graph) : graph_(graph) {}

  void add(const GraphOp& op, uint32_t device, const swy_kernel* chosen) {
    const std::string key = key_of(graph_, op);
    const auto at = std::find(keys_.begin(), keys_.end(), key);
    if (at != keys_.end()) {
      shapes[static_cast<size_t>(at - keys_.begin())].ops.push_back(op);
      return;
    }
    keys_.push_back(key);
    shapes.push_back({{op}, device, chosen, describe(graph_, op)});
  }

  std::vector<OpShape> shapes;

 private:
  const Graph& graph_;
  std::vector<std::string> keys_;
};

}  // namespace

std::vector<OpShape> distinct_shapes(const Plan& plan, const Graph& program, swy_op_id only) {
  Collector all(plan.graph);
  const auto wanted = [&](const GraphOp& op) { return only == 0 || op.id == only; };
  uint32_t device = 0;  // of the first node that computes
  for (const PlanNode& n : plan.nodes) {
    if (n.copy_from >= 0) continue;
    if (all.shapes.empty()) device = n.device;
    if (n.kernel == nullptr) {
      for (const GraphOp& op : n.range_ops) {
        if (wanted(op)) all.add(op, n.device, nullptr);
      }
    } else if (wanted(n.op)) {
      all.add(n.op, n.device, n.kernel);
    }
  }
  if (only == 0 || !all.shapes.empty()) return std::move(all.shapes);
  for (const GraphOp& op : program.ops) {
    if (wanted(op)) all.add(op, op.states.empty() ? device : plan.state_device[op.states[0]], nullptr);
  }
  return std::move(all.shapes);
}

}  // namespace switchyard::bench
