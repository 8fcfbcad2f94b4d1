// SPDX-License-Identifier: Apache-2.0
// Shared by LM_HEAD and LM_HEAD_SAMPLE: the wanted rows of the step times panels of the head's weights.
#pragma once

#include <cstring>

#include "projection.h"

namespace cpu {

using Head = swy::Operands<SWY_OP_LM_HEAD, SWY_OP_LM_HEAD_SAMPLE>;

// For up to `rows` wanted rows of x [step rows, hidden].
struct HeadWork {
  RowForms forms;
  float* rows;  // the wanted rows [rows, hidden]; of each member while they are few
  char* scratch;
  HeadWork(Arena& arena, Mode mode, const swy_op& op, uint32_t logit_rows)
      : forms(arena, forms_of(mode, op, Head::weight("w"), Head::weight("w") + 1), logit_rows, hidden_of(op)),
        rows(arena.take<float>(std::max<uint64_t>(logit_rows, uint64_t{kPrivateRows} * swy::team_width) *
                               hidden_of(op))),
        scratch(arena.take<char>(PairScratch::bytes(kRowChunk) * swy::team_width)) {}
  static uint64_t hidden_of(const swy_op& op) { return op.inputs[Head::input("x")]->dims[1]; }
};

// The products of one member.
template <Mode kMode>
class HeadProduct {
 public:
  // Collective: gathers the wanted rows and converts them.
  HeadProduct(const swy::Call& call, HeadWork& work)
      : panels(panels_of(*call.op->weights[Head::weight("w")], call.weights[Head::weight("w")])),
        forms_(work.forms),
        own_(work.scratch + PairScratch::bytes(kRowChunk) * call.rank()),
        scratch_(own_, kRowChunk),
        form_(row_form(kMode, panels.shape)) {
    const uint32_t rows = call.step->logit_rows;
    const uint64_t width = panels.shape.width;
    const uint32_t* wanted = SWY_STEP_ARRAY(call.step, uint32_t, logit_row_at);
    const bool alone = rows <= kPrivateRows;  // every member gathers for itself
    float* x = work.rows + (alone ? uint64_t{call.rank()} * kPrivateRows * width : 0);
    const auto [first, last] = alone ? std::pair<uint64_t, uint64_t>{0, rows} : call.split(rows);
    const float* all = call.input(Head::input("x"));
    for (uint64_t i = first; i < last; ++i) std::memcpy(x + i * width, all + wanted[i] * width, width * 4);
    if (!alone) call.barrier();
    forms_.fill(call, x, rows);
    x_ = x;
  }

  // Panels [begin, end) times wanted rows [r, r + m), m at most kRowChunk: row i to y[i], panel `begin` first. `after`
  // is the next panel, if any.
  void multiply(uint64_t begin, uint64_t end, uint32_t r, uint32_t m, float* const* y, PanelPair after = {}) {
    const PairRows rows{x_ + r * panels.shape.width, forms_.format(form_), forms_.row(form_, r)};
    panel_range<kMode>(panels, 0, begin, end, rows, m, tiles_, scratch_, {y}, after);
  }

  const Panels panels;

 private:
  RowForms& forms_;
  Arena own_;
  const PairScratch scratch_;
  const uint32_t form_;
  const float* x_ = nullptr;
  TileScope tiles_;
};

// Both kernels of a mode are chosen by the same conditions and the same estimate, so that they compute the same bits.
template <Mode kMode>
swy_status head_supports(const swy_op& op, const swy_bucket&, swy_error* error) {
  PanelShape shape;
  const swy_status s = mode_usable(kMode, has_quantized(op), error);
  return s != SWY_OK ? s : panel_shape(*op.weights[Head::weight("w")], kPanels, &shape, error);
}
template <Mode kMode>
double head_cost(const swy_op& op, const swy_bucket& bucket) {
  const swy_tensor& w = *op.weights[Head::weight("w")];
  return product_cost(kMode, static_cast<double>(w.dims[0] * w.dims[1]), bucket.logit_rows);
}
inline uint32_t head_layout(const swy_op&, uint32_t) { return kPanels; }

}  // namespace cpu
