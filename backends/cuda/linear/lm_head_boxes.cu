// SPDX-License-Identifier: Apache-2.0
// LM_HEAD and LM_HEAD_SAMPLE of one row on Hopper (boxes.cuh), at the rate of memory.
//
// Blocks fill the device once and take turns at pairs of tiles, 32 rows. In a block one warp requests pairs in advance;
// eight warps multiply, each its own columns; two warps add up their sums and sample. No warp waits for all others:
// stages of weights and of sums are passed on through barriers in shared memory.
// Cards without the copy engine have the projection's kernel (linear_boxes.cu), and one that draws from its logits.
#include <algorithm>

#include "common/projection.cuh"
#include "linear_boxes.h"
#include "lm_head_boxes.cuh"
#include "sampling/sampling.cuh"

namespace gpu {
namespace {

constexpr uint32_t kHeadThreads = 32 * (kFirstDrawWarp + kDrawWarps), kDrawThreads = 256;
constexpr uint32_t kDrawBlocks = 128;  // on small cards, too: top-k wants at least 4/3 k parts (truncated.cuh)

uint32_t pairs_of(const swy_op& op) { return ceil_div(swy::tensor(op, "w").dims[0], kPairRows); }
uint32_t head_blocks(const swy_device& device, const swy_op& op) {
  return std::min(static_cast<uint32_t>(device.processors), pairs_of(op));
}
// Parts of the vocabulary that a row is drawn from.
uint32_t parts_of(const swy_device& device, const swy_op& op) {
  return device.features.copy_engine ? head_blocks(device, op) : kDrawBlocks;
}
uint32_t shared_bytes(const swy_device& device, const Weight& w) {
  return std::max(1024 + kStages * (slices_of(w) * kPairBytes + scales_bytes(w, kPairRows)), alone_memory(device));
}

template <bool kOffsets>
__global__ void __launch_bounds__(kHeadThreads, 2)
    head_boxes(const __grid_constant__ CUtensorMap map, const __grid_constant__ HeadBoxes h, float* y,
               const swy_step* step) {
#if __CUDA_ARCH__ >= 900
  Stamps stamps(kStampHead);
  head_block<kOffsets>(map, h, step, stamps, [&](uint32_t id, float logit) { y[id] = logit; });
#endif
}

// Samples while it multiplies, as head_sample in lm_head.cu does. blockIdx.x is a part of the vocabulary.
template <bool kOffsets>
__global__ void __launch_bounds__(kHeadThreads, 2)
    head_sample_boxes(const __grid_constant__ CUtensorMap map, const __grid_constant__ HeadBoxes h,
                      const __grid_constant__ Draws d, const swy_step* step) {
#if __CUDA_ARCH__ >= 900
  __shared__ uint64_t scratch[32];
  Stamps stamps(kStampHead);
  Best best;
  const bool draws = step->sample_rows > 0;
  const Draw r = draws ? searched(draw_of(d, step, 0)) : Draw{};
  head_block<kOffsets>(map, h, step, stamps, [&](uint32_t id, float logit) {
    if (!draws) return;
    if (!r.simple) const_cast<float*>(d.logits)[id] = logit;
    if (r.token_only) best.look(r, id, logit);
  });
  best.give(d, blockIdx.x, scratch);
#endif
}

// Without the copy engine the projection writes logits, and this draws from them.
__global__ void __launch_bounds__(kDrawThreads) draw_logits(const __grid_constant__ Draws d, const swy_step* step) {
  __shared__ uint64_t scratch[32];
  depend();
  release_next();
  Best best;
  const Draw r = step->sample_rows > 0 ? searched(draw_of(d, step, 0)) : Draw{};
  for (uint32_t id = blockIdx.x * kDrawThreads + threadIdx.x; r.token_only && id < d.vocab;
       id += gridDim.x * kDrawThreads) {
    best.look(r, id, __ldcg(d.logits + id));
  }
  best.give(d, blockIdx.x, scratch);
}

swy_status supports(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  if (bucket.logit_rows != 1 || bucket.sample_rows > 1) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "serves steps with one wanted row");
  }
  if (!device.features.copy_engine) {
    if (bucket.rows == 1) return supports_boxes(device, op, 0, error);
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "without a copy engine, serves steps with one row");
  }
  const Weight w = weight_of(swy::tensor(op, "w"), nullptr);
  if (!in_slices(w) || w.width > kBoxWarps * kSlice) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                     "%u columns are not up to 8 times 256, of 4 bits in groups of 64 or a multiple", w.width);
  }
  if (shared_bytes(device, w) > device.features.block_memory) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "needs %u bytes of shared memory; a block may have %u",
                     shared_bytes(device, w), device.features.block_memory);
  }
  return SWY_OK;
}

double cost(const swy_device& device, const swy_op& op, const swy_bucket&) {
  return 2 + device.rates.bytes(weight_bytes(swy::tensor(op, "w")), 4e6);  // not above the strips, where memory decides
}
double cost_sampled(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  return cost(device, op, bucket) + kDrawCost;
}

uint64_t workspace(const swy_device& device, const swy_op& op, const swy_bucket&) {
  return draws_bytes(device, op, parts_of(device, op)) + swy::tensor(op, "w").dims[0] * 4;
}

HeadBoxes boxes_of(const Recording& r, const RowsNorm& norm) {
  return {r.operands.input("x"), r.operands.weight("w"), pairs_of(r.op), norm};
}

swy_status record_head(const Recording& r, const RowsNorm& norm) {
  if (!r.device().features.copy_engine) {
    return record_boxes(r, head_projection(r, r.operands.output("logits")), nullptr);
  }
  const HeadBoxes h = boxes_of(r, norm);
  CUtensorMap map;
  SWY_CUDA_TRY(map_boxes(h.w, kPairRows, &map, r.error));
  return launch(r, h.w.offsets != nullptr ? head_boxes<true> : head_boxes<false>, head_blocks(r.device(), r.op),
                kHeadThreads, shared_bytes(r.device(), h.w), map, h, r.operands.output("logits"), r.list.step);
}

swy_status record_sampled(const Recording& r, const RowsNorm& norm) {
  const HeadBoxes h = boxes_of(r, norm);
  const uint32_t parts = parts_of(r.device(), r.op);
  Arena arena(r.operands.workspace());
  Draws d = draws_of(r, h.w.rows, parts, arena);
  auto* logits = arena.take<float>(d.vocab);
  d.logits = logits;
  if (!r.device().features.copy_engine) {
    SWY_CUDA_TRY(record_boxes(r, head_projection(r, logits), nullptr));
    SWY_CUDA_TRY(launch(r, draw_logits, parts, kDrawThreads, 0, d, r.list.step));
    return record_finish(r, d);
  }
  CUtensorMap map;
  SWY_CUDA_TRY(map_boxes(h.w, kPairRows, &map, r.error));
  SWY_CUDA_TRY(launch(r, h.w.offsets != nullptr ? head_sample_boxes<true> : head_sample_boxes<false>, parts,
                      kHeadThreads, shared_bytes(r.device(), h.w), map, h, d, r.list.step));
  return record_finish(r, d);
}

swy_status record_head_alone(const Recording& r) { return record_head(r, {}); }
swy_status record_sampled_alone(const Recording& r) { return record_sampled(r, {}); }

constexpr Kernel kKernels[] = {
    {"lm_head.boxes", SWY_OP_LM_HEAD, kAlways, SWY_BF16, supports, cost, nullptr, record_head_alone},
    {"lm_head_sample.boxes", SWY_OP_LM_HEAD_SAMPLE, kAlways, SWY_BF16, supports, cost_sampled, workspace,
     record_sampled_alone},
};

swy_status supports_normed(const swy_device& device, const swy_op& op, const swy_bucket& bucket, bool kept,
                           swy_error* error) {
  SWY_CUDA_TRY(needs_copy_engine(device, error));
  SWY_CUDA_TRY(supports(device, op, bucket, error));
  if (!kept || bucket.rows == 1) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "rows of the norm that nobody wants logits of are read");
}
swy_status record_normed(const Recording& r, const RowsNorm& norm) {
  return r.op.id == SWY_OP_LM_HEAD ? record_head(r, norm) : record_sampled(r, norm);
}
double cost_normed(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  return op.id == SWY_OP_LM_HEAD ? cost(device, op, bucket) : cost_sampled(device, op, bucket);
}
uint64_t workspace_normed(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  return op.id == SWY_OP_LM_HEAD ? 0 : workspace(device, op, bucket);
}

}  // namespace

const NormedHead& normed_head_boxes() {
  static const NormedHead head{supports_normed, cost_normed, workspace_normed, record_normed};
  return head;
}
std::span<const Kernel> lm_head_boxes_kernels() { return kKernels; }

}  // namespace gpu
