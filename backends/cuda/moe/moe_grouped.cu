// SPDX-License-Identifier: Apache-2.0
// MOE, MOE_ADD and EXPERTS for many rows on Hopper (moe_grouped.cuh).
#include "moe_grouped.cuh"

#include <algorithm>

#include "grouped/narrow.cuh"
#include "moe_combine.cuh"
#include "moe_combine_few.cuh"
#include "moe_route.cuh"

namespace gpu {
namespace {

// The most rows of activations per tile. Larger tiles unpack an expert's weights less often, but their two warpgroups
// hide less latency than four. They pay off from this many rows of a bucket per expert on.
constexpr uint32_t kMostRows = 64, kMostRowsWide = 8 * kMostTileGroups, kWideFrom = 96;
bool wide(const swy_op& op) {
  const swy_moe_attrs a = moe_attrs(op);
  return static_cast<uint64_t>(swy::tensor(op, "x").dims[0]) * a.top_k >= uint64_t{kWideFrom} * a.experts;
}

// The most rows that one launch routes. The launch gives every expert room for all of them: 150 MB of workspace for 64
// rows of 2,048. A step touches only the part that it fills.
constexpr uint32_t kMostRouted = 64;

uint32_t spans_of(uint32_t width) { return ceil_div(width, kSpan); }

// The largest number of groups of 8 sorted rows in a step, and of tiles.
uint32_t most_groups(const swy_op& op) {
  const swy_moe_attrs a = moe_attrs(op);
  const auto rows = static_cast<uint32_t>(swy::tensor(op, "x").dims[0]), pairs = rows * a.top_k;
  return ceil_div(pairs + 7 * std::min(a.experts, pairs), 8) + (a.shared_width != 0 ? ceil_div(rows, 8) : 0);
}
// Rows of a tile at most.
uint32_t most_rows(const swy_op& op) {
  const auto rows = static_cast<uint32_t>(swy::tensor(op, "x").dims[0]);
  return wide(op) ? kMostRowsWide : std::min(kMostRows, ceil_div(rows, 8) * 8);
}
// An expert may have more pairs than there are rows: given ids need not differ.
uint32_t most_tiles(const swy_op& op) {
  const swy_moe_attrs a = moe_attrs(op);
  const auto rows = static_cast<uint32_t>(swy::tensor(op, "x").dims[0]), pairs = rows * a.top_k;
  return pairs / most_rows(op) + std::min(a.experts, pairs) + ceil_div(rows, most_rows(op)) + 1;
}

bool routes_few(const swy_op& op) {
  const swy_moe_attrs a = moe_attrs(op);
  if (op.id == SWY_OP_EXPERTS || swy::has(op, "expert_ids") || op.revision != 1) return false;
  return swy::tensor(op, "x").dims[0] <= kMostRouted && swy::tensor(op, "x").dims[1] <= kTeam * 2 * kSpan &&
         narrow(swy::tensor(op, "router")) && a.experts <= kRoutedExperts && a.top_k <= kMostChosen &&
         (a.shared_width == 0 || is_plain(swy::tensor(op, "shared_gate")));
}

static_assert(kRoutedExperts <= kQuadExperts && kMostChosen <= kQuadChosen);
static_assert(kMostChosen < kFewSlots && kTeam * 2 * kSpan <= kMostFewColumns);
bool by_quads(const swy_op& op) { return routes_few(op) && supports_quads(op); }

// Layout of the workspace after the operands.
void place(GroupedMixture& p, Arena& arena, const swy_op& op) {
  const swy_moe_attrs a = moe_attrs(op);
  const auto rows = static_cast<uint32_t>(swy::tensor(op, "x").dims[0]),
             hidden = static_cast<uint32_t>(swy::tensor(op, "x").dims[1]);
  const uint32_t slots = a.top_k + (a.shared_width != 0 ? 1 : 0);
  p.room = routes_few(op) ? ceil_div(rows, 8) : 0;
  p.groups = p.room != 0 ? (a.experts + slots - a.top_k) * p.room : most_groups(op);
  p.most_rows = most_rows(op);
  p.places = arena.take<uint32_t>(uint64_t{rows} * slots);
  p.rank = arena.take<uint32_t>(uint64_t{rows} * a.top_k);
  p.begins = arena.take<uint32_t>(a.experts + 1);
  if (by_quads(op)) {
    p.quads = place_quads(arena, op, p.room * 8);
    p.pairs = arena.take<uint16_t>(uint64_t{p.groups} * 8 * hidden);
  } else {
    p.tiles = arena.take<uint4>(most_tiles(op));
    p.tile_count = arena.take<uint32_t>(1 + kMostTileGroups);
    p.x = arena.take<uint8_t>(uint64_t{spans_of(hidden)} * p.groups * kPanelBytes);
    p.h = arena.take<uint8_t>(uint64_t{spans_of(std::max(a.width, a.shared_width))} * p.groups * kPanelBytes);
    p.pairs = reinterpret_cast<uint16_t*>(p.x);
    static_assert(kPanelBytes == 8 * kSpan * sizeof *p.pairs);
  }
}

// Of a narrow router. Whether the choice is made with it: `chosen`.
swy_status record_narrow_router(const Recording& r, const Mixture& m, const InputNorm* norm, bool& chosen) {
  Narrow n{};
  n.x = m.x;
  n.y[0] = m.logits;
  n.w[0] = m.router;
  n.biases[0] = m.router_bias;
  n.count = 1;
  n.width = m.hidden;
  n.domain = m.domain;
  if (norm != nullptr) n.normed = n.roots = true, n.norm = norm->weight, n.bias = norm->bias, n.eps = norm->eps;
  chosen = m.choice.plain && m.experts <= kMostNarrowChoices;
  if (chosen) n.choice = {m.ids, m.p, m.top_k};
  return record_narrow(r, n, static_cast<uint32_t>(swy::tensor(r.op, "x").dims[0]));
}

// A kernel over the experts of one encoding: the routed ones, the shared one, or both.
template <class Kernel, class Weights>
swy_status record_part(const Recording& r, Kernel kernel, const GroupedMixture& p, const Weights& w, swy_dtype d,
                       uint32_t parts, uint32_t steps, bool staged) {
  const GroupedShape shape = grouped_shape(r.device().features.block_memory, d, p.most_rows, staged);
  return launch(r, kernel, static_cast<uint32_t>(r.device().processors),
                wide(r.op) ? kGroupedThreads<2> : kGroupedThreads<1>, shape.bytes(d), p, w, parts, steps, shape);
}
swy_status record_gate_up(const Recording& r, const GroupedMixture& p, const GateUpWeights& w, swy_dtype d,
                          uint32_t parts) {
  const uint32_t width =
      std::max((parts & kRouted) != 0 ? p.m.width : 0, (parts & kShared) != 0 ? p.m.shared_width : 0);
  const auto kernel = [&]<int kBlocks>() {
    return d == SWY_BF16    ? gate_up_grouped<SWY_BF16, kBlocks>
           : d == SWY_I8    ? gate_up_grouped<SWY_I8, kBlocks>
           : d == SWY_MXFP4 ? gate_up_grouped<SWY_MXFP4, kBlocks>
                            : gate_up_grouped<SWY_I4, kBlocks>;
  };
  return record_part(r, wide(r.op) ? kernel.template operator()<2>() : kernel.template operator()<1>(), p, w, d, parts,
                     spans_of(width), true);
}
swy_status record_down(const Recording& r, const GroupedMixture& p, const DownWeights& w, swy_dtype d, uint32_t parts) {
  const auto kernel = [&]<int kBlocks>() {
    return d == SWY_BF16    ? down_grouped<SWY_BF16, kBlocks>
           : d == SWY_I8    ? down_grouped<SWY_I8, kBlocks>
           : d == SWY_MXFP4 ? down_grouped<SWY_MXFP4, kBlocks>
                            : down_grouped<SWY_I4, kBlocks>;
  };
  return record_part(r, wide(r.op) ? kernel.template operator()<2>() : kernel.template operator()<1>(), p, w, d, parts,
                     ceil_div(p.m.hidden, kTileRowsOfWeight), false);
}

// 4-bit weights with and without offsets are multiplied by one kernel.
swy_dtype encoding(const Weight& w) { return w.dtype == SWY_I4A ? static_cast<swy_dtype>(SWY_I4) : w.dtype; }

swy_status record_experts(const Recording& r, const GroupedMixture& p) {
  GateUpWeights gate_up{};
  DownWeights down{};
  SWY_CUDA_TRY(stream_weight(p.m.gate_up, &gate_up.gate_up, r.error));
  SWY_CUDA_TRY(stream_weight(p.m.down, &down.down, r.error));
  const bool shared = p.m.shared_width != 0;
  if (shared) {
    SWY_CUDA_TRY(stream_weight(p.m.shared_gate, &gate_up.shared_gate, r.error));
    SWY_CUDA_TRY(stream_weight(p.m.shared_up, &gate_up.shared_up, r.error));
    SWY_CUDA_TRY(stream_weight(p.m.shared_down, &down.shared_down, r.error));
  }
  swy_dtype d = encoding(p.m.gate_up), other = encoding(p.m.shared_gate);
  SWY_CUDA_TRY(record_gate_up(r, p, gate_up, d, shared && other == d ? kRouted | kShared : kRouted));
  if (shared && other != d) SWY_CUDA_TRY(record_gate_up(r, p, gate_up, other, kShared));
  d = encoding(p.m.down), other = encoding(p.m.shared_down);
  SWY_CUDA_TRY(record_down(r, p, down, d, shared && other == d ? kRouted | kShared : kRouted));
  return shared && other != d ? record_down(r, p, down, other, kShared) : SWY_OK;
}

// Records route_few or route_quads.
swy_status record_few(const Recording& r, const GroupedMixture& p, const InputNorm& norm, uint32_t rows) {
  RouteFew f{p, norm, nullptr};
  const uint32_t blocks = ceil_div(rows, kTeam) * kTeam;
  if (by_quads(r.op)) {
    // A block loads 128 KB of weights at once.
    return launch_clusters(r.with(FastMemory::cache), route_quads, kTeam, blocks, kRouteThreads, 0, f, r.list.step);
  }
  f.p.counts = take_counters(r.list, p.m.experts + 1, r.error);
  if (f.p.counts == nullptr) return SWY_UNSUPPORTED;
  f.done = f.p.counts + p.m.experts;
  return launch_clusters(r, p.m.hidden <= kTeam * kSpan ? route_few<1> : route_few<2>, kTeam, blocks, kRouteThreads, 0,
                         f, r.list.step);
}

// The same with one launch for each part.
swy_status record_many(const Recording& r, GroupedMixture& p, uint32_t rows) {
  SWY_CUDA_TRY(record_routes(r, p.m, nullptr));
  SWY_CUDA_TRY(launch(r, sort_tiles, 1, kSortThreads, 0, p, r.list.step));
  return launch(r, gather, rows, 256, 0, p, r.list.step);
}

swy_status record_mixture(const Recording& r, GroupedMixture& p, const InputNorm& norm) {
  const auto rows = static_cast<uint32_t>(swy::tensor(r.op, "x").dims[0]);
  SWY_CUDA_TRY(p.room != 0 ? record_few(r, p, norm, rows) : record_many(r, p, rows));
  SWY_CUDA_TRY(by_quads(r.op) ? record_quads(r, p.m, p.quads, p.pairs) : record_experts(r, p));
  // With few rows, each block gets a multiprocessor of its own: otherwise the first ones that the previous kernel
  // leaves would get all blocks.
  const uint32_t memory = rows <= kMostRouted ? alone_memory(r.device()) : 0;
  if (p.room == 0) return launch(r, combine_grouped, rows, kCombineThreads, memory, p, r.list.step);
  return launch(r, p.next.rows.words != nullptr ? combine_few<true> : combine_few<false>, rows, kCombineFewThreads,
                memory, p, r.list.step);
}

swy_status record_grouped(const Recording& r) {
  Arena arena(r.operands.workspace());
  GroupedMixture p{};
  p.m = mixture_of(r, arena, false);
  place(p, arena, r.op);
  return record_mixture(r, p, {});
}

swy_status supports_grouped(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  SWY_CUDA_TRY(needs_wgmma(device, error));
  SWY_CUDA_TRY(supports_router(device, op, bucket, error));
  const swy_moe_attrs a = moe_attrs(op);
  SWY_CUDA_TRY(supports_experts(op, streamable, "streamed", error));
  if (a.shared_width != 0 && swy::tensor(op, "shared_gate_proj").group != swy::tensor(op, "shared_up_proj").group) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_DTYPE, "the shared expert's gate and up differ in groups");
  }
  if (op.id != SWY_OP_EXPERTS && !router_is_narrow(op) && !readable_by_vectors(swy::tensor(op, "router"))) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "weight 0 cannot be read in pieces");
  }
  if (a.experts > kMostSorted || swy::tensor(op, "x").dims[1] % 8 != 0) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "%u experts; at most %u can be sorted", a.experts,
                     kMostSorted);
  }
  return SWY_OK;
}

double cost_grouped(const swy_device& device, const swy_op& op, const swy_bucket&) {
  return moe_grouped_cost(device, op);
}
uint64_t workspace(const swy_device&, const swy_op& op, const swy_bucket&) { return moe_grouped_workspace(op); }

constexpr Kernel kernel(const char* name, uint32_t op) {
  return {.name = name,
          .op = op,
          .flags = kAlways,
          .activations = SWY_BF16,
          .supports = supports_grouped,
          .cost = cost_grouped,
          .workspace = workspace,
          .record = record_grouped,
          .op_revision = 2,
          .weight_dtypes = kMatrices};
}
constexpr Kernel kKernels[] = {kernel("moe.grouped", SWY_OP_MOE), kernel("moe_add.grouped", SWY_OP_MOE_ADD),
                               kernel("experts.grouped", SWY_OP_EXPERTS)};

}  // namespace

bool router_is_narrow(const swy_op& op) { return op.id != SWY_OP_EXPERTS && narrow(swy::tensor(op, "router")); }

swy_status record_routes(const Recording& r, const Mixture& m, const InputNorm* norm) {
  if (!m.routes) return SWY_OK;
  const auto rows = static_cast<uint32_t>(swy::tensor(r.op, "x").dims[0]);
  bool chosen = false;
  if (router_is_narrow(r.op)) {
    SWY_CUDA_TRY(record_narrow_router(r, m, norm, chosen));
  } else {
    SWY_CUDA_TRY(record_mixture_product(r, m, m.router, m.router_bias, m.logits, rows));
  }
  return chosen ? SWY_OK : record_choice(r, m, rows);
}

swy_status supports_normed_grouped(const swy_device& device, const swy_op& op, const swy_bucket& bucket,
                                   swy_error* error) {
  SWY_CUDA_TRY(supports_grouped(device, op, bucket, error));
  if (routes_few(op)) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                   "the norm of up to %u rows of up to %u goes with a bf16 router of up to %u experts, %u of them "
                   "chosen at most",
                   kMostRouted, kTeam * 2 * kSpan, kRoutedExperts, kMostChosen);
}

uint64_t moe_grouped_workspace(const swy_op& op) {
  Arena arena(nullptr);
  GroupedMixture p{};
  place(p, arena, op);
  return mixture_workspace(op, false) + arena.used();
}

// On an H200 within a tenth of what was measured from 2 to 8,192 rows.
double moe_grouped_cost(const swy_device& device, const swy_op& op) {
  const MixtureWork work = mixture_work(op);
  const double bytes = 2 * row_bytes(op) + work.weight_bytes,
               products = device.rates.products(work.multiply_adds, 265e6);
  if (by_quads(op)) return 16 + device.rates.bytes(bytes, 4.05e6) + products;
  return (routes_few(op) ? 25 : 48) + device.rates.bytes(bytes, 3.2e6) + products;
}

swy_status record_normed_grouped(const Recording& r, void* workspace, const float* x, const InputNorm& norm,
                                 const float* residual, float* y, const NextRows& next) {
  Arena arena(workspace);
  GroupedMixture p{};
  p.m = mixture_of(r, arena, false);
  place(p, arena, r.op);
  p.m.x = x, p.m.residual = residual, p.m.y = y;
  p.next = next;
  return record_mixture(r, p, norm);
}

std::span<const Kernel> moe_grouped_kernels() { return kKernels; }

}  // namespace gpu
