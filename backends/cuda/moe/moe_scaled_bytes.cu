// SPDX-License-Identifier: Apache-2.0
// MOE, MOE_ADD and EXPERTS for steps of many rows, but few rows an expert (moe_scaled_bytes.cuh).
#include "moe_scaled_bytes.cuh"

#include <algorithm>

#include "grouped/narrow.cuh"
#include "moe_combine.cuh"
#include "moe_scaled_bytes.h"

namespace gpu::scaled {
namespace {

uint32_t rows_of(const swy_op& op) { return static_cast<uint32_t>(swy::tensor(op, "x").dims[0]); }
uint32_t hidden_of(const swy_op& op) { return static_cast<uint32_t>(swy::tensor(op, "x").dims[1]); }
uint32_t spans_of(uint32_t width) { return ceil_div(width, kSpan); }

bool router_is_narrow(const swy_op& op) { return op.id != SWY_OP_EXPERTS && narrow(swy::tensor(op, "router")); }

ByteScales take_scales(Arena& arena, uint64_t n) {
  float* scale = arena.take<float>(n);
  return {scale, arena.take<float>(n)};
}

// Layout of the workspace after the operands.
void place(ByteMixture& b, Arena& arena, const swy_op& op) {
  const swy_moe_attrs a = moe_attrs(op);
  const uint32_t rows = rows_of(op), hidden = hidden_of(op), pairs = rows * a.top_k;
  const uint32_t slots = a.top_k + (a.shared_width != 0 ? 1 : 0), width = std::max(a.width, a.shared_width);
  GroupedMixture& g = b.g;
  g.groups = ceil_div(pairs + 7 * std::min(a.experts, pairs), 8) + (a.shared_width != 0 ? ceil_div(rows, 8) : 0);
  g.most_rows = kByteRows;
  g.places = arena.take<uint32_t>(uint64_t{rows} * slots);
  g.rank = arena.take<uint32_t>(pairs);
  g.begins = arena.take<uint32_t>(a.experts + 1);
  // An expert may have more pairs than there are rows: given ids need not differ.
  g.tiles = arena.take<uint4>(pairs / kByteRows + std::min(a.experts, pairs) + ceil_div(rows, kByteRows) + 1);
  g.tile_count = arena.take<uint32_t>(1 + kMostTileGroups);
  g.pairs = arena.take<uint16_t>(uint64_t{g.groups} * 8 * spans_of(hidden) * kSpan);
  g.x = reinterpret_cast<uint8_t*>(g.pairs);  // half as large, and read before
  g.h = arena.take<uint8_t>(uint64_t{spans_of(width)} * g.groups * kBytePanel);
  b.x_scales = take_scales(arena, uint64_t{ceil_div(spans_of(hidden), kScaledSpansOfX)} * g.groups * 8);
  b.h_scales = take_scales(arena, uint64_t{spans_of(width)} * g.groups * 8);
}

swy_status record_logits(const Recording& r, const Mixture& m) {
  if (!router_is_narrow(r.op)) return record_mixture_product(r, m, m.router, m.router_bias, m.logits, rows_of(r.op));
  Narrow n{};
  n.x = m.x;
  n.y[0] = m.logits;
  n.w[0] = m.router;
  n.count = 1;
  n.width = m.hidden;
  n.domain = m.domain;
  return record_narrow(r, n, rows_of(r.op));
}

uint32_t most_groups(const Weight& w, const Weight& shared) { return std::max(w.groups, shared.groups); }

swy_status record_experts(const Recording& r, const ByteMixture& b) {
  const Mixture& m = b.g.m;
  GateUpWeights gate_up{};
  DownWeights down{};
  SWY_CUDA_TRY(stream_bytes(m.gate_up, &gate_up.gate_up, r.error));
  SWY_CUDA_TRY(stream_bytes(m.down, &down.down, r.error));
  const bool shared = m.shared_width != 0;
  if (shared) {
    SWY_CUDA_TRY(stream_bytes(m.shared_gate, &gate_up.shared_gate, r.error));
    SWY_CUDA_TRY(stream_bytes(m.shared_up, &gate_up.shared_up, r.error));
    SWY_CUDA_TRY(stream_bytes(m.shared_down, &down.shared_down, r.error));
  }
  const uint32_t parts = shared ? kRouted | kShared : kRouted;
  const auto processors = static_cast<uint32_t>(r.device().processors);
  const ByteShape of_hidden =
      byte_shape(r.device().features.block_memory, most_groups(m.gate_up, m.shared_gate), kGateUpStaging);
  const ByteShape of_width = byte_shape(r.device().features.block_memory, most_groups(m.down, m.shared_down), 0);
  SWY_CUDA_TRY(launch(r, gate_up_bytes, processors, kByteThreads, of_hidden.bytes(), b, gate_up, parts,
                      spans_of(std::max(m.width, m.shared_width)), of_hidden));
  return launch(r, down_bytes, processors, kByteThreads, of_width.bytes(), b, down, parts,
                ceil_div(m.hidden, kTileRowsOfWeight), of_width);
}

}  // namespace

swy_status record_mixture(const Recording& r) {
  Arena arena(r.operands.workspace());
  ByteMixture b{};
  b.g.m = mixture_of(r, arena, false);
  place(b, arena, r.op);
  const uint32_t rows = rows_of(r.op);
  if (b.g.m.routes) {
    SWY_CUDA_TRY(record_logits(r, b.g.m));
    SWY_CUDA_TRY(record_choice(r, b.g.m, rows));
  }
  SWY_CUDA_TRY(launch(r, sort_tiles, 1, kSortThreads, 0, b.g, r.list.step));
  SWY_CUDA_TRY(launch(r, gather_bytes, rows, 256, 0, b, r.list.step));
  SWY_CUDA_TRY(record_experts(r, b));
  return launch(r, combine_grouped<false>, rows, kCombineThreads, 0, b.g, r.list.step);
}

uint64_t workspace(const swy_op& op) {
  Arena arena(nullptr);
  ByteMixture b{};
  place(b, arena, op);
  return mixture_workspace(op, false) + arena.used();
}

bool fits(const swy_device& device, const swy_op& op) {
  const swy_moe_attrs a = moe_attrs(op);
  const auto groups = [](const swy_tensor& t) { return t.group == 0 ? 1 : ceil_div(t.dims[t.rank - 1], t.group); };
  uint32_t most = std::max(groups(swy::tensor(op, "gate_up")), groups(swy::tensor(op, "down")));
  if (a.shared_width != 0) {
    most = std::max({most, groups(swy::tensor(op, "shared_gate_proj")), groups(swy::tensor(op, "shared_down_proj"))});
  }
  return byte_shape(device.features.block_memory, most, kGateUpStaging).stages != 0;
}

}  // namespace gpu::scaled
