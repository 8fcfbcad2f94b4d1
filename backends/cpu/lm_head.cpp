// LM_HEAD and GATHER_ROWS: logits [logit rows, vocab] of the wanted rows.
#include <cstring>

#include "projection.h"
#include "switchyard/sdk/error.hpp"

namespace cpu {
namespace {

void gather_rows(const swy::Call& call) {
  const uint64_t width = call.op->inputs[0]->dims[1];
  const uint32_t* wanted = SWY_STEP_ARRAY(call.step, uint32_t, logit_row_at);
  const auto [first, last] = call.split(call.step->logit_rows);
  for (uint64_t i = first; i < last; ++i) {
    std::memcpy(call.output(0) + i * width, call.input(0) + uint64_t{wanted[i]} * width, width * 4);
  }
}

struct HeadWork {
  RowForms forms;
  float* rows;  // the wanted rows [logit rows, hidden]; of each member while they are few
  char* scratch;
  HeadWork(Arena& arena, Mode mode, const swy_op& op)
      : forms(arena, forms_of(mode, op, 0, 1), op.outputs[0]->dims[0], op.inputs[0]->dims[1]),
        rows(arena.take<float>(std::max<uint64_t>(op.outputs[0]->dims[0], uint64_t{kPrivateRows} * swy::team_width) *
                               op.inputs[0]->dims[1])),
        scratch(arena.take<char>(PairScratch::bytes(kRowChunk) * swy::team_width)) {}
};

template <Mode kMode>
uint64_t lm_head_workspace(const swy_op& op, const swy_bucket&) {
  Arena arena(nullptr);
  HeadWork(arena, kMode, op);
  return arena.used();
}

template <Mode kMode>
void lm_head(const swy::Call& call) {
  const swy_op& op = *call.op;
  const uint32_t rows = call.step->logit_rows;
  const uint64_t width = op.inputs[0]->dims[1];
  const uint32_t* wanted = SWY_STEP_ARRAY(call.step, uint32_t, logit_row_at);
  Arena arena(call.workspace);
  HeadWork work(arena, kMode, op);
  const bool alone = rows <= kPrivateRows;  // every member gathers for itself
  float* x = work.rows + (alone ? uint64_t{call.rank()} * kPrivateRows * width : 0);
  const auto [first, last] = alone ? std::pair<uint64_t, uint64_t>{0, rows} : call.split(rows);
  for (uint64_t i = first; i < last; ++i) std::memcpy(x + i * width, call.input(0) + wanted[i] * width, width * 4);
  if (!alone) call.barrier();
  work.forms.fill(call, x, rows);
  const Panels panels = panels_of(*op.weights[0], call.weights[0]);
  const auto [begin, end] = call.split(panels.shape.panels);
  const PanelShape& s = panels.shape;
  Arena own(work.scratch + PairScratch::bytes(kRowChunk) * call.rank());
  const PairScratch scratch(own, kRowChunk);
  TileScope tiles;
  const uint32_t form = row_form(kMode, s);
  for (uint32_t r = 0; r < rows; r += kRowChunk) {
    const uint32_t m = std::min(kRowChunk, rows - r);
    const PairRows rows_in{x + r * width, work.forms.format(form), work.forms.row(form, r)};
    const RowPointers<float, kRowChunk> y(call.output(0) + r * s.rows + begin * kPanelRows, s.rows, m);
    panel_range<kMode>(panels, 0, begin, end, rows_in, m, tiles, scratch, {y.at});
  }
}

template <Mode kMode>
swy_status supports(const swy_op& op, const swy_bucket&, swy_error* error) {
  PanelShape shape;
  const swy_status s = mode_usable(kMode, has_quantized(op), error);
  return s != SWY_OK ? s : panel_shape(*op.weights[0], kPanels, &shape, error);
}

template <Mode kMode>
double cost(const swy_op& op, const swy_bucket& bucket) {
  return product_cost(kMode, static_cast<double>(op.weights[0]->dims[0] * op.weights[0]->dims[1]), bucket.logit_rows);
}

uint32_t layout(const swy_op&, uint32_t) { return kPanels; }

template <Mode kMode>
constexpr swy::HostKernel head_kernel(const char* name) {
  return {.name = name,
          .op = SWY_OP_LM_HEAD,
          .flags = flags_of(kMode),
          .cost = cost<kMode>,
          .run = lm_head<kMode>,
          .workspace = lm_head_workspace<kMode>,
          .supports = supports<kMode>,
          .layout = layout,
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
