// SPDX-License-Identifier: Apache-2.0
// Graph: a function of a program as the scheduler sees it. Operations are in an order in which they can run; every
// operand is an index into the graph's lists.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
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
  std::string named = {};  // SWY_OP_NAMED: "acme.gelu/1"
  uint32_t function = 0;   // SWY_OP_NAMED: what does the same, in Graph::functions
  int32_t expansion = -1;  // the first operation of what stands for another: which, in Graph::expansions

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
  static constexpr uint32_t kNone = UINT32_MAX;

  std::string name;
  swy_tensor desc{};
  // A weight of a described encoding: itself in bf16 and in fp32, among the graph's weights. Of these: what they
  // decode.
  uint32_t bf16 = kNone, f32 = kNone, encoded = kNone;
};

// What an operation that has a name may be replaced by. Its operations refer to its values, and to the graph's weights
// and states; the parameters are in the order of the operation's operands.
struct GraphFunction {
  std::string name;
  std::vector<GraphValue> values;
  std::vector<GraphOp> ops;
  std::vector<uint32_t> inputs, weights, states, outputs;
};

// One kernel's answer for one operation.
struct Considered {
  std::string device;
  std::string kernel;
  std::string as;  // "composite", "fused with layers.0.norm", "piece silu_mul", "range of 12"
  bool accepted = false;
  double cost_us = 0;
  std::string reason;   // of a refusal; of a range, also why it was claimed
  double tuned_us = 0;  // as measured; 0: it was not, or not all kernels of the operation were
};

// An operation that was replaced by those of its function (expand.h).
struct Expansion {
  std::string op, kind, function;
  std::vector<Considered> considered;
  int32_t outer = -1;  // the expansion that it begins
};

struct Graph {
  std::vector<GraphOp> ops;
  std::vector<GraphValue> values;
  std::vector<GraphTensor> weights;
  std::vector<GraphTensor> states;
  std::vector<uint32_t> results;      // values that the host reads after the step
  std::vector<uint32_t> inputs = {};  // values that the host writes before the step
  std::shared_ptr<const std::vector<GraphFunction>> functions = nullptr;
  std::vector<Expansion> expansions = {};
};

// "attention", "acme.gelu/1".
std::string op_kind(const GraphOp& op);

// Who reads a value.
struct ValueReads {
  static constexpr size_t kHost = SIZE_MAX;

  size_t count = 0;  // operands and results
  size_t last = 0;   // the last operation that does, or kHost; meaningless where count is 0
};
std::vector<ValueReads> reads_of(const Graph& graph);  // per value

// An operation that changes a state, and a mixture of experts whose result it reads, itself or through others. Between
// the two all rows of a step count, those that do not stand included (SWY_SEQ_MAY_STAND).
struct StateAfterMixture {
  size_t state = 0, mixture = 0;  // indices of operations
};
std::optional<StateAfterMixture> state_after_mixture(const Graph& graph);

// The bytes of a value for the largest step of a bucket.
uint64_t value_rows(const GraphValue& value, const swy_bucket& bucket);
uint64_t value_bytes(const GraphValue& value, const swy_bucket& bucket);
uint64_t dtype_bytes(swy_dtype dtype);
// Of a slot or a page of a state in canonical form.
uint64_t canonical_bytes(const swy_tensor& state, uint32_t page_size);

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
