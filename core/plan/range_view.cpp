// SPDX-License-Identifier: Apache-2.0
#include "core/plan/range_view.h"

#include <algorithm>
#include <iterator>
#include <map>

namespace switchyard {

std::vector<uint32_t> kept_values(const Graph& graph, size_t begin, size_t count) {
  std::vector<bool> read(graph.values.size());
  for (const uint32_t v : graph.results) read[v] = true;
  for (size_t i = begin + count; i < graph.ops.size(); ++i) {
    for (const uint32_t v : graph.ops[i].inputs) read[v] = true;
  }
  std::vector<uint32_t> kept;
  for (size_t i = begin; i < begin + count; ++i) {
    const std::vector<uint32_t>& made = graph.ops[i].outputs;
    std::copy_if(made.begin(), made.end(), std::back_inserter(kept), [&](uint32_t v) { return read[v]; });
  }
  return kept;
}

RangeView::RangeView(const Graph& graph, std::span<const GraphOp> ops, const swy_bucket& bucket,
                     const std::vector<uint32_t>& kept) {
  std::map<uint32_t, uint32_t> numbers;  // of the values, in the order in which they occur
  const auto number = [&](const std::vector<uint32_t>& values) {
    std::vector<uint32_t> out;
    for (const uint32_t v : values) {
      const auto [at, added] = numbers.emplace(v, static_cast<uint32_t>(numbers.size()));
      if (added) kept_.push_back(std::find(kept.begin(), kept.end(), v) != kept.end() ? 1 : 0);
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
  for (const auto& v : inputs_) input_list_.push_back(v.data());
  for (const auto& v : outputs_) output_list_.push_back(v.data());
  values_ = {sizeof(swy_range_values), static_cast<uint32_t>(kept_.size()), input_list_.data(), output_list_.data(),
             kept_.data()};
}

}  // namespace switchyard
