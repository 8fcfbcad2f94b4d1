// SPDX-License-Identifier: Apache-2.0
// GATED_DELTA for prompts: its kernels in order, and when it is used.
#include "gated_delta_prompt.h"

#include "gated_delta_chunks.cuh"

namespace gpu {
namespace {

constexpr uint32_t kFew = 8;  // rows that cost less token by token than as a chunk

void place(Chunks& c, Arena& arena, const swy_gated_delta_attrs& a, const swy_bucket& bucket) {
  c.slots = part_numbers(bucket, kChunk);
  c.few = bucket.seqs > 1 ? kFew : 0;
  const uint64_t keys = uint64_t{c.slots} * a.key_heads * kChunk * a.key_dim;
  const uint64_t heads = uint64_t{c.slots} * a.value_heads;
  c.q = arena.take<uint16_t>(keys);
  c.k = arena.take<uint16_t>(keys);
  c.v = arena.take<uint16_t>(heads * c.slices() * kChunk * kSlice);
  c.inverse = arena.take<uint16_t>(heads * kChunkTile);
  c.within = arena.take<uint16_t>(heads * kChunkTile);
  c.decay = arena.take<float2>(heads * kChunk);
}

const swy_gated_delta_attrs& attrs_of(const swy_op& op) { return *static_cast<const swy_gated_delta_attrs*>(op.attrs); }

// Up to the gated norm.
swy_status record_rule(const Recording& r, Chunks& c, Arena arena) {
  c.d = delta_of(r);
  place(c, arena, attrs_of(r.op), r.bucket());
  if (c.pends()) SWY_CUDA_TRY(record_stands(r, c.d));
  SWY_CUDA_TRY(record_triangles(r, c));
  if (c.pends()) SWY_CUDA_TRY(record_kept_inputs(r, c.d));
  SWY_CUDA_TRY(record_few(r, c));
  return record_chunks(r, c);
}

swy_status record(const Recording& r) {
  Chunks c{};
  SWY_CUDA_TRY(record_rule(r, c, Arena(r.operands.workspace())));
  return record_gated_norm(r, c);
}

swy_status supports(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  const auto& a = attrs_of(op);
  const bool dims =
      (a.key_dim == 32 || a.key_dim == 64 || a.key_dim == 128) && a.value_dim % 16 == 0 && a.value_dim <= 128;
  if (!dims || a.conv_kernel > 4 || bucket.rows > 65535 * 8) {
    return swy::fail(
        error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
        "key_dim %u, value_dim %u, kernel %u; key_dim of 32, 64 or 128, value_dim a multiple of 16 to 128, "
        "kernel to 4",
        a.key_dim, a.value_dim, a.conv_kernel);
  }
  if (device.features.block_memory < least_block_memory()) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "needs %u bytes of shared memory in a block",
                     least_block_memory());
  }
  return SWY_OK;
}

// Activations pass through memory more than twice, and each kernel begins with several dependent loads.
double cost(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  return 15 + cost_of(device, 2.6 * row_bytes(op) + state_bytes(device, op, bucket), 0, 4);
}

uint64_t workspace(const swy_device&, const swy_op& op, const swy_bucket& bucket) {
  return delta_chunks_workspace(op, bucket);
}

constexpr Kernel kKernels[] = {{.name = "gated_delta.chunks",
                                .op = SWY_OP_GATED_DELTA,
                                .flags = kAlways,
                                .activations = SWY_BF16,
                                .supports = supports,
                                .cost = cost,
                                .workspace = workspace,
                                .record = record,
                                .op_revision = 2}};

}  // namespace

std::span<const Kernel> gated_delta_chunks_kernels() { return kKernels; }

swy_status supports_delta_chunks(const swy_device& device, const swy_op& op, const swy_bucket& bucket,
                                 swy_error* error) {
  constexpr uint32_t kMostRows = 65535;
  SWY_CUDA_TRY(supports(device, op, bucket, error));
  const auto& a = attrs_of(op);
  const uint32_t values = a.value_heads * a.value_dim;
  if (kByteColumns % a.value_dim == 0 && values % kByteColumns == 0 && bucket.rows <= kMostRows) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                   "%u rows with %u heads of %u values; as bytes at most %u, of whole %us, with heads that divide %u",
                   bucket.rows, a.value_heads, a.value_dim, kMostRows, kByteColumns, kByteColumns);
}
double delta_chunks_cost(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  return cost(device, op, bucket);
}
uint64_t delta_chunks_workspace(const swy_op& op, const swy_bucket& bucket) {
  Arena arena(nullptr);
  Chunks c{};
  c.d.value_dim = attrs_of(op).value_dim;
  place(c, arena, attrs_of(op), bucket);
  return arena.used();
}
swy_status record_delta_chunks(const Recording& r, char* workspace, const ByteRows& to) {
  Chunks c{};
  SWY_CUDA_TRY(record_rule(r, c, Arena(workspace)));
  return record_heads_to_bytes(r, c, to);
}

}  // namespace gpu
