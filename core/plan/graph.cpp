// SPDX-License-Identifier: Apache-2.0
#include "core/plan/graph.h"

#include "core/base/saturate.h"
#include "core/program/op_names.h"

namespace switchyard {
namespace {

swy_tensor describe(const GraphValue& value, swy_dtype dtype, const swy_bucket& bucket) {
  swy_tensor t{};
  t.struct_size = sizeof t;
  t.dtype = dtype;
  t.rows = value.rows;
  t.rank = 2;
  t.dims[0] = value_rows(value, bucket);
  t.dims[1] = value.width;
  t.dims[2] = t.dims[3] = 1;
  return t;
}

}  // namespace

std::string op_kind(const GraphOp& op) { return op.named.empty() ? op_name(op.id) : op.named; }

uint64_t value_rows(const GraphValue& value, const swy_bucket& bucket) {
  switch (value.rows) {
    case SWY_ROWS_LOGITS:
      return bucket.logit_rows;
    case SWY_ROWS_SAMPLE:
      return bucket.sample_rows;
    default:
      return bucket.rows;
  }
}

uint64_t dtype_bytes(swy_dtype dtype) { return dtype == SWY_BF16 ? 2 : 4; }

uint64_t canonical_bytes(const swy_tensor& state, uint32_t page_size) {
  uint64_t bytes = dtype_bytes(state.dtype) * (state.state == SWY_STATE_PAGED ? page_size : 1);
  for (uint32_t d = 0; d < state.rank; ++d) bytes *= state.dims[d];
  return bytes;
}

uint64_t value_bytes(const GraphValue& value, const swy_bucket& bucket) {
  return saturating_mul(saturating_mul(value_rows(value, bucket), value.width), dtype_bytes(value.dtype));
}

std::vector<ValueReads> reads_of(const Graph& graph) {
  std::vector<ValueReads> reads(graph.values.size());
  const auto add = [&](uint32_t value, size_t reader) {
    ++reads[value].count;
    reads[value].last = reader;
  };
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    for (const uint32_t v : graph.ops[i].inputs) add(v, i);
  }
  for (const uint32_t v : graph.results) add(v, ValueReads::kHost);
  return reads;
}

std::optional<StateAfterMixture> state_after_mixture(const Graph& graph) {
  constexpr size_t kNone = SIZE_MAX;
  std::vector<size_t> mixture(graph.values.size(), kNone);  // that a value comes from
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const GraphOp& op = graph.ops[i];
    size_t from = kNone;
    for (const uint32_t v : op.inputs) from = std::min(from, mixture[v]);
    if (from != kNone && !op.states.empty()) return StateAfterMixture{i, from};
    // What an operation with a name does inside is not known here.
    const bool mixes = op.id == SWY_OP_MOE || op.id == SWY_OP_MOE_ADD || op.id == SWY_OP_EXPERTS || !op.named.empty();
    for (const uint32_t v : op.outputs) mixture[v] = from == kNone && mixes ? i : from;
  }
  return std::nullopt;
}

OpView::OpView(const Graph& graph, const GraphOp& op, const swy_bucket& bucket, const std::vector<swy_dtype>& dtypes) {
  const auto describe_all = [&](const std::vector<uint32_t>& values, std::vector<swy_tensor>& out,
                                std::vector<const swy_tensor*>& list) {
    out.reserve(values.size());
    for (const uint32_t v : values) {
      out.push_back(describe(graph.values[v], dtypes.empty() ? graph.values[v].dtype : dtypes[v], bucket));
    }
    for (const swy_tensor& t : out) list.push_back(&t);
  };
  describe_all(op.inputs, inputs_, input_list_);
  describe_all(op.outputs, outputs_, output_list_);
  weights_.reserve(op.weights.size());
  for (const uint32_t w : op.weights) weights_.push_back(graph.weights[w].desc);
  for (const swy_tensor& t : weights_) weight_list_.push_back(&t);
  for (const uint32_t s : op.states) state_list_.push_back(&graph.states[s].desc);

  op_.struct_size = sizeof op_;
  op_.id = op.id;
  op_.revision = op.revision;
  op_.attrs_size = static_cast<uint32_t>(op.attrs.size());
  op_.attrs = op.attrs.empty() ? nullptr : op.attrs.data();
  op_.input_count = static_cast<uint32_t>(input_list_.size());
  op_.weight_count = static_cast<uint32_t>(weight_list_.size());
  op_.state_count = static_cast<uint32_t>(state_list_.size());
  op_.output_count = static_cast<uint32_t>(output_list_.size());
  op_.inputs = input_list_.data();
  op_.weights = weight_list_.data();
  op_.states = state_list_.data();
  op_.outputs = output_list_.data();
  op_.name = op.named.empty() ? nullptr : op.named.c_str();
}

void OpView::set_layouts(const uint32_t* layouts) {
  for (size_t i = 0; i < weights_.size(); ++i) weights_[i].layout = layouts[i];
}

}  // namespace switchyard
