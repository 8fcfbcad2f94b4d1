// SPDX-License-Identifier: Apache-2.0
// MOE, MOE_ADD and EXPERTS for many rows on Hopper, with 4-bit experts and activations as bytes (moe_bytes.cuh).
#include "moe_bytes.cuh"

#include <algorithm>

#include "grouped/narrow.cuh"
#include "moe_combine.cuh"
#include "moe_scaled_bytes.h"

namespace gpu {
namespace {

constexpr uint32_t kLeastRows = 65;  // of a bucket; fewer rows have kernels of their own

uint32_t rows_of(const swy_op& op) { return static_cast<uint32_t>(swy::tensor(op, "x").dims[0]); }
uint32_t hidden_of(const swy_op& op) { return static_cast<uint32_t>(swy::tensor(op, "x").dims[1]); }
uint32_t spans_of(uint32_t width) { return ceil_div(width, kSpan); }

bool router_is_narrow(const swy_op& op) { return op.id != SWY_OP_EXPERTS && narrow(swy::tensor(op, "router")); }

// Whether experts have many rows on average: more than a tile of scaled_bytes.cuh, twice. Between 42 rows, where that
// is faster, and 256, where it is not, nothing was measured.
bool many_rows(const swy_op& op) {
  const swy_moe_attrs a = moe_attrs(op);
  return uint64_t{rows_of(op)} * a.top_k >= uint64_t{a.experts} * 128;
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
  g.x = reinterpret_cast<uint8_t*>(g.pairs);  // not larger, and read before
  g.h = arena.take<uint8_t>(uint64_t{byte_spans(width)} * g.groups * kBytePanel);
  b.h_width = spans_of(width) * kSpan;
  b.h = arena.take<uint16_t>(uint64_t{g.groups} * 8 * b.h_width);
  b.x_scales = take_scales(arena, uint64_t{g.groups} * 8, hidden);
  b.h_scales = take_scales(arena, uint64_t{g.groups} * 8, width);
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
  const uint32_t width = std::max(m.width, m.shared_width);
  const ByteShape of_hidden = byte_shape(r.device().features.block_memory, m.hidden, b.g.most_rows);
  const ByteShape of_width = byte_shape(r.device().features.block_memory, width, b.g.most_rows);
  SWY_CUDA_TRY(launch(r, gate_up_bytes, processors, kByteThreads, of_hidden.bytes(), b, gate_up, parts, spans_of(width),
                      of_hidden));
  SWY_CUDA_TRY(
      launch(r, h_bytes, ceil_div(b.g.groups * 8, kRowWarps * kSortedRows), kRowWarps * 32, 0, b, r.list.step));
  return launch(r, down_bytes, processors, kByteThreads, of_width.bytes(), b, down, parts,
                ceil_div(m.hidden, kTileRowsOfWeight), of_width);
}

swy_status record_bytes(const Recording& r) {
  if (!many_rows(r.op)) return scaled::record_mixture(r);
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
  SWY_CUDA_TRY(launch(r, gather_bytes, rows, kRowWarps * 32, 0, b, r.list.step));
  SWY_CUDA_TRY(record_experts(r, b));
  return launch(r, combine_grouped<false>, rows, kCombineThreads, 0, b.g, r.list.step);
}

swy_status supports_bytes(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  SWY_CUDA_TRY(needs_wgmma(device, error));
  if (!device.bytes) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_DTYPE, "is off because of --set cuda.bytes=0");
  }
  if (rows_of(op) < kLeastRows) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "takes %u rows or more, the bucket has %u", kLeastRows,
                     rows_of(op));
  }
  SWY_CUDA_TRY(supports_router(device, op, bucket, error));
  const swy_moe_attrs a = moe_attrs(op);
  SWY_CUDA_TRY(
      supports_experts(op, multiplied_as_bytes, "multiplied as bytes (only i4 in groups of whole 64s)", error));
  if (a.shared_width != 0 && swy::tensor(op, "shared_gate_proj").group != swy::tensor(op, "shared_up_proj").group) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_DTYPE, "the shared expert's gate and up differ in groups");
  }
  if (op.id != SWY_OP_EXPERTS && !narrow(swy::tensor(op, "router")) && !readable_in_pieces(swy::tensor(op, "router"))) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "weight 0 cannot be read in pieces");
  }
  const uint32_t widest = std::max({static_cast<uint32_t>(hidden_of(op)), a.width, a.shared_width});
  if (many_rows(op) ? byte_shape(device.features.block_memory, widest, kByteRows).stages == 0 : !scaled::fits(device, op)) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "rows of %u elements do not fit", widest);
  }
  if (a.experts > kMostSorted || hidden_of(op) % 8 != 0) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                     "%u experts of rows of %u; at most %u can be sorted, and rows must be a multiple of 8", a.experts,
                     static_cast<uint32_t>(hidden_of(op)), kMostSorted);
  }
  return SWY_OK;
}

// On an H200 within 3% of what was measured at 512, 1,341 and 8,192 rows.
double cost_bytes(const swy_device& device, const swy_op& op, const swy_bucket&) {
  const MixtureWork work = mixture_work(op);
  return 20 + device.rates.bytes(2 * row_bytes(op) + work.weight_bytes, 3.9e6) +
         device.rates.products(work.multiply_adds, many_rows(op) ? 270e6 : 250e6);
}
uint64_t workspace(const swy_device&, const swy_op& op, const swy_bucket&) {
  if (!many_rows(op)) return scaled::workspace(op);
  Arena arena(nullptr);
  ByteMixture b{};
  place(b, arena, op);
  return mixture_workspace(op, false) + arena.used();
}

constexpr Kernel kernel(const char* name, uint32_t op) {
  return {name, op, kAlways, SWY_I8, supports_bytes, cost_bytes, workspace, record_bytes};
}
constexpr Kernel kKernels[] = {kernel("moe.bytes", SWY_OP_MOE), kernel("moe_add.bytes", SWY_OP_MOE_ADD),
                               kernel("experts.bytes", SWY_OP_EXPERTS)};

}  // namespace

std::span<const Kernel> moe_bytes_kernels() { return kKernels; }

}  // namespace gpu
