// SPDX-License-Identifier: Apache-2.0
// SAMPLE, TOP_CANDIDATES and LM_HEAD_SAMPLE: the chain of switchyard/sampling_math.h, one row per member at a time.
#include <algorithm>
#include <cstring>

#include "arithmetic.h"
#include "kernels.h"
#include "switchyard/sampling_row.h"

namespace reference {
namespace {

template <class T>
const T* at(const swy_step* step, uint32_t offset) {
  return offset == 0 ? nullptr : reinterpret_cast<const T*>(reinterpret_cast<const char*>(step) + offset);
}

// One sampling row: its parameters and its input, its order keys [vocab], and where its counts are written.
struct Row {
  const swy_sample_slot& slot;
  const swy_sample_params* params;
  swy_sample_row_in in{};
  uint32_t* counts_out = nullptr;  // [vocab]

  Row(const swy::Call& call, uint64_t i, const float* logits, uint64_t vocab)
      : slot(SWY_STEP_ARRAY(call.step, swy_sample_slot, sample_at)[i]),
        params(at<swy_sample_params>(
            call.step, call.step->sample_params_at + static_cast<uint32_t>(i) * call.step->sample_params_size)) {
    in.logits = logits + slot.logit_row * vocab;
    in.vocab = static_cast<uint32_t>(vocab);
    in.bias_count = slot.bias_count;
    in.biases = at<swy_logit_bias>(call.step, slot.bias_at);
    in.mask = at<uint32_t>(call.step, slot.mask_at);
    in.position = slot.position;
    if (!swy::has(*call.op, "counts")) return;
    auto* counts = call.state<uint32_t>("counts");  // [slots, vocab]
    if (slot.counts_read_slot != SWY_NO_SLOT) in.counts = counts + slot.counts_read_slot * vocab;
    if (slot.counts_write_slot != SWY_NO_SLOT) counts_out = counts + slot.counts_write_slot * vocab;
  }

  void count(int32_t token) const {
    if (counts_out == nullptr) return;
    if (in.counts == nullptr) std::fill_n(counts_out, in.vocab, 0u);
    if (in.counts != nullptr && in.counts != counts_out) std::copy_n(in.counts, in.vocab, counts_out);
    counts_out[token] = swy_count_output(counts_out[token]);
  }
};

bool has(const int32_t* ids, uint32_t count, int32_t id) {
  return ids != nullptr && std::find(ids, ids + count, id) != ids + count;
}

// Draws sampling row `i` from logits [logit rows, vocab].
void sample_row(const swy::Call& call, uint64_t i, const float* logits, uint64_t vocab, uint64_t* workspace) {
  const Row row(call, i, logits, vocab);
  swy_sample_row_out out{};
  const int32_t status = swy_sample_row(row.params, &row.in, workspace, &out);
  const bool ok = status == SWY_SAMPLE_OK;
  const bool stopped = ok && has(at<int32_t>(call.step, row.slot.stop_at), row.slot.stop_count, out.token);
  call.output<swy_sample_result>("result")[i] = {out.token, status, out.logprob, stopped};
  call.tokens[row.slot.token_entry] = ok ? out.token : 0;
  if (swy::has(*call.op, "likely_ids")) {
    const auto n = static_cast<uint32_t>(swy::tensor(*call.op, "likely_ids").dims[1]);
    auto* ids = call.output<int32_t>("likely_ids") + i * n;
    auto* logprobs = call.output("likely_logprobs") + i * n;
    std::fill_n(ids, n, -1);
    std::fill_n(logprobs, n, 0.0f);
    if (ok) swy_row_top_logprobs(row.in.logits, row.in.vocab, n, workspace, ids, logprobs);
  }
  if (ok) row.count(out.token);
}

uint64_t order_bytes(uint64_t vocab) { return swy_align64(vocab * 8) * swy::team_width; }

// This member's order keys [vocab], in a workspace of order_bytes.
uint64_t* order_keys(const swy::Call& call, char* work, uint64_t vocab) {
  return reinterpret_cast<uint64_t*>(work + call.rank() * swy_align64(vocab * 8));
}

void sample_rows(const swy::Call& call, const float* logits, uint64_t vocab, char* work) {
  const auto [first, last] = call.split(call.step->sample_rows);
  for (uint64_t i = first; i < last; ++i) sample_row(call, i, logits, vocab, order_keys(call, work, vocab));
}

uint64_t sample_workspace(const swy_op& op, const swy_bucket&) {
  return order_bytes(swy::tensor(op, "logits").dims[1]);
}

void sample(const swy::Call& call) {
  sample_rows(call, call.input("logits"), swy::tensor(*call.op, "logits").dims[1], call.work<char>(0));
}

void top_candidates(const swy::Call& call) {
  const uint64_t vocab = swy::tensor(*call.op, "logits").dims[1];
  const auto k = static_cast<uint32_t>(swy::tensor(*call.op, "ids").dims[1]);
  const auto [first, last] = call.split(call.step->sample_rows);
  for (uint64_t i = first; i < last; ++i) {
    const Row row(call, i, call.input("logits"), vocab);
    swy_row_candidates(row.params, &row.in, k, order_keys(call, call.work<char>(0), vocab),
                       call.output<int32_t>("ids") + i * k, call.output("best") + i * k,
                       call.output<swy_candidates_result>("result") + i);
  }
}

// Workspace: LM_HEAD's (scratch, gathered rows), the logits [logit rows, vocab], then the order keys.
struct HeadWork {
  uint64_t rows_at, logits_at, order_at, total;
  HeadWork(uint64_t hidden, uint64_t vocab, uint64_t logit_rows)
      : rows_at(scratch_bytes(kBlock * hidden)),
        logits_at(rows_at + swy_align64(logit_rows * hidden * 4)),
        order_at(logits_at + swy_align64(logit_rows * vocab * 4)),
        total(order_at + order_bytes(vocab)) {}
};

uint64_t lm_head_sample_workspace(const swy_op& op, const swy_bucket& bucket) {
  const swy_tensor& w = swy::tensor(op, "w");
  return HeadWork(w.dims[1], w.dims[0], bucket.logit_rows).total;
}

void lm_head_sample(const swy::Call& call) {
  const Weight w(call, "w");
  const HeadWork work(w.width(), w.rows(), call.step->logit_rows);
  lm_head_rows(call, w, call.work<float>(work.rows_at), call.work<float>(work.logits_at));
  call.barrier();
  sample_rows(call, call.work<float>(work.logits_at), w.rows(), call.work<char>(work.order_at));
}

constexpr swy::HostKernel kKernels[] = {
    {.name = "sample.plain", .op = SWY_OP_SAMPLE, .cost = generic_cost, .run = sample, .workspace = sample_workspace},
    {.name = "top_candidates.plain",
     .op = SWY_OP_TOP_CANDIDATES,
     .cost = generic_cost,
     .run = top_candidates,
     .workspace = sample_workspace},
    {.name = "lm_head_sample.plain",
     .op = SWY_OP_LM_HEAD_SAMPLE,
     .weight_dtypes = kMatrices,
     .cost = generic_cost,
     .run = lm_head_sample,
     .workspace = lm_head_sample_workspace},
};

}  // namespace

std::span<const swy::HostKernel> sample_kernels() { return kKernels; }

}  // namespace reference
