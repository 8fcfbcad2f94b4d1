// SPDX-License-Identifier: Apache-2.0
// The operations of a range (swy.range/1, swy.range/2) as a backend sees them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/plan/graph.h"
#include "switchyard/extensions.h"

namespace switchyard {

// The values produced by `count` operations from `begin` on that later operations or the host read. `reads`:
// reads_of(graph).
std::vector<uint32_t> kept_values(const Graph& graph, const std::vector<ValueReads>& reads, size_t begin, size_t count);

// "layers.0.norm..layers.0.add": the first operation and the last.
std::string range_name(std::span<const GraphOp> ops);

// Consecutive operations, and how values flow between them. `kept`: values that are read elsewhere. Neither copied nor
// moved, since its tables point into it.
class RangeView {
 public:
  RangeView(const Graph& graph, std::span<const GraphOp> ops, const swy_bucket& bucket,
            const std::vector<uint32_t>& kept);
  RangeView(const RangeView&) = delete;
  RangeView& operator=(const RangeView&) = delete;

  const swy_op* const* ops() const { return list_.data(); }
  uint32_t count() const { return static_cast<uint32_t>(list_.size()); }
  OpView& view(size_t i) { return *views_[i]; }
  const swy_range_values* values() const { return &values_; }
  swy_range_ops described(const swy_bucket& bucket) const {
    return {sizeof(swy_range_ops), count(), ops(), &bucket, &values_};
  }
  // The name of a kept value that an operation before the last makes; NULL: there is none.
  const std::string* kept_inside() const { return kept_inside_; }

 private:
  std::vector<std::unique_ptr<OpView>> views_;
  std::vector<const swy_op*> list_;
  std::vector<std::vector<uint32_t>> inputs_, outputs_;
  std::vector<const uint32_t*> input_list_, output_list_;
  std::vector<uint32_t> kept_;
  const std::string* kept_inside_ = nullptr;
  swy_range_values values_{};
};

}  // namespace switchyard
