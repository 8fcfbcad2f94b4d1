// SPDX-License-Identifier: Apache-2.0
// LM_HEAD_SAMPLE: the chain over rows of the head's products.
//
// A row that needs one look at each id (row_scans) is sampled inside the product: each member keeps the best of its own
// columns, 64 at a time while they are in its first-level cache; after one barrier the best of these is the token. Its
// logits are never written. The logits of other rows go to the workspace, and are sampled as by SAMPLE.
#include "lm_head.h"
#include "sample.h"

namespace cpu {
namespace {

using HeadSample = swy::Operands<SWY_OP_LM_HEAD_SAMPLE>;

uint64_t vocab_of(const swy_op& op) { return op.weights[HeadSample::weight("w")]->dims[0]; }
uint64_t list_of(const swy_op& op) {
  return op.output_count == 3 ? op.outputs[HeadSample::output("likely_ids")]->dims[1] : 0;
}

// One member's part of a sampling row.
struct MemberRow {
  swy::RowBest best;
  bool scanned;  // the row is sampled inside the product
};

struct DrawWork {
  uint64_t best_stride;
  MemberRow* best;  // [members, sampling rows]
  uint8_t* keeps;   // [members, logit rows]: whether this row's logits are needed afterwards
  float* columns;   // [members, kRowChunk or less, kGroup]
  float* logits;    // [logit rows, vocab]
  char* draws;      // of draw_rows
  DrawWork(Arena& arena, const swy_op& op, uint64_t logit_rows, uint64_t sample_rows)
      : best_stride((sample_rows + 7) / 8 * 8),
        best(arena.take<MemberRow>(best_stride * swy::team_width)),
        keeps(arena.take<uint8_t>(swy_align64(logit_rows) * swy::team_width)),
        columns(arena.take<float>(std::min<uint64_t>(kRowChunk, logit_rows) * swy::kGroup * swy::team_width)),
        logits(arena.take<float>(logit_rows * vocab_of(op))),
        draws(arena.take<char>(draw_bytes(sample_rows, vocab_of(op), list_of(op)))) {}
};

template <Mode kMode>
uint64_t workspace(const swy_op& op, const swy_bucket& bucket) {
  Arena arena(nullptr);
  HeadWork(arena, kMode, op, bucket.logit_rows);
  DrawWork(arena, op, bucket.logit_rows, bucket.sample_rows);
  return arena.used();
}

// The sampling rows of one step.
class Draws {
 public:
  Draws(const swy::Call& call, const DrawWork& work)
      : call_(call),
        work_(work),
        vocab_(vocab_of(*call.op)),
        best_(work.best + work.best_stride * call.rank()),
        keeps_(work.keeps + swy_align64(call.step->logit_rows) * call.rank()) {
    std::fill_n(keeps_, call.step->logit_rows, uint8_t{0});
    for (uint32_t i = 0; i < call.step->sample_rows; ++i) {
      const SampleRow r = row(i);
      best_[i] = {{}, can_scan(r)};
      if (!best_[i].scanned) keeps_[r.slot.logit_row] = 1;
    }
  }

  SampleRow row(uint32_t i) const { return {call_, i, work_.logits, vocab_}; }

  // Whether the row is sampled inside the product.
  bool scans(uint32_t i) const { return best_[i].scanned; }

  // Where columns of group g of logit rows [first, first + m) are written.
  void targets(uint32_t g, uint32_t first, uint32_t m, float** y) const {
    const uint64_t most = std::min<uint64_t>(kRowChunk, call_.step->logit_rows);
    float* columns = work_.columns + most * swy::kGroup * call_.rank();
    for (uint32_t r = 0; r < m; ++r) {
      y[r] = keeps_[first + r] != 0 ? work_.logits + (first + r) * vocab_ + uint64_t{g} * swy::kGroup
                                    : columns + uint64_t{r} * swy::kGroup;
    }
  }

  // Examines these columns for the rows that are sampled here.
  void take(uint32_t g, uint32_t first, uint32_t m, const float* const* y) {
    const swy::RowKernels& passes = sampling_passes();
    for (uint32_t i = 0; i < call_.step->sample_rows; ++i) {
      if (!scans(i)) continue;
      const SampleRow r = row(i);
      const uint32_t at = r.slot.logit_row - first;
      if (at < m) swy::scan_groups(passes, r.params, r.in, g, 1, y[at], best_[i].best);
    }
  }

  // After a barrier: the best of all members.
  void answer(uint32_t i) const {
    swy::RowBest best;
    for (uint32_t member = 0; member < call_.members(); ++member) {
      const swy::RowBest& b = work_.best[work_.best_stride * member + i].best;
      best.key = std::max(best.key, b.key);
      best.bad = best.bad || b.bad;
    }
    const int32_t status = best.bad ? SWY_SAMPLE_BAD_LOGIT : best.key == 0 ? SWY_SAMPLE_NO_TOKEN : SWY_SAMPLE_OK;
    const bool ok = status == SWY_SAMPLE_OK;
    row(i).answer(call_, status, {ok ? static_cast<int32_t>(swy_row_key_id(best.key)) : -1, -1, 0.0f});
  }

 private:
  bool can_scan(const SampleRow& r) const {
    const uint64_t none = 0;
    return call_.op->output_count == 1 && swy_row_argument_ok(&r.params, &r.in, &none) != 0 &&
           (r.params.flags & SWY_SAMPLE_LOGPROB) == 0 && swy::row_scans(r.params, r.in.vocab);
  }

  const swy::Call& call_;
  const DrawWork& work_;
  const uint64_t vocab_;
  MemberRow* best_;
  uint8_t* keeps_;
};

// This member's columns: whole groups, so that no group is shared.
template <Mode kMode>
void multiply_and_scan(const swy::Call& call, HeadProduct<kMode>& product, Draws& draws) {
  constexpr uint64_t kPanels = swy::kGroup / kPanelRows;
  const Panels& w = product.panels;
  const auto [first, last] = call.split((w.shape.panels + kPanels - 1) / kPanels);
  const uint32_t rows = call.step->logit_rows;
  float* y[kRowChunk];
  for (uint32_t r = 0; r < rows; r += kRowChunk) {
    const uint32_t m = std::min(kRowChunk, rows - r);
    for (auto g = static_cast<uint32_t>(first); g < last; ++g) {
      const uint64_t begin = g * kPanels, end = std::min(begin + kPanels, w.shape.panels);
      PanelPair after;
      if (g + 1 < last) after = {w.panel(0, end), w.panel(0, std::min(end + 1, w.shape.panels - 1))};
      draws.targets(g, r, m, y);
      product.multiply(begin, end, r, m, y, after);
      draws.take(g, r, m, y);
    }
  }
}

template <Mode kMode>
void lm_head_sample(const swy::Call& call) {
  const swy_op& op = *call.op;
  const uint32_t rows = call.step->sample_rows;
  Arena arena(call.workspace);
  HeadWork head(arena, kMode, op, call.step->logit_rows);
  const DrawWork work(arena, op, call.step->logit_rows, rows);
  HeadProduct<kMode> product(call, head);
  Draws draws(call, work);
  multiply_and_scan(call, product, draws);
  call.barrier();
  const auto [first, last] = call.split(rows);
  uint32_t others = 0;
  for (uint32_t i = 0; i < rows; ++i) {
    if (draws.scans(i) && i >= first && i < last) draws.answer(i);
    others += draws.scans(i) ? 0 : 1;
  }
  const auto nth = [&](uint64_t n) {
    uint32_t i = 0;
    while (draws.scans(i) || n-- > 0) ++i;
    return i;
  };
  draw_rows(call, others, vocab_of(op), list_of(op), work.draws, [&](swy::RowSampler& sampler, bool leads, uint64_t n) {
    sample_row(call, sampler, leads, nth(n), work.logits, vocab_of(op));
  });
}

// LM_HEAD's cost plus the same amount for every mode.
template <Mode kMode>
double cost(const swy_op& op, const swy_bucket& bucket) {
  return head_cost<kMode>(op, bucket) + static_cast<double>(vocab_of(op)) * bucket.sample_rows / 2e3;
}

template <Mode kMode>
constexpr swy::HostKernel head_kernel(const char* name) {
  return {.name = name,
          .op = SWY_OP_LM_HEAD_SAMPLE,
          .weight_dtypes = kMatrices,
          .flags = flags_of(kMode),
          .cost = cost<kMode>,
          .run = lm_head_sample<kMode>,
          .workspace = workspace<kMode>,
          .supports = head_supports<kMode>,
          .layout = head_layout,
          .activations = activations_of(kMode)};
}

constexpr swy::HostKernel kKernels[] = {
    head_kernel<Mode::vector>("lm_head_sample.vector"),
    head_kernel<Mode::tiles_int8>("lm_head_sample.tiles_int8"),
    head_kernel<Mode::tiles_wide>("lm_head_sample.tiles_wide"),
    head_kernel<Mode::tiles_bf16>("lm_head_sample.tiles_bf16"),
    head_kernel<Mode::exact>("lm_head_sample.exact"),
};

}  // namespace

std::span<const swy::HostKernel> lm_head_sample_kernels() { return kKernels; }

}  // namespace cpu
