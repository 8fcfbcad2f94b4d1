// SAMPLE, TOP_CANDIDATES and LM_HEAD_SAMPLE: the chain of switchyard/sampling_math.h, one row per member at a time.
#include <algorithm>
#include <cmath>
#include <functional>

#include "arithmetic.h"
#include "kernels.h"
#include "switchyard/sampling_row.h"

namespace reference {
namespace {

template <class T>
const T* at(const swy_step* step, uint32_t offset) {
  return offset == 0 ? nullptr : reinterpret_cast<const T*>(reinterpret_cast<const char*>(step) + offset);
}

// Draws sampling row `i` from logits [logit rows, vocab] into results [sample rows] and the token buffer.
void sample_row(const swy::Call& call, uint32_t i, const float* logits, uint64_t vocab, uint64_t* workspace,
                swy_sample_result* results) {
  const swy_step& step = *call.step;
  const swy_sample_slot& slot = SWY_STEP_ARRAY(&step, swy_sample_slot, sample_at)[i];
  const auto* params = at<swy_sample_params>(&step, step.sample_params_at + i * step.sample_params_size);
  swy_sample_row_in in{};
  in.logits = logits + slot.logit_row * vocab;
  in.vocab = static_cast<uint32_t>(vocab);
  in.mask = at<uint32_t>(&step, slot.mask_at);
  in.position = slot.position;
  swy_sample_row_out out{};
  results[i] = {};
  results[i].status = swy_sample_row(params, &in, workspace, &out);
  results[i].token = out.token;
  results[i].logprob = out.logprob;
  const auto* stops = at<int32_t>(&step, slot.stop_at);
  results[i].stopped =
      stops != nullptr && std::find(stops, stops + slot.stop_count, out.token) != stops + slot.stop_count;
  call.tokens[slot.token_entry] = out.token;
}

void sample_rows(const swy::Call& call, const float* logits, uint64_t vocab, char* work) {
  auto* workspace = reinterpret_cast<uint64_t*>(work + call.rank() * swy_align64(vocab * 8));
  auto* results = call.output<swy_sample_result>(0);
  const auto [first, last] = call.split(call.step->sample_rows);
  for (uint64_t i = first; i < last; ++i) sample_row(call, static_cast<uint32_t>(i), logits, vocab, workspace, results);
}

uint64_t order_bytes(uint64_t vocab) { return swy_align64(vocab * 8) * swy::team_width; }

uint64_t sample_workspace(const swy_op& op, const swy_bucket&) { return order_bytes(op.inputs[0]->dims[1]); }

void sample(const swy::Call& call) {
  sample_rows(call, call.input(0), call.op->inputs[0]->dims[1], call.work<char>(0));
}

void top_candidates(const swy::Call& call) {
  const uint64_t vocab = call.op->inputs[0]->dims[1];
  const uint32_t k = std::min<uint32_t>(call.attrs<swy_top_candidates_attrs>().k, static_cast<uint32_t>(vocab));
  auto* keys = reinterpret_cast<uint64_t*>(call.work<char>(call.rank() * swy_align64(vocab * 8)));
  const auto [first, last] = call.split(call.step->sample_rows);
  for (uint64_t i = first; i < last; ++i) {
    const float* row = call.input(0) + SWY_STEP_ARRAY(call.step, swy_sample_slot, sample_at)[i].logit_row * vocab;
    for (uint32_t id = 0; id < vocab; ++id) keys[id] = swy_order_key(swy_float_key(row[id]), id);
    std::partial_sort(keys, keys + k, keys + vocab, std::greater<>());
    const float top = row[swy_row_key_id(keys[0])];
    double sum = 0;
    for (uint32_t id = 0; id < vocab; ++id) sum += std::exp(static_cast<double>(row[id]) - top);
    for (uint32_t j = 0; j < k; ++j) {
      const uint32_t id = swy_row_key_id(keys[j]);
      call.output<int32_t>(0)[i * k + j] = static_cast<int32_t>(id);
      call.output(1)[i * k + j] = row[id];
    }
    call.output(2)[i * 2] = top;
    call.output(2)[i * 2 + 1] = static_cast<float>(sum);
  }
}

// Workspace: LM_HEAD's (scratch, gathered rows), the logits [logit rows, vocab], then the order keys.
struct HeadWork {
  uint64_t rows_at, logits_at, order_at, total;
  HeadWork(uint64_t hidden, uint64_t vocab, uint64_t logit_rows)
      : rows_at(scratch_bytes(hidden)),
        logits_at(rows_at + swy_align64(logit_rows * hidden * 4)),
        order_at(logits_at + swy_align64(logit_rows * vocab * 4)),
        total(order_at + order_bytes(vocab)) {}
};

uint64_t lm_head_sample_workspace(const swy_op& op, const swy_bucket& bucket) {
  return HeadWork(op.weights[0]->dims[1], op.weights[0]->dims[0], bucket.logit_rows).total;
}

void lm_head_sample(const swy::Call& call) {
  const Weight w(call, 0);
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
     .cost = generic_cost,
     .run = lm_head_sample,
     .workspace = lm_head_sample_workspace},
};

}  // namespace

std::span<const swy::HostKernel> sample_kernels() { return kKernels; }

}  // namespace reference
