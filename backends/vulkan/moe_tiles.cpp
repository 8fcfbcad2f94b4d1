// SPDX-License-Identifier: Apache-2.0
// MOE, MOE_ADD and EXPERTS for prompts: the router by tiles of LINEAR, rows sorted by expert (moe_sort.comp), tiles of
// rows that share an expert (moe_tiles.comp), the sum over each row's experts (moe_combine.comp).
#include <algorithm>

#include "moe.h"
#include "tiles.h"

namespace gpu {
namespace {

#include "moe_combine.comp.h"
#include "moe_sort.comp.h"
#include "moe_tiles.cooperative_down_128.h"
#include "moe_tiles.cooperative_down_64.h"
#include "moe_tiles.cooperative_up_128.h"
#include "moe_tiles.cooperative_up_64.h"
#include "moe_tiles.down.h"
#include "moe_tiles.up.h"
constexpr Shader kSort = SWY_SHADER(moe_sort_comp), kCombine = SWY_SHADER(moe_combine_comp);
constexpr Shader kUp[] = {SWY_SHADER(moe_tiles_up), SWY_SHADER(moe_tiles_cooperative_up_64),
                          SWY_SHADER(moe_tiles_cooperative_up_128)};
constexpr Shader kDown[] = {SWY_SHADER(moe_tiles_down), SWY_SHADER(moe_tiles_cooperative_down_64),
                            SWY_SHADER(moe_tiles_cooperative_down_128)};
constexpr uint32_t kLeastRows = 9, kMostExperts = 1024;

// The workspace of a sorted mixture, in addition to that of every mixture.
struct Sorted {
  Mixture m;
  uint32_t rows = 0, entries = 0, tile_rows = 0, tiles = 0;
  bool half = false;
  Staged x, h, shared_h;        // in the form of the tiles
  Span order, table;            // moe_sort.comp
  Span up, part;                // [entries, width], [entries, hidden]
  Span shared_up, shared_part;  // [rows, shared_width], [rows, hidden]
};

// Rows of a tile: the average number of an expert's rows, and some more.
uint32_t expert_tile_rows(uint32_t entries, uint32_t experts, bool half) {
  if (!half) return 64;
  return entries / experts > 80 ? 128 : 64;
}

void take_all(Sorted& s, Arena& arena, uint32_t hidden, const swy_moe_attrs& a, bool half) {
  s.entries = s.rows * a.top_k;
  s.half = half;
  s.tile_rows = expert_tile_rows(s.entries, a.experts, half);
  s.tiles = std::min(s.entries, s.entries / s.tile_rows + a.experts);
  if (half) s.x = take_staged(arena, s.rows, hidden, half);
  s.order = arena.take(uint64_t{s.entries} * 4);
  s.table = arena.take(16 + uint64_t{s.tiles} * 16);
  s.up = arena.take(uint64_t{s.entries} * a.width * 4);
  s.h.rows = s.up;
  if (half) s.h = take_staged(arena, s.entries, a.width, half);
  s.part = arena.take(uint64_t{s.entries} * hidden * 4);
  if (a.shared_width == 0) return;
  s.shared_up = arena.take(uint64_t{s.rows} * a.shared_width * 4);
  s.shared_h.rows = s.shared_up;
  if (half) s.shared_h = take_staged(arena, s.rows, a.shared_width, half);
  s.shared_part = arena.take(uint64_t{s.rows} * hidden * 4);
}

// Logits of the router and the gate of the shared expert.
swy_status record_logits(const Recording& r, const Sorted& s) {
  const Mixture& m = s.m;
  Projection p;
  p.x = m.x;
  p.width = m.hidden;
  p.domain = m.domain;
  if (s.half) SWY_VK_TRY(record_staging(r, p, {}, s.x, s.rows, true));
  if (m.routes) {
    p.weights[p.count] = m.router;
    p.biases[p.count] = m.router_bias;
    p.y[p.count++] = m.logits;
  }
  if (m.shared_width != 0) {
    p.weights[p.count] = m.shared_mix;
    p.y[p.count++] = m.mix;
  }
  return record_projection_tiles(r, p, s.x, s.rows, s.half);
}

// h, before its conversion to fp16.
swy_status record_middle(const Recording& r, const Sorted& s, bool shared) {
  Projection p;
  p.domain = s.m.domain;
  p.x = shared ? s.shared_up : s.up;
  p.width = shared ? s.m.shared_width : s.m.width;
  return record_staging(r, p, shared ? Span{} : s.table, shared ? s.shared_h : s.h, shared ? s.rows : s.entries, true);
}

swy_status record_sort(const Recording& r, const Sorted& s) {
  struct {
    uint64_t ids, order, tiles, step;
    uint32_t experts, top_k, tile_rows, domain;
  } push{};
  push = {s.m.ids.address, s.order.address, s.table.address, r.step(), s.m.experts, s.m.top_k, s.tile_rows, s.m.domain};
  return launch(r, kSort, {}, {1}, push, {s.m.ids}, {s.order, s.table});
}

struct TilesPush {
  uint64_t x, y, order, tiles, weights, step, first, second;
  uint32_t width, outputs, expert_rows, all_rows, scales_before, top_k, domain, unused;
  uint64_t biases;
  float alpha, limit;
};

// One launch of moe_tiles.comp. `table` is empty for the shared expert.
swy_status record_product(const Recording& r, const Sorted& s, bool up, const Staged& x, Span y, Span table,
                          const Weight& first, const Weight& second, uint32_t outputs) {
  const Mixture& m = s.m;
  const bool shared = table.bytes == 0;
  const uint32_t wide = (s.half ? 128u : 64u) / (up ? 2 : 1), columns = ceil_div(outputs, wide);
  const uint32_t tall = !shared ? s.tile_rows : s.half ? std::max(64u, tile_rows(r.device(), s.rows, columns)) : 64;
  const uint32_t expert_rows = shared ? first.rows : first.rows / m.experts;
  const Activation act = m.activation();
  const Weight bias = shared ? Weight{} : up ? m.gate_up_bias : m.down_bias;
  TilesPush push{};
  push = {x.rows.address, y.address,   s.order.address, table.address, m.weights.address, r.step(),        first.data,
          second.data,    first.width, outputs,         expert_rows,   first.rows,        x.scales_before, m.top_k,
          m.domain,       0,           bias.data,       act.alpha,     act.limit};
  const Shader& shader = (up ? kUp : kDown)[!s.half ? 0 : tall == 64 ? 1 : 2];
  return launch(r, shader, {first.form, act.clamped, bias.form & 15u},
                {columns, shared ? ceil_div(s.rows, tall) : s.tiles}, push,
                {x.rows, x.scales, shared ? Span{} : s.order, table, shared ? Span{} : m.weights}, {y});
}

swy_status record_combine(const Recording& r, const Sorted& s) {
  struct {
    uint64_t part, shared_part, mix, residual, y, step;
    uint32_t hidden, top_k, domain, unused;
  } push{};
  const Mixture& m = s.m;
  push = {s.part.address, s.shared_part.address,
          m.mix.address,  m.residual.address,
          m.y.address,    r.step(),
          m.hidden,       m.top_k,
          m.domain,       0};
  return launch(r, kCombine, {}, {at_most(ceil_div(m.hidden, 4 * kThreads), 16), at_most(s.rows, 16384)}, push,
                {s.part, s.shared_part, m.mix, m.residual}, {m.y});
}

template <bool kHalf>
swy_status record_sorted(const Recording& r) {
  Arena arena(r.operands.workspace());
  Sorted s;
  s.m = mixture_of(r, arena);
  s.rows = static_cast<uint32_t>(swy::tensor(r.op, "x").dims[0]);
  take_all(s, arena, s.m.hidden, moe_attrs(r.op), kHalf);
  const Mixture& m = s.m;
  if (!kHalf) s.x.rows = m.x;
  // The shared expert runs beside the router: it does not depend on the choice.
  const bool shared = m.shared_width != 0;
  SWY_VK_TRY(record_logits(r, s));
  if (shared) SWY_VK_TRY(record_product(r, s, true, s.x, s.shared_up, {}, m.shared_gate, m.shared_up, m.shared_width));
  if (m.routes) SWY_VK_TRY(record_choice(r, m, s.rows));
  if (shared && kHalf) SWY_VK_TRY(record_middle(r, s, true));
  SWY_VK_TRY(record_sort(r, s));
  if (shared) {
    SWY_VK_TRY(record_product(r, s, false, s.shared_h, s.shared_part, {}, m.shared_down, m.shared_down, m.hidden));
  }
  SWY_VK_TRY(record_product(r, s, true, s.x, s.up, s.table, m.gate_up, m.gate_up, m.width));
  if (kHalf) SWY_VK_TRY(record_middle(r, s, false));
  SWY_VK_TRY(record_product(r, s, false, s.h, s.part, s.table, m.down, m.down, m.hidden));
  return record_combine(r, s);
}

template <bool kHalf>
uint64_t workspace(const swy_device&, const swy_op& op, const swy_bucket&) {
  Arena arena;
  Sorted s;
  s.rows = static_cast<uint32_t>(swy::tensor(op, "x").dims[0]);
  arena.take(mixture_workspace(op));
  take_all(s, arena, static_cast<uint32_t>(swy::tensor(op, "x").dims[1]), moe_attrs(op), kHalf);
  return arena.used();
}

template <bool kHalf>
swy_status supports_sorted(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  SWY_VK_TRY(supports_router(device, op, bucket, error));
  const swy_moe_attrs a = moe_attrs(op);
  if (swy::tensor(op, "x").dims[0] < kLeastRows || a.experts > kMostExperts ||
      swy::tensor(op, "x").dims[0] * a.top_k > 65535 * 32) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "serves %u rows and more, and at most %u experts",
                     kLeastRows, kMostExperts);
  }
  if (!shared_alike(op)) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_DTYPE, "the shared expert's gate and up differ in encoding");
  }
  return tiles_usable(op, {0, matrix_count(op)}, kHalf, error);
}

swy_status supports_cooperative(const swy_device& device, const swy_op& op, const swy_bucket& bucket,
                                swy_error* error) {
  if (!device.features.cooperative) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "the device has no cooperative matrices of fp16");
  }
  return supports_sorted<true>(device, op, bucket, error);
}

// The weights that so many rows use, and the products with rows padded to whole tiles.
double cost_of_tiles(const swy_op& op, double rate, uint32_t tile) {
  const swy_moe_attrs a = moe_attrs(op);
  const double rows = static_cast<double>(swy::tensor(op, "x").dims[0]), entries = rows * a.top_k;
  const double touched = std::min(1.0, entries / a.experts);
  double bytes = 3 * row_bytes(op), products = 0;
  for (uint32_t i = 0; i < matrix_count(op); ++i) {
    double n = 1;
    for (uint32_t d = 0; d < op.weights[i]->rank; ++d) n *= static_cast<double>(op.weights[i]->dims[d]);
    const bool expert = op.weights[i]->rank == 3;
    bytes += weight_bytes(*op.weights[i]) * (expert ? touched : 1);
    products += expert ? n / a.experts * std::max(entries, touched * a.experts * tile) : n * rows;
  }
  return 40 + bytes / 1.5e6 + products / rate;
}
double cost_sorted(const swy_op& op, const swy_bucket&) { return cost_of_tiles(op, 5e6, 64); }
double cost_cooperative(const swy_op& op, const swy_bucket&) { return cost_of_tiles(op, 50e6, 64); }

constexpr Kernel sorted_kernel(const char* name, uint32_t op) {
  return {.name = name,
          .op = op,
          .flags = kAlways,
          .activations = SWY_F32,
          .supports = supports_sorted<false>,
          .cost = cost_sorted,
          .workspace = workspace<false>,
          .record = record_sorted<false>,
          .op_revision = 2,
          .weight_dtypes = kMatrices};
}
constexpr Kernel cooperative_kernel(const char* name, uint32_t op) {
  return {.name = name,
          .op = op,
          .flags = kAlways,
          .activations = SWY_BF16,
          .supports = supports_cooperative,
          .cost = cost_cooperative,
          .workspace = workspace<true>,
          .record = record_sorted<true>,
          .op_revision = 2};
}
constexpr Kernel kKernels[] = {
    sorted_kernel("moe.tiles", SWY_OP_MOE),
    sorted_kernel("moe_add.tiles", SWY_OP_MOE_ADD),
    sorted_kernel("experts.tiles", SWY_OP_EXPERTS),
    cooperative_kernel("moe.cooperative", SWY_OP_MOE),
    cooperative_kernel("moe_add.cooperative", SWY_OP_MOE_ADD),
    cooperative_kernel("experts.cooperative", SWY_OP_EXPERTS),
};

}  // namespace

std::span<const Kernel> moe_tiles_kernels() { return kKernels; }

}  // namespace gpu
