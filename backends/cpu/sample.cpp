// SPDX-License-Identifier: Apache-2.0
// SAMPLE and TOP_CANDIDATES: the chain of switchyard/sampling_math.h over rows of logits in memory.
#include "sample.h"

#include "isa.h"

namespace cpu {
namespace {

using Sample = swy::Operands<SWY_OP_SAMPLE>;
using TopCandidates = swy::Operands<SWY_OP_TOP_CANDIDATES>;
using Sampling = swy::Operands<SWY_OP_SAMPLE, SWY_OP_LM_HEAD_SAMPLE>;
using OfLogits = swy::Operands<SWY_OP_SAMPLE, SWY_OP_TOP_CANDIDATES>;
constexpr uint32_t kLogits = OfLogits::input("logits");

// From this vocabulary size on, a team samples one row faster than one member does.
constexpr uint64_t kTeamVocab = 16384;

template <class T>
const T* at(const swy_step* step, uint32_t offset) {
  return offset == 0 ? nullptr : reinterpret_cast<const T*>(reinterpret_cast<const char*>(step) + offset);
}

uint64_t vocab_of(const swy_op& op) { return op.inputs[kLogits]->dims[1]; }
// How many likely ids or candidates are wanted of a row.
uint64_t list_of(const swy_op& op) {
  constexpr uint32_t kList = Sample::output("likely_ids");
  static_assert(kList == TopCandidates::output("best"));
  return op.output_count == 3 ? op.outputs[kList]->dims[1] : 0;
}

uint64_t sample_workspace(const swy_op& op, const swy_bucket& bucket) {
  return draw_bytes(bucket.sample_rows, vocab_of(op), list_of(op));
}

void sample(const swy::Call& call) {
  const uint64_t vocab = vocab_of(*call.op);
  draw_rows(call, call.step->sample_rows, vocab, list_of(*call.op), call.work(0),
            [&](swy::RowSampler& sampler, bool leads, uint64_t i) {
              sample_row(call, sampler, leads, static_cast<uint32_t>(i), call.input(kLogits), vocab);
            });
}

void top_candidates(const swy::Call& call) {
  const uint64_t vocab = vocab_of(*call.op), k = list_of(*call.op);
  auto* ids = call.output<int32_t>(TopCandidates::output("ids"));
  auto* best = call.output(TopCandidates::output("best"));
  auto* results = call.output<swy_candidates_result>(TopCandidates::output("result"));
  draw_rows(call, call.step->sample_rows, vocab, k, call.work(0), [&](swy::RowSampler& sampler, bool, uint64_t i) {
    const SampleRow row(call, static_cast<uint32_t>(i), call.input(kLogits), vocab);
    sampler.candidates(row.params, row.in, {ids + i * k, k}, {best + i * k, k}, results[i]);
  });
}

// At the rate of one core.
double sample_cost(const swy_op& op, const swy_bucket& bucket) {
  return 1.0 + static_cast<double>(vocab_of(op)) * bucket.sample_rows / 1e3;
}

constexpr swy::HostKernel kKernels[] = {
    {.name = "sample.rows", .op = SWY_OP_SAMPLE, .cost = sample_cost, .run = sample, .workspace = sample_workspace},
    {.name = "top_candidates.rows",
     .op = SWY_OP_TOP_CANDIDATES,
     .cost = sample_cost,
     .run = top_candidates,
     .workspace = sample_workspace},
};

}  // namespace

const swy::RowKernels& sampling_passes() {
  return swy::row_kernels_within(isa() >= Isa::avx512 ? 64 : isa() >= Isa::avx2 ? 32 : 16);
}

SampleRow::SampleRow(const swy::Call& call, uint32_t i, const float* logits, uint64_t vocab)
    : index(i),
      slot(SWY_STEP_ARRAY(call.step, swy_sample_slot, sample_at)[i]),
      params(*at<swy_sample_params>(call.step, call.step->sample_params_at + i * call.step->sample_params_size)) {
  in.logits = logits + slot.logit_row * vocab;
  in.vocab = static_cast<uint32_t>(vocab);
  in.bias_count = slot.bias_count;
  in.biases = at<swy_logit_bias>(call.step, slot.bias_at);
  in.mask = at<uint32_t>(call.step, slot.mask_at);
  in.position = slot.position;
  if (call.op->state_count == 0) return;
  auto* counts = static_cast<uint32_t*>(
      call.states[swy::Operands<SWY_OP_SAMPLE, SWY_OP_TOP_CANDIDATES, SWY_OP_LM_HEAD_SAMPLE>::state(
          "counts")]);  // [slots, vocab]
  if (slot.counts_read_slot != SWY_NO_SLOT) in.counts = counts + slot.counts_read_slot * vocab;
  if (slot.counts_write_slot != SWY_NO_SLOT) counts_out = counts + slot.counts_write_slot * vocab;
}

void SampleRow::count(int32_t token) const {
  if (counts_out == nullptr) return;
  if (in.counts == nullptr) std::fill_n(counts_out, in.vocab, 0u);
  if (in.counts != nullptr && in.counts != counts_out) std::copy_n(in.counts, in.vocab, counts_out);
  counts_out[token] = swy_count_output(counts_out[token]);
}

void SampleRow::answer(const swy::Call& call, int32_t status, const swy_sample_row_out& out) const {
  const bool ok = status == SWY_SAMPLE_OK;
  const int32_t* stops = at<int32_t>(call.step, slot.stop_at);
  const bool stopped =
      ok && stops != nullptr && std::find(stops, stops + slot.stop_count, out.token) != stops + slot.stop_count;
  call.output<swy_sample_result>(Sampling::output("result"))[index] = {out.token, status, out.logprob,
                                                                       stopped ? 1u : 0u};
  call.tokens[slot.token_entry] = ok ? out.token : 0;
  if (ok) count(out.token);
}

void sample_row(const swy::Call& call, swy::RowSampler& sampler, bool leads, uint32_t i, const float* logits,
                uint64_t vocab) {
  const SampleRow row(call, i, logits, vocab);
  swy_sample_row_out out{};
  const int32_t status = sampler.sample(row.params, row.in, out);
  if (const uint64_t n = list_of(*call.op); n != 0) {
    const std::span<int32_t> ids(call.output<int32_t>(Sampling::output("likely_ids")) + i * n, n);
    const std::span<float> logprobs(call.output(Sampling::output("likely_logprobs")) + i * n, n);
    if (status == SWY_SAMPLE_OK) {
      sampler.top_logprobs({row.in.logits, vocab}, ids, logprobs);
    } else if (leads) {
      std::fill(ids.begin(), ids.end(), -1);
      std::fill(logprobs.begin(), logprobs.end(), 0.0f);
    }
  }
  if (leads) row.answer(call, status, out);
}

uint64_t rows_alone(uint64_t rows, uint64_t vocab, uint64_t list) {
  const uint64_t width = swy::team_width;
  const bool team = width > 1 && vocab >= kTeamVocab && list <= swy::RowSampler::kTeamList;
  return team ? rows / width * width : rows;
}

uint64_t draw_bytes(uint64_t rows, uint64_t vocab, uint64_t list) {
  const auto ids = static_cast<uint32_t>(vocab);
  // Of fewer rows than members the last member may have one.
  const uint64_t members = rows_alone(rows, vocab, list) > 0 ? swy::team_width : 0;
  return std::max(members * swy_align64(swy::RowSampler::bytes(ids, 1)),
                  swy_align64(swy::RowSampler::bytes(ids, swy::team_width)));
}

std::span<const swy::HostKernel> sample_kernels() { return kKernels; }

}  // namespace cpu
