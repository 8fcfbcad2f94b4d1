// SPDX-License-Identifier: Apache-2.0
// Graph: a function of a program as the scheduler sees it. Operations are in an order in which they can run; every
// operand is an index into the graph's lists.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "switchyard/ops.h"
#include "switchyard/plugin.h"

namespace switchyard {

struct GraphValue {
  std::string name;
  swy_dtype dtype = SWY_F32;
  swy_rows rows = SWY_ROWS_STEP;
  uint64_t width = 0;
};

struct GraphOp {
  std::string name;  // "layers.3.attention": for people
  uint32_t id = 0;
  uint32_t revision = 1;
  std::vector<std::byte> attrs;
  std::vector<uint32_t> inputs, weights, states, outputs;

  // Attributes that an older revision lacks are 0.
  template <class Attrs>
  Attrs attrs_as() const {
    Attrs a{};
    std::memcpy(&a, attrs.data(), std::min(attrs.size(), sizeof a));
    return a;
  }
  template <class Attrs>
  void set_attrs(const Attrs& a) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&a);
    attrs.assign(bytes, bytes + sizeof a);
  }
};

struct GraphTensor {  // a weight or a state
  std::string name;
  swy_tensor desc{};
};

struct Graph {
  std::vector<GraphOp> ops;
  std::vector<GraphValue> values;
  std::vector<GraphTensor> weights;
  std::vector<GraphTensor> states;
  std::vector<uint32_t> results;  // values that the host reads after the step
};

// Who reads a value.
struct ValueReads {
  static constexpr size_t kHost = SIZE_MAX;

  size_t count = 0;  // operands and results
  size_t last = 0;   // the last operation that does, or kHost; meaningless where count is 0
};
std::vector<ValueReads> reads_of(const Graph& graph);  // per value

// The bytes of a value for the largest step of a bucket.
uint64_t value_rows(const GraphValue& value, const swy_bucket& bucket);
uint64_t value_bytes(const GraphValue& value, const swy_bucket& bucket);
uint64_t dtype_bytes(swy_dtype dtype);

// A swy_op with all that it points to. Neither copied nor moved, since the swy_op points into it.
class OpView {
 public:
  // `dtypes` overrides the type of each value (by value index); empty: the graph's own.
  OpView(const Graph& graph, const GraphOp& op, const swy_bucket& bucket, const std::vector<swy_dtype>& dtypes = {});
  OpView(const OpView&) = delete;
  OpView& operator=(const OpView&) = delete;

  const swy_op* get() const { return &op_; }
  // Descriptions of the activations, to set the types that a kernel wants.
  std::vector<swy_tensor>& inputs() { return inputs_; }
  std::vector<swy_tensor>& outputs() { return outputs_; }
  // The layout of each weight, once kernels have chosen it.
  void set_layouts(const uint32_t* layouts);

 private:
  std::vector<swy_tensor> inputs_, weights_, outputs_;
  std::vector<const swy_tensor*> input_list_, weight_list_, state_list_, output_list_;
  swy_op op_{};
};

}  // namespace switchyard
