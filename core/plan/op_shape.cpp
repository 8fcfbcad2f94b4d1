// SPDX-License-Identifier: Apache-2.0
#include "core/plan/op_shape.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>

#include "core/program/op_names.h"
#include "core/program/shape.h"

namespace switchyard {
namespace {

void append(std::string& key, const swy_tensor& t) {
  key += fmt::format("{}/{}/{}x{}x{}x{};", t.dtype, t.group, t.dims[0], t.dims[1], t.dims[2], t.dims[3]);
  if (t.encoding != nullptr) key += t.encoding->name;
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
  const swy_encoding* e = largest->encoding;
  return ", " + (e == nullptr ? dtype_name(largest->dtype) : std::string(e->name)) + group;
}

// The summary of the op table, with the attributes in it.
std::string details(const GraphOp& op) {
  const swy_op_spec* spec = swy_find_op(op.id, op.revision);
  if (spec == nullptr || spec->summary[0] == '\0') return {};
  const ShapeNames names(*spec, op.attrs);
  std::string out = ", ";
  for (std::string_view rest = spec->summary; !rest.empty();) {
    const size_t open = std::min(rest.find('{'), rest.size()), close = rest.find('}');
    out += rest.substr(0, open);
    if (open == rest.size()) break;
    out += fmt::format("{}", evaluate(rest.substr(open + 1, close - open - 1), names).value_or(0));
    rest.remove_prefix(close + 1);
  }
  return out;
}

}  // namespace

std::string shape_key(const Graph& graph, const GraphOp& op, bool dtypes) {
  std::string key = fmt::format("{}.{}|{}", op.id, op.revision, op.named);
  key.append(reinterpret_cast<const char*>(op.attrs.data()), op.attrs.size());
  for (const auto* values : {&op.inputs, &op.outputs}) {
    key += '|';
    for (const uint32_t v : *values) {
      if (dtypes) key += fmt::format("{}/", graph.values[v].dtype);
      key += fmt::format("{}x{};", graph.values[v].rows, graph.values[v].width);
    }
  }
  for (const uint32_t w : op.weights) append(key, graph.weights[w].desc);
  for (const uint32_t s : op.states) append(key, graph.states[s].desc);
  return key;
}

std::string shape_bytes(const Graph& graph, const GraphOp& op) {
  std::string key;
  const auto add = [&](const auto& plain) { key.append(reinterpret_cast<const char*>(&plain), sizeof plain); };
  add(std::array{op.id, op.revision, static_cast<uint32_t>(op.attrs.size()), static_cast<uint32_t>(op.inputs.size()),
                 static_cast<uint32_t>(op.weights.size()), static_cast<uint32_t>(op.states.size()),
                 static_cast<uint32_t>(op.named.size())});
  key += op.named;
  key.append(reinterpret_cast<const char*>(op.attrs.data()), op.attrs.size());
  for (const auto* values : {&op.inputs, &op.outputs}) {
    for (const uint32_t v : *values) {
      const GraphValue& value = graph.values[v];
      add(std::array<uint64_t, 3>{value.dtype, value.rows, value.width});
    }
  }
  const auto add_tensor = [&](const swy_tensor& t) {
    add(std::array<uint64_t, 9>{t.dtype, t.group, t.rank, t.state, t.layout, t.dims[0], t.dims[1], t.dims[2],
                                t.dims[3]});
    if (t.encoding != nullptr) add(t.encoding);
  };
  for (const uint32_t w : op.weights) add_tensor(graph.weights[w].desc);
  for (const uint32_t s : op.states) add_tensor(graph.states[s].desc);
  return key;
}

uint64_t shape_hash(const Graph& graph, const GraphOp& op) {
  const std::string key = shape_key(graph, op, false);
  return XXH3_64bits(key.data(), key.size());
}

std::string shape_text(const Graph& graph, const GraphOp& op) {
  const std::string in = widths(graph, op.inputs);
  return fmt::format("{}{}{}{}{}", in, in.empty() ? "" : " -> ", widths(graph, op.outputs), details(op),
                     encoding(graph, op));
}

uint64_t op_rows(const Graph& graph, const GraphOp& op, const swy_bucket& bucket) {
  const std::vector<uint32_t>& values = op.outputs.empty() ? op.inputs : op.outputs;
  return values.empty() ? bucket.rows : value_rows(graph.values[values.front()], bucket);
}

}  // namespace switchyard
