// SPDX-License-Identifier: Apache-2.0
#include "core/engine/head.h"

#include <algorithm>

namespace switchyard {
namespace {

uint32_t add_value(Graph& g, const char* name, swy_dtype dtype, uint64_t width) {
  g.values.push_back({name, dtype, SWY_ROWS_SAMPLE, width});
  const auto id = static_cast<uint32_t>(g.values.size() - 1);
  g.results.push_back(id);
  return id;
}

GraphOp& add_op(Graph& g, const char* name, uint32_t id, const Head& head) {
  GraphOp& op = g.ops.emplace_back();
  op.name = name;
  op.id = id;
  op.inputs = {head.logits};
  if (head.counts != kNoValue) op.states = {head.counts};
  return op;
}

uint32_t add_counts(Graph& g, uint64_t vocab) {
  GraphTensor counts{"sampling.counts", {}};
  counts.desc.struct_size = sizeof counts.desc;
  counts.desc.dtype = SWY_I32;
  counts.desc.state = SWY_STATE_SLOTTED;
  counts.desc.rank = 1;
  std::fill(std::begin(counts.desc.dims), std::end(counts.desc.dims), 1);
  counts.desc.dims[0] = vocab;
  g.states.push_back(counts);
  return static_cast<uint32_t>(g.states.size() - 1);
}

uint32_t within(uint32_t n, uint32_t limit, uint64_t vocab) {
  return static_cast<uint32_t>(std::min<uint64_t>(limit == 0 ? n : std::min(n, limit), vocab));
}

}  // namespace

std::vector<uint32_t> Head::results(uint32_t wants) const {
  std::vector<uint32_t> r = always;
  if (wants != 0) r.insert(r.end(), beside.begin(), beside.end());
  if ((wants & (kWantLogits | kWantCandidates)) != 0) r.push_back(logits);
  if ((wants & kWantTop) != 0) {
    r.insert(r.end(), {tokens_with_top, top_ids, top_logprobs});
  } else if ((wants & kWantTokens) != 0) {
    r.push_back(tokens);
  }
  if ((wants & kWantCandidates) != 0) r.insert(r.end(), {candidate_ids, candidate_logits, candidate_result});
  return r;
}

Head head_of_logits(const Graph& graph) {
  Head h;
  h.logits = graph.results.at(0);
  h.always.assign(graph.results.begin() + 1, graph.results.end());
  return h;
}

Head add_head(Graph& g, const DeviceSampling& device) {
  Head h = head_of_logits(g);
  const uint64_t vocab = g.values[h.logits].width;
  if (!device.token && !device.candidates) return h;
  if ((device.steps & SWY_SAMPLES_PENALTIES) != 0) h.counts = add_counts(g, vocab);
  if (device.token) {
    h.tokens = add_value(g, "sampled", SWY_I32, 4);
    add_op(g, "sample", SWY_OP_SAMPLE, h).outputs = {h.tokens};
  }
  if (device.token && (device.steps & SWY_SAMPLES_LOGPROBS) != 0) {
    h.top_count = within(kTopLogprobs, device.limits.max_logprobs, vocab);
    h.tokens_with_top = add_value(g, "sampled_with_top", SWY_I32, 4);
    h.top_ids = add_value(g, "top_ids", SWY_I32, h.top_count);
    h.top_logprobs = add_value(g, "top_logprobs", SWY_F32, h.top_count);
    add_op(g, "sample_with_top", SWY_OP_SAMPLE, h).outputs = {h.tokens_with_top, h.top_ids, h.top_logprobs};
  }
  if (device.candidates) {
    h.candidate_count = within(kCandidates, device.limits.max_candidates, vocab);
    h.candidate_ids = add_value(g, "candidate_ids", SWY_I32, h.candidate_count);
    h.candidate_logits = add_value(g, "candidate_logits", SWY_F32, h.candidate_count);
    h.candidate_result = add_value(g, "candidate_result", SWY_I32, sizeof(swy_candidates_result) / 4);
    GraphOp& op = add_op(g, "top_candidates", SWY_OP_TOP_CANDIDATES, h);
    op.set_attrs(swy_top_candidates_attrs{sizeof(swy_top_candidates_attrs), h.candidate_count, {}});
    op.outputs = {h.candidate_ids, h.candidate_logits, h.candidate_result};
  }
  return h;
}

}  // namespace switchyard
