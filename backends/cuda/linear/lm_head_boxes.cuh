// SPDX-License-Identifier: Apache-2.0
// Device functions of the head by boxes (lm_head_boxes.cu explains how its warps work together): those of the warp that
// requests pairs of tiles, of the warps that multiply, and of those that sample.
#pragma once

#include "common/boxes.cuh"
#include "common/pin.cuh"
#include "lm_head_normed.h"

namespace gpu {

constexpr uint32_t kPairRows = 2 * kTileRows, kPairBytes = kPairRows * kBoxBytes;  // bytes of a slice
constexpr uint32_t kStages = 3, kSums = 4;                                         // stages of weights, and of sums
constexpr uint32_t kDrawWarps = 2, kAskWarp = kBoxWarps, kFirstDrawWarp = kAskWarp + 1;
static_assert(kSums % kDrawWarps == 0);

struct HeadBoxes {
  const float* x;  // [rows, width]
  Weight w;
  uint32_t pairs;
  RowsNorm norm;  // of x; without a weight, x is normed
};
__host__ __device__ inline uint32_t slices_of(const Weight& w) { return w.width / kSlice; }

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Stages that the warps of a block pass on.
struct HeadShared {
  uint64_t full[kStages], empty[kStages];  // weights: of all copies; of the warps that multiply
  uint64_t given[kSums], taken[kSums];     // sums: given by the multiplying warps; taken by the sampling one
  float squares[kBoxWarps];                // of the row's slices, if the block norms it
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

// One warp calls this: requests the block's pairs. Their lines are evicted first from the second-level cache. So the
// weights of a layer that guesses several tokens stay there, though the head reads a hundred megabytes for each.
__device__ inline void ask_pairs(const CUtensorMap& map, const HeadBoxes& h, char* boxes, char* scales, HeadShared& s) {
  const uint32_t lane = threadIdx.x % 32, slices = slices_of(h.w), scale_bytes = scales_bytes(h.w, kPairRows);
  const uint32_t arrays = h.w.offsets != nullptr ? 2 : 1, array = lane - slices;
  const uint64_t policy = cache_policy(true);
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
      copy_box(shared_at(boxes + (turn.stage * slices + lane) * kPairBytes), map, lane * kBoxBytes, first, full,
               policy);
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
        pin(b[group][0][half]), pin(b[group][1][half]);
      }
    }
    scale = x.scale, sum = x.sum;
    eights = -8 * static_cast<int>(x.sum);
  }
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

// A lane's eight elements of the row, of which the warps of the block have a slice each, become normed ones.
__device__ inline void norm_slice(const HeadBoxes& h, const float (&factors)[8], float (&squares)[kBoxWarps],
                                  float (&v)[8]) {
  const uint32_t warp = threadIdx.x / 32;
  float sum = 0;
#pragma unroll
  for (uint32_t j = 0; j < 8; ++j) sum = fmaf(v[j], v[j], sum);
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) squares[warp] = sum;
  named_barrier(1, 32 * slices_of(h.w));
  float total = 0;
#pragma unroll
  for (uint32_t i = 0; i < kBoxWarps; ++i) total += i < slices_of(h.w) ? squares[i] : 0.0f;
  const float scale = rsqrtf(total / static_cast<float>(h.w.width) + h.norm.eps);
#pragma unroll
  for (uint32_t j = 0; j < 8; ++j) v[j] *= scale * (h.norm.bias + factors[j]);
}

// A warp of each slice calls this: computes its share of the block's pairs.
template <bool kOffsets>
__device__ inline void multiply_pairs(const HeadBoxes& h, const swy_step* step, const char* boxes, const char* scales,
                                      HeadShared& s, Stamps& stamps) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const bool normed = h.norm.weight.data != nullptr, kept = h.norm.y != nullptr;
  const bool empty = step->logit_rows == 0;  // writes nothing, but requested data must arrive
  const uint32_t row = empty ? 0 : step_array<uint32_t>(step, step->logit_row_at)[0];
  const bool reads = kept ? step->rows != 0 : !empty;
  const uint32_t stage_bytes = slices_of(h.w) * kPairBytes, scale_bytes = scales_bytes(h.w, kPairRows);
  const uint32_t shift = h.w.groups == 1 ? 31 : 31 - __clz(h.w.group / 64);  // groups of 64 to the weight's groups
  const uint32_t first_words = shared_at(boxes) + warp * kPairBytes + g * (kBoxBytes + 16) + t * 4;
  const uint32_t first_scale = shared_at(scales) + 2 * (g * h.w.groups + ((4 * warp + t) >> shift));
  const uint64_t first = uint64_t{row} * h.w.width + warp * kSlice + lane * 8;
  float v[8] = {}, factors[8] = {};
  if (normed) plain_eight(h.norm.weight, warp * 32 + lane, factors);
  depend();
  stamps.note(kWaited);
  if (reads) load_eight_fresh(h.x + first, v);
  if (normed) norm_slice(h, factors, s.squares, v);
  if (kept && reads && blockIdx.x == 0) {
    auto* y = reinterpret_cast<float4*>(h.norm.y + first);
    y[0] = make_float4(v[0], v[1], v[2], v[3]), y[1] = make_float4(v[4], v[5], v[6], v[7]);
  }
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

}  // namespace gpu
