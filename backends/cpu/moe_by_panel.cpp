// SPDX-License-Identifier: Apache-2.0
// MOE for few rows: three phases, each divided among the team by panels of weights.
//   1. router and shared gate
//   2. gate, up and activation of every chosen expert
//   3. down, summed over the experts
//
// Every member quantises its inputs itself, so only the phases need barriers.
#include <cmath>

#include "moe.h"

namespace cpu {
namespace {

struct PanelWork {
  MoeWork common;
  float* hidden;   // [rows, slots, widest]: act(gate, up)
  uint8_t* quant;  // per member: one row of `hidden` per slot
  uint32_t*
      order;  // per member: a row's slots as they are summed, that of moe_by_expert: by expert, the shared one last
  float* factors;   // in that order
  float* products;  // [slots, 16]
  RowFormat down, shared_down;
  uint64_t quant_bytes;
  PanelWork(Arena& arena, Mode mode, const swy_op& op, const MoeShape& s)
      : common(arena, mode, op, s), hidden(arena.take<float>(s.rows * s.slots * s.widest())) {
    PanelShape p;
    if (panel_shape(*op.weights[down_of(op)], kPanels, &p, nullptr) == SWY_OK && row_form(mode, p) != kRowForms) {
      down = row_format(row_form(mode, p), s.width);
    }
    if (s.shared_width != 0 &&
        panel_shape(*op.weights[Moe::weight("shared_down_proj")], kPanels, &p, nullptr) == SWY_OK &&
        row_form(mode, p) != kRowForms) {
      shared_down = row_format(row_form(mode, p), s.shared_width);
    }
    quant_bytes = s.rows * (s.top_k * down.bytes + shared_down.bytes);
    quant = arena.take<uint8_t>(quant_bytes * swy::team_width);
    order = arena.take<uint32_t>(s.slots * swy::team_width);
    factors = arena.take<float>(s.slots * swy::team_width);
    products = arena.take<float>(uint64_t{s.slots} * kPanelRows * swy::team_width);
  }
};

// out [m, 16] = rows [first, first + m) of x times one panel.
template <Mode kMode>
void few_rows(const Panels& w, uint64_t matrix, uint64_t panel, const float* x, const RowForms& forms, uint64_t first,
              uint32_t m, float* out) {
  const PanelShape& s = w.shape;
  const uint32_t form = row_form(kMode, s);
  if (form == kRowForms) {
    multiply_exact(s, w.panel(matrix, panel), x + first * s.width, s.width, m, out);
  } else {
    multiply(s, w.panel(matrix, panel), forms.format(form), forms.row(form, first), m, out);
  }
}

// Panels of a plain or quantized matrix times all rows, plus a bias, into y [rows, rows of the matrix]; panels [begin,
// end).
template <Mode kMode>
void columns(const Panels& w, uint64_t begin, uint64_t end, const float* x, const RowForms& forms, uint32_t rows,
             const OptionalPlain& plain, float* y) {
  float out[kPrivateRows * kPanelRows], memory[kPanelRows];
  for (uint64_t p = begin; p < end; ++p) {
    const float* bias = plain.load(p * kPanelRows, w.rows_in(p), memory);
    for (uint32_t r = 0; r < rows; r += kPrivateRows) {
      const uint32_t m = std::min(kPrivateRows, rows - r);
      few_rows<kMode>(w, 0, p, x, forms, r, m, out);
      for (uint32_t i = 0; bias != nullptr && i < m; ++i) {
        for (uint32_t n = 0; n < w.rows_in(p); ++n) out[i * kPanelRows + n] += bias[n];
      }
      for (uint32_t i = 0; i < m; ++i) {
        std::memcpy(y + (r + i) * w.shape.rows + p * kPanelRows, out + i * kPanelRows, w.rows_in(p) * sizeof(float));
      }
    }
  }
}

// Calls f(i, p) for this member's share of the panels of several matrices, the i-th with counts[i] panels.
template <class Body>
void share_panels(const swy::Call& call, const uint64_t* counts, size_t n, Body f) {
  uint64_t total = 0;
  for (size_t i = 0; i < n; ++i) total += counts[i];
  const auto [begin, end] = call.split(total);
  uint64_t before = 0;
  for (size_t i = 0; i < n; before += counts[i], ++i) {
    const uint64_t first = std::max(begin, before), last = std::min(end, before + counts[i]);
    if (first < last) f(i, first - before, last - before);
  }
}

template <Mode kMode>
void gate_and_up(const swy::Call& call, const MoeShape& s, const MoePanels& w, const PanelWork& work,
                 const MoeExtras& extras, const int32_t* ids) {
  const uint64_t expert_panels = w.gate_up.shape.panels;
  const uint64_t shared_panels = s.shared_width != 0 ? w.shared_gate.shape.panels : 0;
  const uint64_t per_row = s.top_k * expert_panels + shared_panels;
  const auto [begin, end] = call.split(s.rows * per_row);
  const float* x = call.input(AnyMoe::input("x"));
  float gate[kPanelRows], up[kPanelRows], biases[2 * kPanelRows];
  for (uint64_t u = begin; u < end; ++u) {
    const uint64_t r = u / per_row, i = u % per_row;
    const bool shared = i >= s.top_k * expert_panels;
    const uint64_t slot = shared ? s.top_k : i / expert_panels;
    const uint64_t p = shared ? i - s.top_k * expert_panels : i % expert_panels;
    const Panels &g = shared ? w.shared_gate : w.gate_up, &v = shared ? w.shared_up : w.gate_up;
    const uint64_t e = shared ? 0 : 2 * uint64_t{s.expert_of(ids[r * s.top_k + slot])};
    few_rows<kMode>(g, e, p, x, work.common.x, r, 1, gate);
    few_rows<kMode>(v, shared ? 0 : e + 1, p, x, work.common.x, r, 1, up);
    const Activation act = shared ? extras.shared_act() : extras.act(e / 2, p * kPanelRows, g.rows_in(p), biases);
    activate_columns(act, gate, up, 1, g.rows_in(p), 0,
                     work.hidden + (r * s.slots + slot) * s.widest() + p * kPanelRows);
  }
}

// out [16] = one panel of an expert's down times its hidden row.
template <Mode kMode>
void down_panel(const Panels& w, uint64_t e, uint64_t p, const float* hidden, const RowFormat& format,
                const uint8_t* quant, float* out) {
  if (row_form(kMode, w.shape) == kRowForms) {
    multiply_exact(w.shape, w.panel(e, p), hidden, 0, 1, out);
  } else {
    multiply(w.shape, w.panel(e, p), format, quant, 1, out);
  }
}

// product [n] += the bias of an expert's columns from `first` on.
void add_bias(const MoeExtras& extras, uint64_t expert, uint64_t first, uint32_t n, float* product) {
  float memory[kPanelRows];
  const float* bias = extras.down_bias(expert, first, n, memory);
  for (uint32_t i = 0; bias != nullptr && i < n; ++i) product[i] += bias[i];
}

template <Mode kMode>
void down_and_sum(const swy::Call& call, const MoeShape& s, const MoePanels& w, const PanelWork& work,
                  const MoeExtras& extras, const int32_t* ids, const float* weights) {
  const float* residual = residual_of(call);
  float* y = call.output(AnyMoe::output("y"));
  uint8_t* quant = work.quant + work.quant_bytes * call.rank();
  const uint64_t row_bytes = s.top_k * work.down.bytes + work.shared_down.bytes;
  const auto [begin, end] = call.split(w.down.shape.panels);
  if (begin == end) return;
  for (uint64_t r = 0; r < s.rows; ++r) {
    for (uint32_t j = 0; j < s.slots; ++j) {
      const RowFormat& f = j < s.top_k ? work.down : work.shared_down;
      if (f.bytes == 0) continue;
      encode_row(work.hidden + (r * s.slots + j) * s.widest(), f, quant + r * row_bytes + j * work.down.bytes);
    }
  }
  uint32_t* order = work.order + s.slots * call.rank();
  float* factors = work.factors + s.slots * call.rank();
  float* products = work.products + uint64_t{s.slots} * kPanelRows * call.rank();
  for (uint64_t r = 0; r < s.rows; ++r) {
    for (uint32_t j = 0; j < s.slots; ++j) order[j] = j;
    std::sort(order, order + s.top_k, [&](uint32_t a, uint32_t b) {
      const uint32_t of_a = s.expert_of(ids[r * s.top_k + a]), of_b = s.expert_of(ids[r * s.top_k + b]);
      return of_a != of_b ? of_a < of_b : a < b;
    });
    for (uint32_t i = 0; i < s.top_k; ++i) factors[i] = weights[r * s.top_k + order[i]];
    if (s.shared_width != 0) factors[s.top_k] = 1.0f / (1.0f + std::exp(-work.common.mix[r]));
    for (uint64_t p = begin; p < end; ++p) {
      for (uint32_t i = 0; i < s.slots; ++i) {
        const uint32_t j = order[i];
        const bool shared = j == s.top_k;
        const uint64_t e = shared ? 0 : s.expert_of(ids[r * s.top_k + j]);
        float* product = products + i * kPanelRows;
        down_panel<kMode>(shared ? w.shared_down : w.down, e, p, work.hidden + (r * s.slots + j) * s.widest(),
                          shared ? work.shared_down : work.down, quant + r * row_bytes + j * work.down.bytes, product);
        if (!shared) add_bias(extras, e, p * kPanelRows, w.down.rows_in(p), product);
      }
      float sum[kPanelRows];
      sum_columns(products, factors, s.slots, sum);
      const uint64_t at = r * s.hidden + p * kPanelRows;
      for (uint32_t n = 0; n < w.down.rows_in(p); ++n) {
        y[at + n] = residual == nullptr ? sum[n] : sum[n] + residual[at + n];
      }
    }
  }
}

}  // namespace

template <Mode kMode>
uint64_t moe_by_panel_workspace(const swy_op& op, const swy_bucket&) {
  Arena arena(nullptr);
  PanelWork(arena, kMode, op, MoeShape(op, bucket_rows(op)));
  return arena.used();
}

template <Mode kMode>
void moe_by_panel(const swy::Call& call) {
  const swy_op& op = *call.op;
  Arena arena(call.workspace);
  PanelWork work(arena, kMode, op, MoeShape(op, bucket_rows(op)));
  const MoeShape s(op, call.step->rows);
  const MoePanels w(call);
  const MoeExtras extras(call);
  const auto rows = static_cast<uint32_t>(s.rows);
  const float* x = call.input(AnyMoe::input("x"));
  work.common.x.fill(call, x, rows);
  const bool routed = !injected(op);
  const uint64_t counts[] = {routed ? w.router.shape.panels : 0, s.shared_width != 0 ? w.mix.shape.panels : 0};
  share_panels(call, counts, 2, [&](size_t i, uint64_t begin, uint64_t end) {
    columns<kMode>(i == 0 ? w.router : w.mix, begin, end, x, work.common.x, rows,
                   i == 0 ? extras.router_bias : OptionalPlain(), i == 0 ? work.common.logits : work.common.mix);
  });
  call.barrier();
  const Routing routing(call);
  const auto route = [&](uint64_t r, int32_t* to_ids, float* to_weights) {
    routing.row(work.common.logits + r * s.experts, work.common.route + call.rank() * work.common.route_floats,
                to_ids + r * s.top_k, to_weights + r * s.top_k);
  };
  // Every member routes for itself; all write the same values, each into its own memory.
  int32_t own_ids[kPrivateRows * 64];
  float own_weights[kPrivateRows * 64];
  const int32_t* ids = routed ? own_ids : call.input<int32_t>(Injected::input("expert_ids"));
  const float* weights = routed ? own_weights : call.input(Injected::input("expert_weights"));
  if (routed && rows * s.top_k <= std::size(own_ids)) {
    for (uint32_t r = 0; r < rows; ++r) route(r, own_ids, own_weights);
  } else if (routed) {
    const auto [first, last] = call.split(rows);
    for (uint64_t r = first; r < last; ++r) route(r, work.common.ids, work.common.weights);
    call.barrier();
    ids = work.common.ids, weights = work.common.weights;
  }
  gate_and_up<kMode>(call, s, w, work, extras, ids);
  call.barrier();
  down_and_sum<kMode>(call, s, w, work, extras, ids, weights);
}

template void moe_by_panel<Mode::vector>(const swy::Call&);
template void moe_by_panel<Mode::exact>(const swy::Call&);
template uint64_t moe_by_panel_workspace<Mode::vector>(const swy_op&, const swy_bucket&);
template uint64_t moe_by_panel_workspace<Mode::exact>(const swy_op&, const swy_bucket&);

}  // namespace cpu
