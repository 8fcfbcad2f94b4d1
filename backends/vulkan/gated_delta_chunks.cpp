// SPDX-License-Identifier: Apache-2.0
// GATED_DELTA for prompts, by chunks of 32 rows: the inputs of the rule (gated_delta_prepare.comp), the triangles of
// all chunks (gated_delta_triangles.comp), the walk through them (gated_delta_chunks.comp), gated norm
// (gated_delta_gate.comp).
#include "gated_delta.h"

namespace gpu {
namespace {

#include "gated_delta_chunks.comp.h"
#include "gated_delta_triangles.comp.h"
constexpr Shader kTriangles = SWY_SHADER(gated_delta_triangles_comp), kWalk = SWY_SHADER(gated_delta_chunks_comp);
constexpr uint32_t kChunk = 32;

struct Chunks {
  Mixed mixed;
  Span inverse, within;  // [slots, value_heads, 32, 32]: T and W
  Span decay;            // [slots, value_heads, 32, 2]
  uint32_t slots = 0;
};
Chunks take_chunks(Arena& arena, const swy_op& op, const swy_bucket& bucket) {
  const auto& a = *static_cast<const swy_gated_delta_attrs*>(op.attrs);
  Chunks c;
  c.mixed = take_mixed(arena, op, bucket);
  c.slots = static_cast<uint32_t>(swy::tensor(op, "qkv").dims[0]) / kChunk + bucket.seqs;
  const uint64_t all = uint64_t{c.slots} * a.value_heads * kChunk;
  c.inverse = arena.take(all * kChunk * 4);
  c.within = arena.take(all * kChunk * 4);
  c.decay = arena.take(all * 8);
  return c;
}

swy_status record_triangles(const Recording& r, const Delta& d, const Chunks& c) {
  const auto& a = r.attrs<swy_gated_delta_attrs>();
  struct {
    uint64_t mixed, gate, inverse, within, decay, step;
    uint32_t key_heads, value_heads;
  } push{};
  push = {c.mixed.rows.address, c.mixed.gate.address, c.inverse.address, c.within.address, c.decay.address, r.step(),
          a.key_heads,          a.value_heads};
  return launch(r, kTriangles, {a.key_dim, a.value_dim, a.conv_kernel, d.types}, {c.slots, a.value_heads}, push,
                {c.mixed.rows, c.mixed.gate}, {c.inverse, c.within, c.decay});
}

swy_status record_walk(const Recording& r, const Delta& d, const Chunks& c) {
  const auto& a = r.attrs<swy_gated_delta_attrs>();
  struct {
    uint64_t qkv, mixed, inverse, within, decay, conv_state, rule_state, o, step, pending;
    uint32_t key_heads, value_heads, pending_rows, unused;
  } push{};
  push = {d.qkv.address,
          c.mixed.rows.address,
          c.inverse.address,
          c.within.address,
          c.decay.address,
          d.conv_state.address,
          d.rule_state.address,
          d.y.address,
          r.step(),
          d.pending.address,
          a.key_heads,
          a.value_heads,
          d.pending_rows,
          0};
  return launch(r, kWalk, {a.key_dim, a.value_dim, a.conv_kernel, d.types},
                {ceil_div(a.value_dim, 32), a.value_heads, r.bucket().seqs}, push,
                {d.qkv, c.mixed.rows, c.inverse, c.within, c.decay, d.pending}, {d.y, d.conv_state, d.rule_state});
}

swy_status record(const Recording& r) {
  const Delta d = delta_of(r);
  Arena arena(r.operands.workspace());
  const Chunks c = take_chunks(arena, r.op, r.bucket());
  SWY_VK_TRY(record_delta_mix(r, d, c.mixed, true));
  if (d.pending_rows > 0) SWY_VK_TRY(record_stands(r, d, c.mixed));
  SWY_VK_TRY(record_triangles(r, d, c));
  SWY_VK_TRY(record_walk(r, d, c));
  return record_delta_gate(r, d);
}

uint64_t workspace(const swy_device&, const swy_op& op, const swy_bucket& bucket) {
  Arena arena;
  take_chunks(arena, op, bucket);
  return arena.used();
}

swy_status supports(const swy_device&, const swy_op& op, const swy_bucket&, swy_error* error) {
  const auto& a = *static_cast<const swy_gated_delta_attrs*>(op.attrs);
  if (a.key_dim % 4 == 0 && a.key_dim <= 128 && swy::tensor(op, "qkv").dims[1] % 4 == 0) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                   "key_dim is %u, of %llu channels; multiples of 4 are needed, and at most 128", a.key_dim,
                   static_cast<unsigned long long>(swy::tensor(op, "qkv").dims[1]));
}

// Sequences are processed in parallel, 3 us a chunk.
double cost(const swy_op& op, const swy_bucket& bucket) {
  const auto& a = *static_cast<const swy_gated_delta_attrs*>(op.attrs);
  const double state = static_cast<double>(a.value_heads) * a.key_dim * a.value_dim;
  const double chunks = bucket.rows / static_cast<double>(kChunk) + bucket.seqs;
  return cost_of(row_bytes(op) + 8 * state * bucket.seqs, 0, 4) + 10 + chunks * state / 170e3;
}

// A chunk begins with the first row that a step has of a sequence.
constexpr Kernel kKernels[] = {{.name = "gated_delta.chunks",
                                .op = SWY_OP_GATED_DELTA,
                                .flags = kAlways,
                                .activations = SWY_F32,
                                .supports = supports,
                                .cost = cost,
                                .workspace = workspace,
                                .record = record,
                                .op_revision = 2}};

}  // namespace

std::span<const Kernel> gated_delta_chunks_kernels() { return kKernels; }

}  // namespace gpu
