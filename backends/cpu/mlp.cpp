// SPDX-License-Identifier: Apache-2.0
// MLP and MLP_ADD: y [rows, out] = down act(gate x, up x) (+ residual). Two phases, each divided among the team by
// panels of weights: gate, up and act; down. Rows come in chunks, so that what lies between the phases stays in caches.
#include "projection.h"
#include "switchyard/sdk/error.hpp"

namespace cpu {
namespace {

using Mlp = swy::Operands<SWY_OP_MLP, SWY_OP_MLP_ADD>;
constexpr uint32_t kGate = Mlp::weight("gate"), kUp = Mlp::weight("up"), kDown = Mlp::weight("down");

struct MlpWork {
  uint64_t width;
  RowForms x, hidden;
  float* middle;  // [rows of a chunk, width]: act(gate x, up x)
  char* scratch;
  MlpWork(Arena& arena, Mode mode, const swy_op& op)
      : width(op.weights[kGate]->dims[0]),
        x(arena, forms_of(mode, op, kGate, kUp + 1), rows_of(op), op.inputs[Mlp::input("x")]->dims[1]),
        hidden(arena, forms_of(mode, op, kDown, kDown + 1), chunk_of(op), width),
        middle(arena.take<float>(chunk_of(op) * width)),
        scratch(arena.take<char>(PairScratch::bytes(kRowChunk) * swy::team_width)) {}
  static uint64_t rows_of(const swy_op& op) { return op.inputs[Mlp::input("x")]->dims[0]; }
  static uint64_t chunk_of(const swy_op& op) { return std::min<uint64_t>(rows_of(op), kRowChunk); }
  PairScratch of(uint32_t rank) const {
    Arena arena(scratch + PairScratch::bytes(kRowChunk) * rank);
    return {arena, kRowChunk};
  }
};

template <Mode kMode>
uint64_t workspace(const swy_op& op, const swy_bucket&) {
  Arena arena(nullptr);
  MlpWork(arena, kMode, op);
  return arena.used();
}

// This member's panels of gate and up times rows [r, r + m).
template <Mode kMode>
void gate_and_up(const swy::Call& call, const MlpWork& work, const Panels& gate, const Panels& up, uint32_t r,
                 uint32_t m, TileScope& tiles, const PairScratch& scratch) {
  const PanelShape& s = gate.shape;
  const Activation act(call.attrs<swy_mlp_attrs>());
  const uint32_t form = row_form(kMode, s);
  const PairRows x{call.input(Mlp::input("x")) + r * s.width, work.x.format(form), work.x.row(form, r)};
  const auto [begin, end] = call.split(s.panels);
  const auto pair = [&, last = end](uint64_t p) {
    return p < last ? PanelPair{gate.panel(0, p), up.panel(0, p)} : PanelPair{};
  };
  for (uint64_t p = begin; p < end; ++p) {
    panel_pair<kMode>(s, pair(p), pair(p + 1), x, m, tiles, scratch);
    activate_columns(act, scratch.first, scratch.second, m, gate.rows_in(p), work.width, work.middle + p * kPanelRows);
  }
}

// This member's panels of down.
template <Mode kMode>
void down_rows(const swy::Call& call, const MlpWork& work, const Panels& down, uint32_t r, uint32_t m, TileScope& tiles,
               const PairScratch& scratch) {
  const PanelShape& s = down.shape;
  const auto [begin, end] = call.split(s.panels);
  if (begin == end) return;
  const float* residual =
      call.op->id == SWY_OP_MLP_ADD ? call.input(swy::Operands<SWY_OP_MLP_ADD>::input("residual")) : nullptr;
  const uint32_t form = row_form(kMode, s);
  const PairRows rows{work.middle, work.hidden.format(form), work.hidden.row(form, 0)};
  const uint64_t at = r * s.rows + begin * kPanelRows;
  const RowPointers<float, kRowChunk> y(call.output(Mlp::output("y")) + at, s.rows, m);
  const RowPointers<const float, kRowChunk> add(residual + at, s.rows, residual == nullptr ? 0 : m);
  panel_range<kMode>(down, 0, begin, end, rows, m, tiles, scratch, {y.at, residual == nullptr ? nullptr : add.at});
}

template <Mode kMode>
void mlp(const swy::Call& call) {
  const swy_op& op = *call.op;
  const uint32_t rows = call.rows(*op.inputs[Mlp::input("x")]);
  Arena arena(call.workspace);
  MlpWork work(arena, kMode, op);
  const auto panels = [&](uint32_t i) { return panels_of(*op.weights[i], call.weights[i]); };
  const Panels gate = panels(kGate), up = panels(kUp), down = panels(kDown);
  work.x.fill(call, call.input(Mlp::input("x")), rows);
  const PairScratch scratch = work.of(call.rank());
  TileScope tiles;
  for (uint32_t r = 0; r < rows; r += kRowChunk) {
    const uint32_t m = std::min(kRowChunk, rows - r);
    if (r != 0) call.barrier();  // others may still read the previous chunk
    gate_and_up<kMode>(call, work, gate, up, r, m, tiles, scratch);
    call.barrier();
    work.hidden.fill(call, work.middle, m);
    down_rows<kMode>(call, work, down, r, m, tiles, scratch);
  }
}

template <Mode kMode>
swy_status supports(const swy_op& op, const swy_bucket&, swy_error* error) {
  if (const swy_status s = mode_usable(kMode, has_quantized(op), error); s != SWY_OK) return s;
  for (uint32_t i = 0; i < op.weight_count; ++i) {
    PanelShape shape;
    if (const swy_status s = panel_shape(*op.weights[i], kPanels, &shape, error); s != SWY_OK) return s;
  }
  if (op.weights[kGate]->dtype == op.weights[kUp]->dtype && op.weights[kGate]->group == op.weights[kUp]->group) {
    return SWY_OK;
  }
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_DTYPE, "gate and up are encoded differently");
}

template <Mode kMode>
double cost(const swy_op& op, const swy_bucket&) {
  double elements = 0;
  for (uint32_t i = 0; i < op.weight_count; ++i) {
    elements += static_cast<double>(op.weights[i]->dims[0] * op.weights[i]->dims[1]);
  }
  return product_cost(kMode, elements, static_cast<double>(MlpWork::rows_of(op)));
}

uint32_t layout(const swy_op&, uint32_t) { return kPanels; }

template <Mode kMode>
constexpr swy::HostKernel kernel(const char* name, uint32_t op) {
  return {.name = name,
          .op = op,
          .weight_dtypes = kMatrices,
          .flags = flags_of(kMode),
          .cost = cost<kMode>,
          .run = mlp<kMode>,
          .workspace = workspace<kMode>,
          .supports = supports<kMode>,
          .layout = layout,
          .activations = activations_of(kMode)};
}

constexpr swy::HostKernel kKernels[] = {
    kernel<Mode::vector>("mlp.vector", SWY_OP_MLP),
    kernel<Mode::tiles_int8>("mlp.tiles_int8", SWY_OP_MLP),
    kernel<Mode::tiles_wide>("mlp.tiles_wide", SWY_OP_MLP),
    kernel<Mode::tiles_bf16>("mlp.tiles_bf16", SWY_OP_MLP),
    kernel<Mode::exact>("mlp.exact", SWY_OP_MLP),
    kernel<Mode::vector>("mlp_add.vector", SWY_OP_MLP_ADD),
    kernel<Mode::tiles_int8>("mlp_add.tiles_int8", SWY_OP_MLP_ADD),
    kernel<Mode::tiles_wide>("mlp_add.tiles_wide", SWY_OP_MLP_ADD),
    kernel<Mode::tiles_bf16>("mlp_add.tiles_bf16", SWY_OP_MLP_ADD),
    kernel<Mode::exact>("mlp_add.exact", SWY_OP_MLP_ADD),
};

}  // namespace

std::span<const swy::HostKernel> mlp_kernels() { return kKernels; }

}  // namespace cpu
