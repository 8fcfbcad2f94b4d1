// SPDX-License-Identifier: Apache-2.0
// LM_HEAD and LM_HEAD_SAMPLE of 2 to 32 rows on Hopper (lm_head_few.cuh), at the rate of memory.
//
// lm_head_sample.few samples while it multiplies: for rows whose largest key decides, no logit is written.
#include <algorithm>

#include "common/boxes.cuh"
#include "common/projection.cuh"
#include "lm_head_few.cuh"
#include "lm_head_normed.h"
#include "sampling/sampling.cuh"

namespace gpu {
namespace {

constexpr uint32_t kRowsThreads = 128, kNormThreads = 256;

#ifdef SWY_HOPPER

// A block's results for each sampling row.
struct FoundByBlock {
  unsigned long long key[kHeadMostRows];
  uint32_t bad[kHeadMostRows];
};

// The sampling row of a lane. Unless penalties or biases may raise its logits, only those that may beat what the
// block's warps have found before are examined.
template <int N>
struct LaneDraw {
  static constexpr uint32_t kApart = 32 / N, kIds = 16 / kApart;  // lanes of a row, and ids of each
  const Draws& d;
  const swy_step* step;
  LogitBound bound;
  uint32_t row = 0;
  bool draws = false, bounded = false;
  uint32_t written = 0;  // one bit for each row whose logits are wanted, over all lanes

  __device__ LaneDraw(const Draws& draws_of_rows, const swy_step* s) : d(draws_of_rows), step(s) {
    const uint32_t i = threadIdx.x % N;
    if (i < step->sample_rows) {
      const Draw r = searched(draw_of(d, step, i));
      row = r.slot->logit_row;
      draws = r.token_only;
      bounded = r.slot->bias_count == 0 && never_raised(r);
      bound = LogitBound(r);
      if (!r.simple) written = 1u << row;
    }
    written = __reduce_or_sync(kAll, written);
  }

  // The most promising id is examined first, so that of a block's first tiles most others are not.
  template <class Block>
  __device__ void look(const Block& block, uint32_t tile, FoundByBlock& found) const {
    const uint32_t i = threadIdx.x % N, part = threadIdx.x % 32 / N, vocab = block.h.w.rows;
    if (!draws) return;
    Best best;
    best.key = *const_cast<volatile unsigned long long*>(&found.key[i]);
    const uint64_t before = best.key;
    uint32_t ids[kIds];
    float most[kIds], top = -INFINITY;
#pragma unroll
    for (uint32_t k = 0; k < kIds; ++k) {
      ids[k] = block.id_of(tile, k * kApart + part);
      most[k] = bounded ? block.staged(k * kApart + part, row) : INFINITY;
    }
    if (bounded) bound.apply(ids, most);
#pragma unroll
    for (uint32_t k = 0; k < kIds; ++k) {
      if (ids[k] >= vocab) most[k] = -INFINITY;
      top = fmaxf(top, most[k]);
    }
    if (top < best.bound()) return;
    const Draw r = searched(draw_of(d, step, i));
#pragma unroll 1
    do {
      const uint32_t j = take_top(most, top) * kApart + part;
      best.look(r, block.id_of(tile, j), block.staged(j, row));
    } while (!(top < best.bound()));
    if (best.key > before) atomicMax(&found.key[i], best.key);
    if (best.bad != 0) found.bad[i] = 1;
  }
};

#endif

// Writes the wanted rows as the second operand; places of rows that do not exist keep their contents.
__global__ void __launch_bounds__(kRowsThreads)
    head_rows(const __grid_constant__ HeadFew h, uint32_t n, const swy_step* step) {
#ifdef SWY_HOPPER
  const uint32_t m = blockIdx.y, i = blockIdx.x * kRowsThreads + threadIdx.x;
  const bool there = m < step->logit_rows && i < h.w.width / 8;
  const uint32_t row = there ? step_array<uint32_t>(step, step->logit_row_at)[m] : 0;
  depend();
  release_next();
  if (!there) return;
  const auto* from = reinterpret_cast<const float4*>(h.x + uint64_t{row} * h.w.width) + 2 * i;
  put_eight(h, n, m, i, __ldcg(from), __ldcg(from + 1));
#endif
}

// The same of rows that it norms first, a row in a block: each wanted row or, if the normed rows are kept, each row of
// the step.
__global__ void __launch_bounds__(kNormThreads)
    head_rows_normed(const __grid_constant__ HeadFew h, const __grid_constant__ RowsNorm norm, uint32_t n,
                     const swy_step* step) {
#ifdef SWY_HOPPER
  __shared__ float scratch[32];
  Stamps stamps(kStampNorm);
  const bool kept = norm.y != nullptr;
  const uint32_t wanted = step->logit_rows, i = threadIdx.x, pieces = h.w.width / 8;
  const uint32_t* rows = step_array<uint32_t>(step, step->logit_row_at);
  const bool there = blockIdx.x < (kept ? step->rows : wanted), has = i < pieces;
  const uint32_t row = kept || !there ? blockIdx.x : rows[blockIdx.x];
  float v[8] = {}, factors[8] = {}, squares = 0;
  if (has) plain_eight(norm.weight, i, factors);
  release_next();
  stamps.take_place();
  depend();
  stamps.note(kWaited);
  if (!there) return;
  if (has) load_eight_fresh(h.x + uint64_t{row} * h.w.width + 8 * i, v);
#pragma unroll
  for (uint32_t j = 0; j < 8; ++j) squares = fmaf(v[j], v[j], squares);
  const float scale = rsqrtf(block_sum(squares, scratch) / static_cast<float>(h.w.width) + norm.eps);
  if (!has) return;
#pragma unroll
  for (uint32_t j = 0; j < 8; ++j) v[j] *= scale * (norm.bias + factors[j]);
  const float4 low = make_float4(v[0], v[1], v[2], v[3]), high = make_float4(v[4], v[5], v[6], v[7]);
  if (!kept) {
    put_eight(h, n, blockIdx.x, i, low, high);
    return;
  }
  auto* y = reinterpret_cast<float4*>(norm.y + uint64_t{row} * h.w.width) + 2 * i;
  y[0] = low, y[1] = high;
  for (uint32_t m = 0; m < wanted; ++m) {
    if (rows[m] == row) put_eight(h, n, m, i, low, high);
  }
#endif
}

template <int N, bool kAffine>
__global__ void __launch_bounds__(kHeadThreads, 1)
    head_few(const __grid_constant__ CUtensorMap map, const __grid_constant__ HeadFew h, float* y,
             const swy_step* step) {
#ifdef SWY_HOPPER
  extern __shared__ char dynamic[];
  __shared__ HeadFewShared shared;
  Stamps stamps(kStampHead);
  HeadBlock<N, kAffine> block(h, shared, dynamic);
  const uint32_t rows = step->logit_rows, all = rows >= 32 ? ~0u : (1u << rows) - 1;
  block.run(map, stamps, [&](uint32_t tile) { block.write(y, tile, all); });
#endif
}

template <int N, bool kAffine>
__global__ void __launch_bounds__(kHeadThreads, 1)
    head_sample_few(const __grid_constant__ CUtensorMap map, const __grid_constant__ HeadFew h,
                    const __grid_constant__ Draws d, const swy_step* step) {
#ifdef SWY_HOPPER
  extern __shared__ char dynamic[];
  __shared__ HeadFewShared shared;
  __shared__ FoundByBlock found;
  Stamps stamps(kStampHead);
  if (threadIdx.x < kHeadMostRows) found.key[threadIdx.x] = 0, found.bad[threadIdx.x] = 0;
  HeadBlock<N, kAffine> block(h, shared, dynamic);
  const LaneDraw<N> draw(d, step);
  block.run(map, stamps, [&](uint32_t tile) {
    if (draw.written != 0) block.write(const_cast<float*>(d.logits), tile, draw.written);
    draw.look(block, tile, found);
  });
  __syncthreads();
  if (threadIdx.x < step->sample_rows) {
    d.best[uint64_t{threadIdx.x} * d.parts + blockIdx.x] = found.key[threadIdx.x];
    d.bad[uint64_t{threadIdx.x} * d.parts + blockIdx.x] = found.bad[threadIdx.x];
  }
#endif
}

// ---- what fits into a block

// For a weight in steps with up to `rows` wanted rows.
struct HeadFewCut {
  uint32_t n, slots, blocks, shared_bytes;  // n: rows that fit

  HeadFewCut(const swy_device& device, const Weight& w, uint32_t rows) {
    constexpr uint32_t kOther = 2048;  // barriers and sampling results; the alignment of dynamic memory comes on top
    n = rows <= 8 ? 8 : rows <= 16 ? 16 : kHeadMostRows;
    const uint32_t fixed = 1024 + head_rows_bytes(w.width, n) + head_staging_bytes(n);
    const auto room = static_cast<uint32_t>(device.features.block_memory) - kOther;
    slots = fixed > room ? 0 : std::min((room - fixed) / (kHeadTeams * kHeadBoxBytes), kHeadMostSlots);
    blocks = std::min(static_cast<uint32_t>(device.processors), ceil_div(w.rows, kHeadTile));
    shared_bytes = fixed + slots * kHeadTeams * kHeadBoxBytes;
  }
};
HeadFewCut cut_of(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  return {device, weight_of(swy::tensor(op, "w"), nullptr), std::max(bucket.logit_rows, bucket.sample_rows)};
}

swy_status supports(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  const uint32_t rows = std::max(bucket.logit_rows, bucket.sample_rows);
  if (rows < 2 || rows > kHeadMostRows) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "takes 2 to %u wanted rows, the bucket has %u",
                     kHeadMostRows, rows);
  }
  SWY_CUDA_TRY(needs_wgmma(device, error));
  const Weight w = weight_of(swy::tensor(op, "w"), nullptr);
  if ((w.dtype != SWY_I4 && w.dtype != SWY_I4A) || w.groups * kHeadGroup != w.width) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_DTYPE, "takes weights of 4 bits in groups of %u", kHeadGroup);
  }
  if (w.width % kHeadBoxColumns != 0 || w.width > kHeadMostBoxes * kHeadBoxColumns) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "%u columns; takes multiples of %u up to %u", w.width,
                     kHeadBoxColumns, kHeadMostBoxes * kHeadBoxColumns);
  }
  if (cut_of(device, op, bucket).slots < 2) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "%u rows of %u columns do not fit into a block's memory",
                     rows, w.width);
  }
  return SWY_OK;
}

double cost(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  return 8 + 0.15 * bucket.logit_rows + device.rates.bytes(weight_bytes(swy::tensor(op, "w")), 3.7e6);
}
double cost_sampled(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  return cost(device, op, bucket) + kDrawCost;
}

uint64_t operand_pieces(const Weight& w, const HeadFewCut& cut) { return head_rows_bytes(w.width, cut.n) / 16; }

uint64_t workspace(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  Arena arena(nullptr);
  arena.take<uint4>(operand_pieces(weight_of(swy::tensor(op, "w"), nullptr), cut_of(device, op, bucket)));
  return arena.used();
}
uint64_t workspace_sampled(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  return workspace(device, op, bucket) + draws_bytes(device, op, cut_of(device, op, bucket).blocks) +
         uint64_t{bucket.logit_rows} * swy::tensor(op, "w").dims[0] * 4;
}

// Also records the kernel that makes the operand, which lies in the workspace.
swy_status begin_few(const Recording& r, const HeadFewCut& cut, const RowsNorm& norm, Arena& arena, HeadFew& h,
                     CUtensorMap& map) {
  h.x = r.operands.input("x");
  h.w = r.operands.weight("w");
  h.operand = arena.take<uint4>(operand_pieces(h.w, cut));
  h.tiles = ceil_div(h.w.rows, kHeadTile), h.slots = cut.slots;
  SWY_CUDA_TRY(map_boxes(h.w, kHeadTile, &map, r.error));
  if (norm.weight.data != nullptr) {
    const uint32_t blocks = norm.y != nullptr ? r.bucket().rows : r.bucket().logit_rows;
    return launch(r, head_rows_normed, blocks, kNormThreads, 0, h, norm, cut.n, r.list.step);
  }
  const dim3 grid(ceil_div(h.w.width / 8, kRowsThreads), r.bucket().logit_rows);
  return launch(r.with(FastMemory::shared), head_rows, grid, kRowsThreads, 0, h, cut.n, r.list.step);
}

template <int N>
swy_status record_rows(const Recording& r, const HeadFewCut& cut, const HeadFew& h, const CUtensorMap& map) {
  return launch(r, h.w.offsets != nullptr ? head_few<N, true> : head_few<N, false>, cut.blocks, kHeadThreads,
                cut.shared_bytes, map, h, r.operands.output("logits"), r.list.step);
}
swy_status record_head(const Recording& r, const RowsNorm& norm) {
  const HeadFewCut cut = cut_of(r.device(), r.op, r.bucket());
  HeadFew h{};
  CUtensorMap map;
  Arena arena(r.operands.workspace());
  SWY_CUDA_TRY(begin_few(r, cut, norm, arena, h, map));
  return cut.n == 8    ? record_rows<8>(r, cut, h, map)
         : cut.n == 16 ? record_rows<16>(r, cut, h, map)
                       : record_rows<32>(r, cut, h, map);
}

template <int N>
swy_status record_draws(const Recording& r, const HeadFewCut& cut, const HeadFew& h, const CUtensorMap& map,
                        const Draws& d) {
  return launch(r, h.w.offsets != nullptr ? head_sample_few<N, true> : head_sample_few<N, false>, cut.blocks,
                kHeadThreads, cut.shared_bytes, map, h, d, r.list.step);
}
swy_status record_sampled(const Recording& r, const RowsNorm& norm) {
  const HeadFewCut cut = cut_of(r.device(), r.op, r.bucket());
  HeadFew h{};
  CUtensorMap map;
  Arena arena(r.operands.workspace());
  SWY_CUDA_TRY(begin_few(r, cut, norm, arena, h, map));
  Draws d = draws_of(r, h.w.rows, cut.blocks, arena);
  d.logits = arena.take<float>(uint64_t{r.bucket().logit_rows} * d.vocab);
  SWY_CUDA_TRY(cut.n == 8    ? record_draws<8>(r, cut, h, map, d)
               : cut.n == 16 ? record_draws<16>(r, cut, h, map, d)
                             : record_draws<32>(r, cut, h, map, d));
  return record_finish(r, d);
}

swy_status record_head_alone(const Recording& r) { return record_head(r, {}); }
swy_status record_sampled_alone(const Recording& r) { return record_sampled(r, {}); }

constexpr Kernel kKernels[] = {
    {"lm_head.few", SWY_OP_LM_HEAD, kAlways, SWY_BF16, supports, cost, workspace, record_head_alone},
    {"lm_head_sample.few", SWY_OP_LM_HEAD_SAMPLE, kAlways, SWY_BF16, supports, cost_sampled, workspace_sampled,
     record_sampled_alone},
};

swy_status supports_normed(const swy_device& device, const swy_op& op, const swy_bucket& bucket, bool kept,
                           swy_error* error) {
  SWY_CUDA_TRY(supports(device, op, bucket, error));
  if (!kept || bucket.rows <= kHeadMostRows) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "the norm's rows, %u, are read elsewhere", bucket.rows);
}
swy_status record_normed(const Recording& r, const RowsNorm& norm) {
  return r.op.id == SWY_OP_LM_HEAD ? record_head(r, norm) : record_sampled(r, norm);
}
double cost_normed(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  return op.id == SWY_OP_LM_HEAD ? cost(device, op, bucket) : cost_sampled(device, op, bucket);
}
uint64_t workspace_normed(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  return op.id == SWY_OP_LM_HEAD ? workspace(device, op, bucket) : workspace_sampled(device, op, bucket);
}

}  // namespace

const NormedHead& normed_head_few() {
  static const NormedHead head{supports_normed, cost_normed, workspace_normed, record_normed};
  return head;
}
std::span<const Kernel> lm_head_few_kernels() { return kKernels; }

}  // namespace gpu
