// SPDX-License-Identifier: Apache-2.0
// LM_HEAD and GATHER_ROWS: logits [logit rows, vocab] of the wanted rows.
#include "lm_head.h"

namespace cpu {
namespace {

using GatherRows = swy::Operands<SWY_OP_GATHER_ROWS>;

void gather_rows(const swy::Call& call) {
  const uint64_t width = call.op->inputs[GatherRows::input("x")]->dims[1];
  const float* x = call.input(GatherRows::input("x"));
  float* y = call.output(GatherRows::output("y"));
  const uint32_t* wanted = SWY_STEP_ARRAY(call.step, uint32_t, logit_row_at);
  const auto [first, last] = call.split(call.step->logit_rows);
  for (uint64_t i = first; i < last; ++i) {
    std::memcpy(y + i * width, x + uint64_t{wanted[i]} * width, width * 4);
  }
}

template <Mode kMode>
uint64_t lm_head_workspace(const swy_op& op, const swy_bucket& bucket) {
  Arena arena(nullptr);
  HeadWork(arena, kMode, op, bucket.logit_rows);
  return arena.used();
}

template <Mode kMode>
void lm_head(const swy::Call& call) {
  const uint32_t rows = call.step->logit_rows;
  Arena arena(call.workspace);
  HeadWork work(arena, kMode, *call.op, rows);
  HeadProduct<kMode> product(call, work);
  const uint64_t vocab = product.panels.shape.rows;
  const auto [begin, end] = call.split(product.panels.shape.panels);
  for (uint32_t r = 0; r < rows; r += kRowChunk) {
    const uint32_t m = std::min(kRowChunk, rows - r);
    const RowPointers<float, kRowChunk> y(
        call.output(swy::Operands<SWY_OP_LM_HEAD>::output("logits")) + r * vocab + begin * kPanelRows, vocab, m);
    product.multiply(begin, end, r, m, y.at);
  }
}

template <Mode kMode>
constexpr swy::HostKernel head_kernel(const char* name) {
  return {.name = name,
          .op = SWY_OP_LM_HEAD,
          .weight_dtypes = kMatrices,
          .flags = flags_of(kMode),
          .cost = head_cost<kMode>,
          .run = lm_head<kMode>,
          .workspace = lm_head_workspace<kMode>,
          .supports = head_supports<kMode>,
          .layout = head_layout,
          .activations = activations_of(kMode)};
}

constexpr swy::HostKernel kKernels[] = {
    head_kernel<Mode::vector>("lm_head.vector"),
    head_kernel<Mode::tiles_int8>("lm_head.tiles_int8"),
    head_kernel<Mode::tiles_wide>("lm_head.tiles_wide"),
    head_kernel<Mode::tiles_bf16>("lm_head.tiles_bf16"),
    head_kernel<Mode::exact>("lm_head.exact"),
    {.name = "gather_rows.plain", .op = SWY_OP_GATHER_ROWS, .cost = generic_cost, .run = gather_rows},
};

}  // namespace

std::span<const swy::HostKernel> lm_head_kernels() { return kKernels; }

}  // namespace cpu
