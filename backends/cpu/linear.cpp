// SPDX-License-Identifier: Apache-2.0
// LINEAR and LINEAR_ADD: y [rows, out] = x [rows, in] * w^T (+ bias) (+ residual).
//
// All panels of all weights form one range that is divided among the team. x is quantised once, whatever the number of
// weights.
#include "projection.h"
#include "switchyard/sdk/error.hpp"

namespace cpu {
namespace {

using Linear = swy::Operands<SWY_OP_LINEAR, SWY_OP_LINEAR_ADD>;
using LinearAdd = swy::Operands<SWY_OP_LINEAR_ADD>;
static_assert(Linear::weight("w") == 0 && Linear::output("y") == 0, "the first weights and the outputs are these");
// The matrices; revision 2 has as many biases after them.
uint32_t matrices_of(const swy_op& op) { return op.output_count; }
bool has_bias(const swy_op& op) { return op.weight_count > op.output_count; }

// Outputs of this size leave the cache before they are read, so they are written past it: a line that is written as a
// whole need not be read first.
constexpr uint64_t kStreamFloats = 2 << 20;

struct LinearWork {
  RowForms x;
  float* biases[SWY_LINEAR_MAX_WEIGHTS] = {};  // in fp32; each member writes and reads those of its own columns
  char* scratch;
  LinearWork(Arena& arena, Mode mode, const swy_op& op, uint64_t rows)
      : x(arena, forms_of(mode, op, 0, matrices_of(op)), rows, op.inputs[Linear::input("x")]->dims[1]) {
    for (uint32_t i = 0; i < matrices_of(op) && has_bias(op); ++i) {
      biases[i] = arena.take<float>(op.weights[matrices_of(op) + i]->dims[0]);
    }
    scratch = arena.take<char>(PairScratch::bytes(kRowChunk) * swy::team_width);
  }
  // Elements [first, last) of bias i.
  const float* bias(const swy::Call& call, uint32_t i, uint64_t first, uint64_t last) const {
    if (biases[i] == nullptr) return nullptr;
    const uint32_t weight = matrices_of(*call.op) + i;
    load_plain(*call.op->weights[weight], call.weights[weight], first, last - first, 0.0f, biases[i] + first);
    return biases[i] + first;
  }
  PairScratch of(uint32_t rank) const {
    Arena arena(scratch + PairScratch::bytes(kRowChunk) * rank);
    return {arena, kRowChunk};
  }
};

template <Mode kMode>
uint64_t linear_workspace(const swy_op& op, const swy_bucket&) {
  Arena arena(nullptr);
  LinearWork(arena, kMode, op, op.inputs[Linear::input("x")]->dims[0]);
  return arena.used();
}

template <Mode kMode>
void linear(const swy::Call& call) {
  const swy_op& op = *call.op;
  const uint32_t rows = call.rows(*op.inputs[Linear::input("x")]);
  const float* x = call.input(Linear::input("x"));
  const float* residual = op.id == SWY_OP_LINEAR_ADD ? call.input(LinearAdd::input("residual")) : nullptr;
  Arena arena(call.workspace);
  LinearWork work(arena, kMode, op, op.inputs[Linear::input("x")]->dims[0]);
  work.x.fill(call, x, rows);
  Panels panels[SWY_LINEAR_MAX_WEIGHTS];
  uint64_t total = 0;
  for (uint32_t i = 0; i < matrices_of(op); ++i) {
    panels[i] = panels_of(*op.weights[i], call.weights[i]);
    total += panels[i].shape.panels;
  }
  const auto [begin, end] = call.split(total);
  if (begin == end) return;
  const PairScratch scratch = work.of(call.rank());
  TileScope tiles;
  for (uint32_t r = 0; r < rows; r += kRowChunk) {
    const uint32_t m = std::min(kRowChunk, rows - r);
    uint64_t before = 0;
    for (uint32_t i = 0; i < matrices_of(op); before += panels[i].shape.panels, ++i) {
      const PanelShape& s = panels[i].shape;
      const uint64_t first = std::max(begin, before), last = std::min(end, before + s.panels);
      if (first >= last) continue;
      const uint32_t form = row_form(kMode, s);
      const PairRows rows_in{x + r * s.width, work.x.format(form), work.x.row(form, r)};
      const uint64_t column = (first - before) * kPanelRows, at = r * s.rows + column;
      const float* bias = work.bias(call, i, column, std::min((last - before) * kPanelRows, s.rows));
      const RowPointers<float, kRowChunk> y(call.output(i) + at, s.rows, m);
      const RowPointers<const float, kRowChunk> add(residual + at, s.rows, residual == nullptr ? 0 : m);
      panel_range<kMode>(panels[i], 0, first - before, last - before, rows_in, m, tiles, scratch,
                         {y.at, residual == nullptr ? nullptr : add.at, nullptr, bias, rows * s.rows >= kStreamFloats});
    }
  }
}

template <Mode kMode>
swy_status supports(const swy_op& op, const swy_bucket&, swy_error* error) {
  if (const swy_status s = mode_usable(kMode, has_quantized(op), error); s != SWY_OK) return s;
  for (uint32_t i = 0; i < matrices_of(op); ++i) {
    PanelShape shape;
    if (const swy_status s = panel_shape(*op.weights[i], kPanels, &shape, error); s != SWY_OK) return s;
  }
  return SWY_OK;
}

template <Mode kMode>
double cost(const swy_op& op, const swy_bucket&) {
  double elements = 0;
  for (uint32_t i = 0; i < matrices_of(op); ++i) {
    elements += static_cast<double>(op.weights[i]->dims[0] * op.weights[i]->dims[1]);
  }
  return product_cost(kMode, elements, static_cast<double>(op.inputs[Linear::input("x")]->dims[0]));
}

uint32_t layout(const swy_op& op, uint32_t weight) { return weight < matrices_of(op) ? kPanels : kCanonical; }

template <Mode kMode>
constexpr swy::HostKernel kernel(const char* name, uint32_t op) {
  return {.name = name,
          .op = op,
          .weight_dtypes = kMatrices,
          .flags = flags_of(kMode),
          .cost = cost<kMode>,
          .run = linear<kMode>,
          .workspace = linear_workspace<kMode>,
          .supports = supports<kMode>,
          .layout = layout,
          .activations = activations_of(kMode),
          .op_revision = 2};
}

constexpr swy::HostKernel kKernels[] = {
    kernel<Mode::vector>("linear.vector", SWY_OP_LINEAR),
    kernel<Mode::tiles_int8>("linear.tiles_int8", SWY_OP_LINEAR),
    kernel<Mode::tiles_wide>("linear.tiles_wide", SWY_OP_LINEAR),
    kernel<Mode::tiles_bf16>("linear.tiles_bf16", SWY_OP_LINEAR),
    kernel<Mode::exact>("linear.exact", SWY_OP_LINEAR),
    kernel<Mode::vector>("linear_add.vector", SWY_OP_LINEAR_ADD),
    kernel<Mode::tiles_int8>("linear_add.tiles_int8", SWY_OP_LINEAR_ADD),
    kernel<Mode::tiles_wide>("linear_add.tiles_wide", SWY_OP_LINEAR_ADD),
    kernel<Mode::tiles_bf16>("linear_add.tiles_bf16", SWY_OP_LINEAR_ADD),
    kernel<Mode::exact>("linear_add.exact", SWY_OP_LINEAR_ADD),
};

}  // namespace

std::span<const swy::HostKernel> linear_kernels() { return kKernels; }

}  // namespace cpu
