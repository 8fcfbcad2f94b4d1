// SPDX-License-Identifier: Apache-2.0
#include "core/plan/range_view.h"

#include <map>
#include <set>

namespace switchyard {

std::vector<uint32_t> kept_values(const Graph& graph, const std::vector<ValueReads>& reads, size_t begin,
                                  size_t count) {
  std::vector<uint32_t> kept;
  for (size_t i = begin; i < begin + count; ++i) {
    for (const uint32_t v : graph.ops[i].outputs) {
      if (reads[v].count != 0 && reads[v].last >= begin + count) kept.push_back(v);
    }
  }
  return kept;
}

std::string range_name(std::span<const GraphOp> ops) { return ops.front().name + ".." + ops.back().name; }

RangeView::RangeView(const Graph& graph, std::span<const GraphOp> ops, const swy_bucket& bucket,
                     const std::vector<uint32_t>& kept) {
  std::map<uint32_t, uint32_t> numbers;  // of the values, in the order in which they occur
  const std::set<uint32_t> read_outside(kept.begin(), kept.end());
  const auto number = [&](const std::vector<uint32_t>& values) {
    std::vector<uint32_t> out;
    for (const uint32_t v : values) {
      const auto [at, added] = numbers.emplace(v, static_cast<uint32_t>(numbers.size()));
      if (added) kept_.push_back(read_outside.contains(v) ? 1 : 0);
      out.push_back(at->second);
    }
    return out;
  };
  for (const GraphOp& op : ops) {
    views_.push_back(std::make_unique<OpView>(graph, op, bucket));
    list_.push_back(views_.back()->get());
    inputs_.push_back(number(op.inputs));
    outputs_.push_back(number(op.outputs));
  }
  for (const GraphOp& op : ops.first(ops.size() - 1)) {
    for (const uint32_t v : op.outputs) {
      if (kept_inside_ == nullptr && read_outside.contains(v)) kept_inside_ = &graph.values[v].name;
    }
  }
  for (const auto& v : inputs_) input_list_.push_back(v.data());
  for (const auto& v : outputs_) output_list_.push_back(v.data());
  values_ = {sizeof(swy_range_values), static_cast<uint32_t>(kept_.size()), input_list_.data(), output_list_.data(),
             kept_.data()};
}

}  // namespace switchyard
