// SPDX-License-Identifier: Apache-2.0
// MOE, MOE_ADD and EXPERTS for many rows, with 4-bit experts and activations as bytes: on Hopper (moe_bytes.cuh), and
// on other cards by moe_byte_tiles.cu.
#include "moe_bytes.h"

#include <algorithm>

#include "moe_byte_parts.cuh"
#include "moe_byte_tiles.h"
#include "moe_bytes.cuh"
#include "moe_combine.cuh"
#include "moe_scaled_bytes.h"

namespace gpu {
namespace {

// Whether experts have many rows on average: more than a tile of scaled_bytes.cuh, twice. Between 42 rows, where that
// is faster, and 256, where it is not, nothing was measured.
bool many_rows(const swy_op& op) {
  const swy_moe_attrs a = moe_attrs(op);
  return uint64_t{rows_of(op)} * a.top_k >= uint64_t{a.experts} * 128;
}

// Layout of the workspace after the operands.
void place(ByteMixture& b, Arena& arena, const swy_op& op) {
  const uint32_t width = widest_expert(op);
  place_grouped(b.g, arena, op, kByteRows, byte_spans(width));
  place_byte_rows(b, arena, hidden_of(op), width);
}

swy_status record_experts(const Recording& r, const ByteMixture& b) {
  const Mixture& m = b.g.m;
  GateUpWeights gate_up{};
  DownWeights down{};
  SWY_CUDA_TRY(stream_experts(r, m, gate_up, down));
  const uint32_t parts = m.shared_width != 0 ? kRouted | kShared : kRouted;
  const auto processors = static_cast<uint32_t>(r.device().processors);
  const uint32_t width = std::max(m.width, m.shared_width);
  const ByteShape of_hidden = byte_shape(r.device().features.block_memory, m.hidden, b.g.most_rows);
  const ByteShape of_width = byte_shape(r.device().features.block_memory, width, b.g.most_rows);
  SWY_CUDA_TRY(launch(r, gate_up_bytes, processors, kByteThreads, of_hidden.bytes(), b, gate_up, parts, spans_of(width),
                      of_hidden));
  SWY_CUDA_TRY(record_h_bytes(r, b));
  return launch(r, down_bytes, processors, kByteThreads, of_width.bytes(), b, down, parts,
                ceil_div(m.hidden, kTileRowsOfWeight), of_width);
}

// norm: of x, or null; next: as record_combine.
swy_status record_mixture(const Recording& r, const Mixture& m, Arena arena, const InputNorm* norm,
                          const NormedBytes* next) {
  if (!many_rows(r.op)) return record_scaled_bytes(r, m, arena, norm, next);
  ByteMixture b{};
  b.g.m = m;
  place(b, arena, r.op);
  const uint32_t rows = rows_of(r.op);
  SWY_CUDA_TRY(record_routes(r, b.g.m, norm));
  SWY_CUDA_TRY(launch(r, sort_tiles, 1, kSortThreads, 0, b.g, r.list.step));
  SWY_CUDA_TRY(launch(r, norm != nullptr ? gather_bytes<true> : gather_bytes<false>, rows, kRowWarps * 32, 0, b,
                      norm != nullptr ? *norm : InputNorm{}, r.list.step));
  SWY_CUDA_TRY(record_experts(r, b));
  return record_combine(r, b.g, next);
}

swy_status record_bytes(const Recording& r) {
  if (!r.device().features.wgmma) return record_byte_tiles(r);
  Arena arena(r.operands.workspace());
  const Mixture m = mixture_of(r, arena, false);
  return record_mixture(r, m, arena, nullptr, nullptr);
}

bool router_readable(const swy_device& device, const swy_op& op) {
  if (op.id == SWY_OP_EXPERTS) return true;
  const swy_tensor& router = swy::tensor(op, "router");
  if (!device.features.wgmma) return readable_by_vectors(router);
  return router_is_narrow(op) || readable_in_pieces(router);
}
// Whether a block's memory has room for what is as long as a row. Without wgmma that is the row of a router that is not
// narrow.
bool rows_fit(const swy_device& device, const swy_op& op) {
  const uint32_t memory = device.features.block_memory;
  if (!device.features.wgmma) {
    return op.id == SWY_OP_EXPERTS || router_is_narrow(op) || hidden_of(op) * 12 + 4096 <= memory;
  }
  if (!many_rows(op)) return scaled_bytes_fit(device, op);
  return byte_shape(memory, std::max(hidden_of(op), widest_expert(op)), kByteRows).stages != 0;
}

swy_status supports_bytes(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  if (!device.bytes) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_DTYPE, "is off because of --set cuda.bytes=0");
  }
  if (rows_of(op) < kLeastBytesOfMixture) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "takes %u rows or more, the bucket has %u",
                     kLeastBytesOfMixture, rows_of(op));
  }
  SWY_CUDA_TRY(supports_router(device, op, bucket, error));
  const swy_moe_attrs a = moe_attrs(op);
  SWY_CUDA_TRY(
      supports_experts(op, multiplied_as_bytes, "multiplied as bytes (only i4 in groups of whole 64s)", error));
  if (a.shared_width != 0 && swy::tensor(op, "shared_gate_proj").group != swy::tensor(op, "shared_up_proj").group) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_DTYPE, "the shared expert's gate and up differ in groups");
  }
  if (!router_readable(device, op)) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "weight 0 cannot be read in pieces");
  }
  if (!rows_fit(device, op)) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "rows of %u elements do not fit",
                     std::max(hidden_of(op), widest_expert(op)));
  }
  if (a.experts > kMostSorted || hidden_of(op) % 8 != 0) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                     "%u experts of rows of %u; at most %u can be sorted, and rows must be a multiple of 8", a.experts,
                     static_cast<uint32_t>(hidden_of(op)), kMostSorted);
  }
  return SWY_OK;
}

// For few rows an expert: on an H200 within 3% of what was measured at 512, 1,341 and 8,192 rows. Without wgmma: not
// measured.
double cost_bytes(const swy_device& device, const swy_op& op, const swy_bucket&) {
  const MixtureWork work = mixture_work(op);
  if (!device.features.wgmma) {
    return 60 + device.rates.bytes(2 * row_bytes(op) + work.weight_bytes, 2.2e6) +
           device.rates.products(work.multiply_adds, 180e6);
  }
  return 20 + device.rates.bytes(2 * row_bytes(op) + work.weight_bytes, 3.9e6) +
         device.rates.products(work.multiply_adds, many_rows(op) ? 270e6 : 250e6);
}
uint64_t workspace(const swy_device& device, const swy_op& op, const swy_bucket&) {
  return device.features.wgmma ? moe_bytes_workspace(op) : byte_tiles_workspace(op);
}

constexpr Kernel kernel(const char* name, uint32_t op) {
  return {name, op, kAlways, SWY_I8, supports_bytes, cost_bytes, workspace, record_bytes};
}
constexpr Kernel kKernels[] = {kernel("moe.bytes", SWY_OP_MOE), kernel("moe_add.bytes", SWY_OP_MOE_ADD),
                               kernel("experts.bytes", SWY_OP_EXPERTS)};

}  // namespace

std::span<const Kernel> moe_bytes_kernels() { return kKernels; }

swy_status supports_normed_bytes(const swy_device& device, const swy_op& op, const swy_bucket& bucket,
                                 swy_error* error) {
  SWY_CUDA_TRY(needs_wgmma(device, error));
  SWY_CUDA_TRY(supports_bytes(device, op, bucket, error));
  const bool mixes = !swy::has(op, "shared_gate") || is_plain(swy::tensor(op, "shared_gate"));
  if (router_is_narrow(op) && mixes) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_DTYPE,
                   "the norm of many rows goes with a router of bf16 and a plain shared gate");
}
bool makes_next_bytes(const swy_op& op) { return hidden_of(op) <= kMostToBytes; }
double moe_bytes_cost(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  return cost_bytes(device, op, bucket);
}
uint64_t moe_bytes_workspace(const swy_op& op) {
  if (!many_rows(op)) return scaled_bytes_workspace(op);
  Arena arena(nullptr);
  ByteMixture b{};
  place(b, arena, op);
  return mixture_workspace(op, false) + arena.used();
}
swy_status record_normed_bytes(const Recording& r, void* workspace, const float* x, const InputNorm& norm,
                               const float* residual, float* y, const NormedBytes* next) {
  Arena arena(workspace);
  Mixture m = mixture_of(r, arena, false);
  m.x = x, m.residual = residual, m.y = y;
  return record_mixture(r, m, arena, &norm, next);
}

}  // namespace gpu
