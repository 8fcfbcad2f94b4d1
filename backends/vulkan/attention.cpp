// SPDX-License-Identifier: Apache-2.0
// ATTENTION: norms, rotation and the pages (attention_prepare.comp), the products (attention.comp), and with few rows,
// whose context is divided into splits, their sum (attention_join.comp). If every sequence has one row, all in one
// launch (attention_step.comp). ATTEND: the products, of rows that are prepared.
#include <algorithm>

#include "rope.h"

namespace gpu {
namespace {

#include "attention.comp.h"
#include "attention_join.comp.h"
#include "attention_prepare.comp.h"
#include "attention_step.comp.h"
constexpr Shader kPrepare = SWY_SHADER(attention_prepare_comp), kAttend = SWY_SHADER(attention_comp);
constexpr Shader kJoin = SWY_SHADER(attention_join_comp), kStep = SWY_SHADER(attention_step_comp);
constexpr uint32_t kMostHeadDim = 256, kManyRows = 32;
constexpr uint32_t kMostSplits = 128;  // that attention_step.comp joins

uint64_t rows_of(const swy_op& op) { return swy::tensor(op, "q").dims[0]; }

// How the work of a row is divided: heads per workgroup, and positions per split.
struct Cut {
  uint32_t heads, groups, splits, positions;
};
Cut cut_of(const swy_op& op, const swy_bucket& bucket, bool split) {
  const swy_attention_attrs a = swy_attention_of(&op);
  const uint32_t per_kv = a.heads / a.kv_heads;
  Cut c{at_most(per_kv, 4), 0, 1, UINT32_MAX};
  c.groups = a.kv_heads * ceil_div(per_kv, c.heads);
  if (!split) return c;
  c.positions = bucket.context <= 4096 ? 32 : bucket.context <= 16384 ? 128 : 512;
  c.splits = std::max<uint32_t>(2, ceil_div(bucket.context, c.positions));
  return c;
}

swy_status record_prepare(const Recording& r, Span ready) {
  const swy_attention_attrs a = swy_attention_of(&r.op);
  struct {
    uint64_t q, k, v, q_norm, k_norm, ready, pages, turns, step;
    uint32_t heads, kv_heads;
    float scale, eps, bias;
    uint32_t unused;
  } push{};
  const Weight q_norm = r.operands.weight("q_norm"), k_norm = r.operands.weight("k_norm");
  const Span q = r.operands.input("q"), k = r.operands.input("k"), v = r.operands.input("v"),
             pages = r.operands.state("kv");
  Rotation rotation;
  SWY_VK_TRY(rotation_of(r, a.rotary_dim, a.rope_theta, a.rope_scale, rotation));
  push = {q.address,     k.address,     v.address,      q_norm.data,        k_norm.data,
          ready.address, pages.address, rotation.turns, r.step(),           a.heads,
          a.kv_heads,    a.scale,       a.norm_eps,     a.norm_weight_bias, 0};
  const uint32_t subgroups = kThreads / r.device().features.subgroup;
  const uint32_t types = (q_norm.form & 15u) | (k_norm.form & 15u) << 4;
  return launch(r, kPrepare,
                {a.head_dim, r.device().kv_bf16, a.gated, types, a.rotary_dim, rotation.table, rotation.scale_bits},
                {ceil_div(a.heads + 2 * a.kv_heads, subgroups), at_most(r.bucket().rows, 16384)}, push, {q, k, v},
                {ready, pages});
}

template <bool kSplit>
swy_status record_attention(const Recording& r) {
  const swy_attention_attrs a = swy_attention_of(&r.op);
  const Cut cut = cut_of(r.op, r.bucket(), kSplit);
  const auto rows = static_cast<uint32_t>(rows_of(r.op));
  Arena arena(r.operands.workspace());
  const bool whole = r.op.id == SWY_OP_ATTENTION;
  const Span q = r.operands.input("q"), y = r.operands.output("y"), pages = r.operands.state("kv");
  const Span ready = whole ? arena.take(uint64_t{rows} * a.heads * a.head_dim * 4) : q;
  const Span parts =
      arena.take(kSplit ? uint64_t{rows} * cut.groups * cut.splits * cut.heads * (a.head_dim + 2) * 4 : 0);
  if (whole) SWY_VK_TRY(record_prepare(r, ready));
  struct {
    uint64_t q, ready, pages, y, parts, step, sinks;
    uint32_t heads, kv_heads, split_positions;
    float scale;
  } attend{};
  const Weight sinks = r.operands.weight("sinks");
  const uint32_t sink_type = sinks.form & 15u;
  attend = {q.address,  ready.address, pages.address, y.address,     parts.address,      r.step(),
            sinks.data, a.heads,       a.kv_heads,    cut.positions, whole ? 1 : a.scale};
  const uint32_t gated = whole ? a.gated : 0;
  const uint32_t per_lane = ceil_div(a.head_dim / 4, r.device().features.subgroup);
  SWY_VK_TRY(launch(r, kAttend, {a.head_dim, r.device().kv_bf16, gated, cut.heads, per_lane, 4u, a.window, sink_type},
                    {cut.splits, cut.groups, rows}, attend, {q, ready, pages}, {y, parts}));
  if (!kSplit) return SWY_OK;
  struct {
    uint64_t q, y, parts, step, sinks;
    uint32_t heads, kv_heads, split_positions, splits;
  } join{};
  join = {q.address, y.address, parts.address, r.step(), sinks.data, a.heads, a.kv_heads, cut.positions, cut.splits};
  return launch(r, kJoin, {a.head_dim, r.device().kv_bf16, gated, cut.heads, a.window, sink_type}, {a.heads, rows},
                join, {q, parts}, {y});
}

// The memory of attention.step for its splits.
struct Joined {
  Cut cut;
  Span parts, stats;  // [rows, groups, splits, heads, head_dim], [rows, groups, splits, heads, 2]
};
Joined take_joined(Arena& arena, const swy_op& op, const swy_bucket& bucket) {
  const swy_attention_attrs a = swy_attention_of(&op);
  Joined j;
  j.cut = cut_of(op, bucket, true);
  j.cut.positions = std::max(32u, ceil_div(ceil_div(bucket.context, kMostSplits), 32) * 32);
  j.cut.splits = ceil_div(bucket.context, j.cut.positions);
  const uint64_t all = rows_of(op) * j.cut.groups * j.cut.splits * j.cut.heads;
  j.parts = arena.take(all * a.head_dim * 4);
  j.stats = arena.take(all * 8);
  return j;
}

swy_status record_step(const Recording& r) {
  const swy_attention_attrs a = swy_attention_of(&r.op);
  const auto rows = static_cast<uint32_t>(rows_of(r.op));
  Arena arena(r.operands.workspace());
  const Joined j = take_joined(arena, r.op, r.bucket());
  const Weight q_norm = r.operands.weight("q_norm"), k_norm = r.operands.weight("k_norm");
  const Span q = r.operands.input("q"), k = r.operands.input("k"), v = r.operands.input("v"),
             pages = r.operands.state("kv");
  Span counters;
  Rotation rotation;
  SWY_VK_TRY(rotation_of(r, a.rotary_dim, a.rope_theta, a.rope_scale, rotation));
  SWY_VK_TRY(take_counters(r.list, rows * j.cut.groups, counters, r.error));
  struct {
    uint64_t q, k, v, q_norm, k_norm, pages, turns, y, parts, stats, counters, step, sinks;
    uint32_t heads, kv_heads, split_positions;
    float scale, eps, bias;
  } push{};
  const Weight sinks = r.operands.weight("sinks");
  const Span y = r.operands.output("y");
  push = {q.address,        k.address,      v.address,  q_norm.data,       k_norm.data,
          pages.address,    rotation.turns, y.address,  j.parts.address,   j.stats.address,
          counters.address, r.step(),       sinks.data, a.heads,           a.kv_heads,
          j.cut.positions,  a.scale,        a.norm_eps, a.norm_weight_bias};
  const uint32_t types = (q_norm.form & 15u) | (k_norm.form & 15u) << 4;
  const uint32_t per_lane = ceil_div(a.head_dim / 4, r.device().features.subgroup);
  return launch(r, kStep,
                {a.head_dim, r.device().kv_bf16, a.gated, j.cut.heads, per_lane, 4u, types, a.rotary_dim,
                 rotation.table, rotation.scale_bits, a.window, sinks.form & 15u},
                {j.cut.groups, j.cut.splits, rows}, push, {q, k, v}, {y, pages, j.parts, j.stats, counters});
}

uint64_t workspace_step(const swy_device&, const swy_op& op, const swy_bucket& bucket) {
  Arena arena;
  take_joined(arena, op, bucket);
  return arena.used();
}

template <bool kSplit>
uint64_t workspace(const swy_device&, const swy_op& op, const swy_bucket& bucket) {
  const swy_attention_attrs a = swy_attention_of(&op);
  const Cut cut = cut_of(op, bucket, kSplit);
  Arena arena;
  if (op.id == SWY_OP_ATTENTION) arena.take(rows_of(op) * a.heads * a.head_dim * 4);
  arena.take(kSplit ? rows_of(op) * cut.groups * cut.splits * cut.heads * (a.head_dim + 2) * 4 : 0);
  return arena.used();
}

swy_status supports_any(const swy_device&, const swy_op& op, const swy_bucket&, swy_error* error) {
  const swy_attention_attrs a = swy_attention_of(&op);
  if (a.head_dim % 4 == 0 && a.head_dim <= kMostHeadDim && rows_of(op) <= 65535) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "head_dim is %u; it must be a multiple of 4, at most %u",
                   a.head_dim, kMostHeadDim);
}
swy_status supports_split(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  if (rows_of(op) > kManyRows) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "serves at most %u rows", kManyRows);
  }
  return supports_any(device, op, bucket, error);
}

swy_status supports_step(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  if ((bucket.flags & SWY_BUCKET_DECODE) == 0 || rows_of(op) > kManyRows) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_FLAGS,
                     "serves steps with one row per sequence, and at most %u rows", kManyRows);
  }
  return supports_any(device, op, bucket, error);
}

// Positions that the last row reads.
double context_of(const swy_attention_attrs& a, const swy_bucket& bucket) {
  return a.window == 0 ? bucket.context : at_most(a.window, bucket.context);
}

double cost_rows(const swy_op& op, const swy_bucket& bucket) {
  const swy_attention_attrs a = swy_attention_of(&op);
  const double rows = static_cast<double>(rows_of(op)), context = context_of(a, bucket);
  const double seen = rows <= context ? context - rows / 2 : context;
  return cost_of(row_bytes(op), 0, 2) + rows * seen * a.heads * a.head_dim / 2e6 + seen * a.head_dim / 4e3;
}
double cost_split(const swy_op& op, const swy_bucket& bucket) {
  const swy_attention_attrs a = swy_attention_of(&op);
  const double rows = static_cast<double>(rows_of(op)), context = context_of(a, bucket);
  return cost_of(row_bytes(op), 0, 3) + rows * context * a.heads * a.head_dim / 1e6;
}

double cost_step(const swy_op& op, const swy_bucket& bucket) { return cost_split(op, bucket) - 6; }

// Where the context is divided depends on the bucket, and so do the bits of split rows.
constexpr Kernel split_kernel(const char* name, uint32_t op) {
  return {.name = name,
          .op = op,
          .flags = kAlways,
          .activations = SWY_BF16,
          .supports = supports_split,
          .cost = cost_split,
          .workspace = workspace<true>,
          .record = record_attention<true>,
          .op_revision = 2};
}
constexpr Kernel rows_kernel(const char* name, uint32_t op) {
  return {.name = name,
          .op = op,
          .flags = kInvariant,
          .activations = SWY_BF16,
          .supports = supports_any,
          .cost = cost_rows,
          .workspace = workspace<false>,
          .record = record_attention<false>,
          .op_revision = 2};
}
constexpr Kernel kKernels[] = {
    {.name = "attention.step",
     .op = SWY_OP_ATTENTION,
     .flags = kAlways,
     .activations = SWY_BF16,
     .supports = supports_step,
     .cost = cost_step,
     .workspace = workspace_step,
     .record = record_step,
     .op_revision = 2},
    split_kernel("attention.split", SWY_OP_ATTENTION),
    rows_kernel("attention.rows", SWY_OP_ATTENTION),
    split_kernel("attend.split", SWY_OP_ATTEND),
    rows_kernel("attend.rows", SWY_OP_ATTEND),
};

}  // namespace

std::span<const Kernel> attention_kernels() { return kKernels; }

}  // namespace gpu
