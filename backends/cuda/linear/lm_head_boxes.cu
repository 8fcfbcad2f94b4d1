// SPDX-License-Identifier: Apache-2.0
// LM_HEAD and LM_HEAD_SAMPLE of one row on Hopper (boxes.cuh), at the rate of memory.
//
// Blocks fill the device once and take turns at pairs of tiles, 32 rows. In a block one warp requests pairs in advance;
// eight warps multiply, each its own columns; two warps add up their sums and sample. No warp waits for all others:
// stages of weights and of sums are passed on through barriers in shared memory.
// Cards without the copy engine have the projection's kernel (linear_boxes.cu), and one that draws from its logits.
#include <algorithm>

#include "common/boxes.cuh"
#include "common/projection.cuh"
#include "linear_boxes.h"
#include "sampling/sampling.cuh"

namespace gpu {
namespace {

constexpr uint32_t kPairRows = 2 * kTileRows, kPairBytes = kPairRows * kBoxBytes;  // bytes of a slice
constexpr uint32_t kStages = 3, kSums = 4;                                         // stages of weights, and of sums
constexpr uint32_t kDrawWarps = 2, kAskWarp = kBoxWarps, kFirstDrawWarp = kAskWarp + 1;
constexpr uint32_t kHeadThreads = 32 * (kFirstDrawWarp + kDrawWarps), kDrawThreads = 256;
static_assert(kSums % kDrawWarps == 0);

struct HeadBoxes {
  const float* x;  // [rows, width]
  Weight w;
  uint32_t pairs;
};
__host__ __device__ inline uint32_t slices_of(const Weight& w) { return w.width / kSlice; }

uint32_t pairs_of(const swy_op& op) { return ceil_div(swy::tensor(op, "w").dims[0], kPairRows); }
uint32_t head_blocks(const swy_device& device, const swy_op& op) {
  return std::min(static_cast<uint32_t>(device.processors), pairs_of(op));
}
uint32_t shared_bytes(const swy_device& device, const Weight& w) {
  return std::max(1024 + kStages * (slices_of(w) * kPairBytes + scales_bytes(w, kPairRows)), alone_memory(device));
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Stages that the warps of a block pass on.
struct HeadShared {
  uint64_t full[kStages], empty[kStages];  // weights: of all copies; of the warps that multiply
  uint64_t given[kSums], taken[kSums];     // sums: given by the multiplying warps; taken by the sampling one
  // A warp's own memory: the factors that make activations integers, then the sums of its columns.
  union {
    uint4 scratch[32];
    float sums[kSums][kPairRows];
  } of[kBoxWarps];

  __device__ void init(uint32_t slices) {
    for (uint32_t i = 0; i < kStages; ++i)
      barrier_init(shared_at(full + i), 1), barrier_init(shared_at(empty + i), slices);
    for (uint32_t i = 0; i < kSums; ++i)
      barrier_init(shared_at(given + i), slices), barrier_init(shared_at(taken + i), 1);
    publish_barriers();
  }
};

// Signals, for all lanes of a warp, that they are done with the stage of `barrier`.
__device__ inline void warp_arrives(uint64_t& barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(shared_at(&barrier));
}

// Position in a ring: the stage, and how often it has been used.
template <uint32_t kCount>
struct Turn {
  uint32_t stage = 0, parity = 0;
  __device__ void next(uint32_t by = 1) {
    stage += by;
    if (stage < kCount) return;
    stage -= kCount;
    parity ^= 1;
  }
};

// Scales, or offsets, of `rows` rows from `first` on. One lane requests the multiples of 16 bytes, which the copy
// engine takes. All lanes copy the rest of the last rows, which is never overwritten.
__device__ inline uint32_t whole_bytes(const HeadBoxes& h, uint32_t rows) { return rows * h.w.groups * 2 / 16 * 16; }
__device__ inline void copy_rest(uint16_t* to, const uint16_t* from, const HeadBoxes& h, uint32_t first,
                                 uint32_t rows) {
  const uint32_t i = whole_bytes(h, rows) / 2 + threadIdx.x % 32;
  if (i < rows * h.w.groups) to[i] = from[uint64_t{first} * h.w.groups + i];
}

// One warp calls this: requests the block's pairs.
__device__ inline void ask_pairs(const CUtensorMap& map, const HeadBoxes& h, char* boxes, char* scales, HeadShared& s) {
  const uint32_t lane = threadIdx.x % 32, slices = slices_of(h.w), scale_bytes = scales_bytes(h.w, kPairRows);
  const uint32_t arrays = h.w.offsets != nullptr ? 2 : 1, array = lane - slices;
  Turn<kStages> turn;
  for (uint32_t i = 0, pair = blockIdx.x; pair < h.pairs; ++i, pair += gridDim.x, turn.next()) {
    if (i >= kStages) barrier_wait(shared_at(s.empty + turn.stage), turn.parity ^ 1);
    const uint32_t first = pair * kPairRows, rows = min(kPairRows, h.w.rows - first), whole = whole_bytes(h, rows);
    auto* to = reinterpret_cast<uint16_t*>(scales + turn.stage * scale_bytes);
    if (rows < kPairRows) {
      copy_rest(to, h.w.scales, h, first, rows);
      if (arrays > 1) copy_rest(to + kPairRows * h.w.groups, h.w.offsets, h, first, rows);
    }
    __syncwarp();
    const uint32_t full = shared_at(s.full + turn.stage);
    if (lane == 0) barrier_expect(full, slices * kPairBytes + arrays * whole);
    __syncwarp();
    if (lane < slices) {
      copy_box(shared_at(boxes + (turn.stage * slices + lane) * kPairBytes), map, lane * kBoxBytes, first, full);
    } else if (array < arrays && whole > 0) {
      const uint16_t* from = array == 0 ? h.w.scales : h.w.offsets;
      copy_in(shared_at(to + array * kPairRows * h.w.groups), from + uint64_t{first} * h.w.groups, whole, full);
    }
  }
}

// A slice of the activations as the second operand, like SliceX but in another order: of each 64 elements, lane 4 g + t
// has the eight that match words t and t + 4 of the weight. It reads these one by one, each directly into the first
// operand.
struct HeadX {
  uint32_t b[4][2][2];
  float scale, sum;
  int eights;  // -8 times the integers' sum: corrects 4-bit weights without offsets

  __device__ HeadX(const float (&v)[8], uint4* scratch) {
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const SliceX x = make_slice(v, scratch);
#pragma unroll
    for (int group = 0; group < 4; ++group) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint2 words = reinterpret_cast<const uint2*>(scratch + 8 * group + t + 4 * half)[g % 2];
        b[group][0][half] = g / 2 == group ? words.x : 0;
        b[group][1][half] = g / 2 == group ? words.y : 0;
        keep(b[group][0][half]);
        keep(b[group][1][half]);
      }
    }
    scale = x.scale, sum = x.sum;
    eights = -8 * static_cast<int>(x.sum);
  }
  // Values that must not be computed again in a loop.
  __device__ static void keep(uint32_t& x) { asm volatile("" : "+r"(x)); }
};

__device__ inline uint32_t load_word(uint32_t at) {
  uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at));
  return v;
}
__device__ inline float load_half(uint32_t at) {
  uint16_t v;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(at));
  return half_bits(v);
}

// Where a lane reads in shared memory: word t of row g of the first tile in its slice's box, and the scale of that row
// and group.
struct HeadPlace {
  uint32_t words, scale;
  uint32_t eight;    // bytes of scales of eight rows
  uint32_t offsets;  // distance from scales to offsets
};

// A pair times a slice: sum[2 i + j] gets the share of group t of row g + 8 j of tile i.
template <bool kOffsets>
__device__ inline void multiply_pair(const HeadPlace& at, const HeadX& x, float (&sum)[4]) {
  constexpr uint32_t kLow = 0x0f0f0f0fu;
  int c[2][4] = {}, d[2][4] = {};
#pragma unroll
  for (uint32_t group = 0; group < 4; ++group) {
    const uint32_t even = at.words ^ (32 * group), odd = even ^ 16;
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t tile = i * kTileBytes, lower = tile + 8 * kBoxBytes;
      const uint32_t a0 = load_word(even + tile), a1 = load_word(even + lower);
      const uint32_t a2 = load_word(odd + tile), a3 = load_word(odd + lower);
      multiply_bytes(c[i], a0, a1, a2, a3, x.b[group][0]);
      multiply_bytes(d[i], a0 & kLow, a1 & kLow, a2 & kLow, a3 & kLow, x.b[group][1]);
    }
  }
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
#pragma unroll
    for (uint32_t j = 0; j < 2; ++j) {
      const uint32_t from = at.scale + (2 * i + j) * at.eight;
      const int high = c[i][2 * j] + d[i][2 * j], low = c[i][2 * j + 1] + d[i][2 * j + 1];
      const float scale = load_half(from);
      if constexpr (kOffsets) {
        const float dot = static_cast<float>(high * 256 + low);
        sum[2 * i + j] = x.scale * fmaf(scale, dot, load_half(from + at.offsets) * x.sum);
      } else {
        sum[2 * i + j] = x.scale * scale * static_cast<float>(high * 256 + (low + x.eights));
      }
    }
  }
}

// A warp of each slice calls this: computes its share of the block's pairs.
template <bool kOffsets>
__device__ inline void multiply_pairs(const HeadBoxes& h, const swy_step* step, const char* boxes, const char* scales,
                                      HeadShared& s, Stamps& stamps) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const bool empty = step->logit_rows == 0;  // writes nothing, but requested data must arrive
  const uint32_t row = empty ? 0 : step_array<uint32_t>(step, step->logit_row_at)[0];
  const uint32_t stage_bytes = slices_of(h.w) * kPairBytes, scale_bytes = scales_bytes(h.w, kPairRows);
  const uint32_t shift = h.w.groups == 1 ? 31 : 31 - __clz(h.w.group / 64);  // groups of 64 to the weight's groups
  const uint32_t first_words = shared_at(boxes) + warp * kPairBytes + g * (kBoxBytes + 16) + t * 4;
  const uint32_t first_scale = shared_at(scales) + 2 * (g * h.w.groups + ((4 * warp + t) >> shift));
  depend();
  stamps.note(kWaited);
  float v[8] = {};
  if (!empty) load_eight_fresh(h.x + uint64_t{row} * h.w.width + warp * kSlice + lane * 8, v);
  const HeadX x(v, s.of[warp].scratch);
  stamps.note(kRead);
  __syncwarp();
  HeadPlace at{first_words, first_scale, 16 * h.w.groups, 2 * kPairRows * h.w.groups};
  Turn<kStages> turn;
  Turn<kSums> sums;
#pragma unroll 1
  for (uint32_t i = 0, pair = blockIdx.x; pair < h.pairs; ++i, pair += gridDim.x, turn.next(), sums.next()) {
    at.words = first_words + turn.stage * stage_bytes;
    at.scale = first_scale + turn.stage * scale_bytes;
    barrier_wait(shared_at(s.full + turn.stage), turn.parity);
    if (i == 0) stamps.note(kArrived);
    float sum[4];
    multiply_pair<kOffsets>(at, x, sum);
    warp_arrives(s.empty[turn.stage]);
    const float mine = sum_lanes<4, 2>(sum);  // of row g + 8 t of the pair
    if (i >= kSums) barrier_wait(shared_at(s.taken + sums.stage), sums.parity ^ 1);
    s.of[warp].sums[sums.stage][g + 8 * t] = mine;
    warp_arrives(s.given[sums.stage]);
  }
  stamps.note(kMultiplied);
}

// The sampling warps call this, with one pair each in turn: done(row, logit).
template <class Done>
__device__ inline void take_pairs(const HeadBoxes& h, const swy_step* step, HeadShared& s, Done done) {
  const uint32_t lane = threadIdx.x % 32, turn = threadIdx.x / 32 - kFirstDrawWarp;
  const bool empty = step->logit_rows == 0;
  depend();
  Turn<kSums> sums;
  sums.stage = turn;
#pragma unroll 1
  for (uint32_t pair = blockIdx.x + turn * gridDim.x; pair < h.pairs;
       pair += kDrawWarps * gridDim.x, sums.next(kDrawWarps)) {
    barrier_wait(shared_at(s.given + sums.stage), sums.parity);
    float logit = 0;
#pragma unroll
    for (uint32_t w = 0; w < kBoxWarps; ++w) {
      if (w < slices_of(h.w)) logit += s.of[w].sums[sums.stage][lane];
    }
    warp_arrives(s.taken[sums.stage]);
    const uint32_t id = pair * kPairRows + lane;
    if (id < h.w.rows && !empty) done(id, logit);
  }
}

template <bool kOffsets, class Done>
__device__ inline void head_block(const CUtensorMap& map, const HeadBoxes& h, const swy_step* step, Stamps& stamps,
                                  Done done) {
  extern __shared__ char dynamic[];
  __shared__ HeadShared shared;
  const uint32_t warp = threadIdx.x / 32;
  char *boxes = first_box(dynamic), *scales = boxes + kStages * slices_of(h.w) * kPairBytes;
  if (threadIdx.x == 32 * kAskWarp) shared.init(slices_of(h.w));
  __syncthreads();
  release_next();
  if (warp == kAskWarp) {
    ask_pairs(map, h, boxes, scales, shared);
  } else if (warp >= kFirstDrawWarp) {
    take_pairs(h, step, shared, done);
  } else if (warp < slices_of(h.w)) {
    stamps.take_place();
    multiply_pairs<kOffsets>(h, step, boxes, scales, shared, stamps);
  }
}

#endif

template <bool kOffsets>
__global__ void __launch_bounds__(kHeadThreads, 2)
    head_boxes(const __grid_constant__ CUtensorMap map, const __grid_constant__ HeadBoxes h, float* y,
               const swy_step* step) {
#if __CUDA_ARCH__ >= 900
  Stamps stamps(kStampHead);
  head_block<kOffsets>(map, h, step, stamps, [&](uint32_t id, float logit) { y[id] = logit; });
  stamps.end();
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
  const Draw r = draws ? draw_of(d, step, 0) : Draw{};
  head_block<kOffsets>(map, h, step, stamps, [&](uint32_t id, float logit) {
    if (!draws) return;
    if (!r.simple) {
      const_cast<float*>(d.logits)[id] = logit;
      return;
    }
    best.look(r, id, logit);
  });
  best.give(d, blockIdx.x, scratch);
  if (threadIdx.x == 0) stamps.end();
#endif
}

// Without the copy engine the projection writes logits, and this draws from them.
__global__ void __launch_bounds__(kDrawThreads) draw_logits(const __grid_constant__ Draws d, const swy_step* step) {
  __shared__ uint64_t scratch[32];
  depend();
  release_next();
  Best best;
  const Draw r = step->sample_rows > 0 ? draw_of(d, step, 0) : Draw{};
  for (uint32_t id = blockIdx.x * kDrawThreads + threadIdx.x; r.simple && id < d.vocab;
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
  return draws_bytes(device, op, head_blocks(device, op)) + swy::tensor(op, "w").dims[0] * 4;
}

HeadBoxes boxes_of(const Recording& r) { return {r.operands.input("x"), r.operands.weight("w"), pairs_of(r.op)}; }

swy_status record_head(const Recording& r) {
  if (!r.device().features.copy_engine) {
    return record_boxes(r, head_projection(r, r.operands.output("logits")), nullptr);
  }
  const HeadBoxes h = boxes_of(r);
  CUtensorMap map;
  SWY_CUDA_TRY(map_boxes(h.w, kPairRows, &map, r.error));
  return launch(r, h.w.offsets != nullptr ? head_boxes<true> : head_boxes<false>, head_blocks(r.device(), r.op),
                kHeadThreads, shared_bytes(r.device(), h.w), map, h, r.operands.output("logits"), r.list.step);
}

swy_status record_sampled(const Recording& r) {
  const HeadBoxes h = boxes_of(r);
  const uint32_t blocks = head_blocks(r.device(), r.op);
  Arena arena(r.operands.workspace());
  Draws d = draws_of(r, h.w.rows, blocks, arena);
  auto* logits = arena.take<float>(d.vocab);
  d.logits = logits;
  if (!r.device().features.copy_engine) {
    SWY_CUDA_TRY(record_boxes(r, head_projection(r, logits), nullptr));
    SWY_CUDA_TRY(launch(r, draw_logits, blocks, kDrawThreads, 0, d, r.list.step));
    return record_finish(r, d);
  }
  CUtensorMap map;
  SWY_CUDA_TRY(map_boxes(h.w, kPairRows, &map, r.error));
  SWY_CUDA_TRY(launch(r, h.w.offsets != nullptr ? head_sample_boxes<true> : head_sample_boxes<false>, blocks,
                      kHeadThreads, shared_bytes(r.device(), h.w), map, h, d, r.list.step));
  return record_finish(r, d);
}

constexpr Kernel kKernels[] = {
    {"lm_head.boxes", SWY_OP_LM_HEAD, kAlways, SWY_BF16, supports, cost, nullptr, record_head},
    {"lm_head_sample.boxes", SWY_OP_LM_HEAD_SAMPLE, kAlways, SWY_BF16, supports, cost_sampled, workspace,
     record_sampled},
};

}  // namespace

std::span<const Kernel> lm_head_boxes_kernels() { return kKernels; }

}  // namespace gpu
