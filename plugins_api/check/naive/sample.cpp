// SPDX-License-Identifier: Apache-2.0
// The chain of sampling_math.h is normative to the bit, so that its own reference is the oracle here.
#include <algorithm>
#include <bit>
#include <cstring>

#include "plugins_api/check/naive.h"
#include "switchyard/sampling_row.h"

namespace switchyard::check {

namespace {

using Sampling = swy::Operands<SWY_OP_SAMPLE, SWY_OP_LM_HEAD_SAMPLE>;
using Sample = swy::Operands<SWY_OP_SAMPLE>;
using Top = swy::Operands<SWY_OP_TOP_CANDIDATES>;
constexpr uint32_t kCounts =
    swy::Operands<SWY_OP_SAMPLE, SWY_OP_LM_HEAD_SAMPLE, SWY_OP_TOP_CANDIDATES>::state("counts");
using Words = std::vector<uint32_t>;

// A slot of the counts, or nothing: no such state, or no such slot.
Words counts_of(const Outcome& all, uint32_t slot, uint64_t vocab) {
  Words out;
  for (uint64_t i = 0; !all.states.empty() && slot != SWY_NO_SLOT && i < vocab; ++i) {
    out.push_back(std::bit_cast<uint32_t>(static_cast<float>(all.states[kCounts][slot * vocab + i])));
  }
  return out;
}

void count(Outcome& all, uint32_t slot, Words words, int32_t token, uint64_t vocab) {
  if (all.states.empty() || slot == SWY_NO_SLOT) return;
  words.resize(vocab);
  words[static_cast<size_t>(token)] = swy_count_output(words[static_cast<size_t>(token)]);
  for (uint64_t i = 0; i < vocab; ++i) all.states[kCounts][slot * vocab + i] = std::bit_cast<float>(words[i]);
}

swy_sample_row_in row_in(const Draw& d, const float* logits, uint64_t vocab, const Words& counts) {
  swy_sample_row_in in{};
  in.logits = logits + d.logit_row * vocab;
  in.vocab = static_cast<uint32_t>(vocab);
  in.bias_count = static_cast<uint32_t>(d.biases.size());
  in.biases = d.biases.data();
  in.mask = d.mask.empty() ? nullptr : d.mask.data();
  in.counts = counts.empty() ? nullptr : counts.data();
  in.position = d.position;
  return in;
}

}  // namespace

void draw(const Step& step, const float* logits, uint64_t vocab, Outcome& all, std::vector<Matrix>& outputs) {
  std::vector<uint64_t> order(vocab);
  for (size_t i = 0; i < step.draws.size(); ++i) {
    const Draw& d = step.draws[i];
    const Words counts = counts_of(all, d.counts_read, vocab);
    const swy_sample_row_in in = row_in(d, logits, vocab, counts);
    swy_sample_row_out out{};
    const int32_t status = swy_sample_row(&d.params, &in, order.data(), &out);
    const bool ok = status == SWY_SAMPLE_OK;
    const bool stopped = std::find(d.stops.begin(), d.stops.end(), out.token) != d.stops.end();
    const int32_t row[4] = {out.token, status, std::bit_cast<int32_t>(out.logprob), stopped ? 1 : 0};
    std::copy(row, row + 4, outputs[Sampling::output("result")].ints.begin() + static_cast<ptrdiff_t>(4 * i));
    all.tokens[d.token_entry] = ok ? out.token : 0;
    if (ok) count(all, d.counts_write, counts, out.token, vocab);
    if (outputs.size() < 3) continue;
    Matrix &top_ids = outputs[Sampling::output("likely_ids")], &top = outputs[Sampling::output("likely_logprobs")];
    const auto n = static_cast<uint32_t>(top_ids.width);
    std::vector<int32_t> ids(n, -1);
    std::vector<float> logprobs(n, 0.0f);
    if (ok) swy_row_top_logprobs(in.logits, in.vocab, n, order.data(), ids.data(), logprobs.data());
    std::copy(ids.begin(), ids.end(), top_ids.ints.begin() + static_cast<ptrdiff_t>(n * i));
    std::copy(logprobs.begin(), logprobs.end(), top.values.begin() + static_cast<ptrdiff_t>(n * i));
  }
}

namespace naive {

void sample(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs) {
  draw(step, step.inputs[Sample::input("logits")].floats.data(), c.width(Sample::input("logits")), all, outputs);
}

void top_candidates(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs) {
  const uint64_t vocab = c.width(Top::input("logits"));
  Matrix &ids = outputs[Top::output("ids")], &best = outputs[Top::output("best")];
  const auto k = static_cast<uint32_t>(ids.width);
  std::vector<uint64_t> order(vocab);
  std::vector<float> logits(k);
  for (size_t i = 0; i < step.draws.size(); ++i) {
    const Words counts = counts_of(all, step.draws[i].counts_read, vocab);
    const swy_sample_row_in in = row_in(step.draws[i], step.inputs[Top::input("logits")].floats.data(), vocab, counts);
    swy_candidates_result result;
    swy_row_candidates(&step.draws[i].params, &in, k, order.data(), &ids.ints[i * k], logits.data(), &result);
    std::copy(logits.begin(), logits.end(), best.values.begin() + static_cast<ptrdiff_t>(i * k));
    std::memcpy(&outputs[Top::output("result")].ints[i * 8], &result, sizeof result);
  }
}

}  // namespace naive
}  // namespace switchyard::check
