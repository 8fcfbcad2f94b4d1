// SPDX-License-Identifier: Apache-2.0
// Activations as bytes: panels [span][group of 8 rows][1024 bytes], in the order of the weights' registers (bytes.cuh),
// and with 16-byte pieces permuted as wgmma expects. Zeros fill up the last stage.
//
// Byte 64 u + 32 s + 16 h + 4 t + j of a row's span is its element 64 u + 16 t + 8 s + 2 j + h.
#pragma once

#include "bytes.h"
#include "common/device_code.cuh"
#include "common/matrix.cuh"

namespace gpu {

constexpr uint32_t kRowWarps = 4;           // of a block that converts rows
constexpr uint32_t kStagedBytes = 2 * 256;  // of a warp

// The most bits by which scales of a row may differ, so that sums of all its stages stay below 2^31: of one stage they
// are below 2^22.
__device__ inline uint32_t most_bits(uint32_t stages) {
  return stages == 1 ? 0 : stages > 511 ? 0 : min(31u - static_cast<uint32_t>(__clz(511 / (stages - 1))), 8u);
}

// The even and the odd ones of eight elements, each times `inverse`, as bytes.
__device__ inline uint2 eight_bytes(const float (&v)[8], float inverse) {
  uint32_t b[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) b[i] = __float_as_uint(fmaf(v[i], inverse, 12582912.0f));  // the integer, in its low bits
  const auto pack = [&](int i) {
    return __byte_perm(__byte_perm(b[i], b[i + 2], 0x0040), __byte_perm(b[i + 4], b[i + 6], 0x0040), 0x5410);
  };
  return make_uint2(pack(0), pack(1));
}

// Where elements 8 e to 8 e + 7 of a span go: the even ones, and 16 bytes later the odd ones.
__device__ inline uint32_t byte_place(uint32_t e) { return e / 8 * 64 + e % 2 * 32 + e % 8 / 2 * 4; }

// Where piece `piece` (16 bytes) of a row's span lies among panels of `groups` groups.
__device__ inline uint64_t piece_in_panels(uint32_t span, uint32_t groups, uint32_t row, uint32_t piece) {
  return (uint64_t{span} * groups + row / 8) * kBytePanel + row % 8 * kSpan + (piece ^ (row % 8)) * 16;
}

// One of the rows that are made.
struct ByteRow {
  const ByteRows& to;
  uint32_t row;

  __device__ void put_change(uint32_t stage, uint16_t change) const {
    to.scales.changes[stage * to.scales.rows + row] = change;
  }
  __device__ void put(uint32_t span, uint32_t piece, uint4 bytes) const {
    *reinterpret_cast<uint4*>(to.panels + piece_in_panels(span, to.groups, row, piece)) = bytes;
  }
};

__device__ inline void load_floats(const float* from, float (&v)[8]) {
  const float4 low = *reinterpret_cast<const float4*>(from), high = *reinterpret_cast<const float4*>(from + 4);
  v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w, v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
}
// Elements k to k + 7 of a vector in fp32 or bf16; k is a multiple of 8.
__device__ inline bool is_plain(const Weight& w) { return w.dtype == SWY_F32 || w.dtype == SWY_BF16; }
__device__ inline void load_plain(const Weight& w, uint32_t k, float (&v)[8]) {
  if (w.dtype == SWY_F32) return load_floats(reinterpret_cast<const float*>(w.data) + k, v);
  const uint4 q = *reinterpret_cast<const uint4*>(reinterpret_cast<const uint16_t*>(w.data) + k);
  const uint32_t words[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = i % 2 == 0 ? low_of(words[i / 2]) : high_of(words[i / 2]);
}

// Shared memory of the warps that convert a row.
template <uint32_t kWarps>
struct RowMemory {
  uint4 staged[kWarps][kStagedBytes / 16];
  float largest[kWarps][32], sums[kWarps][2];
};

// Converts a row. The kWarps warps of a block call this, or for 1 any warp. `row` has
//   width                      of the row, a multiple of 8
//   load(k, v)                 elements k to k + 7
//   kAhead                     whether ask(i, k) requests them first, for all that a warp has in registers, and
//                              load(i, v) takes the ith
//   kSums, sums                each thread's sums of what it loaded first, which become those of all before put_scale
//   put(span, piece, bytes)    a piece of 16 bytes
//   put_scale(scale)           of the last stage; all threads call it
//   put_change(stage, change)  as ByteScales
// A stage's scale is the row's, or a power of four smaller where its elements are. 32 stages apart, it is the same.
// kSteps: stages that a warp has in registers, an even number; longer rows are read twice.
template <uint32_t kSteps, uint32_t kWarps, class Row>
__device__ inline void convert_row(Row& row, RowMemory<kWarps>& memory) {
  constexpr uint32_t kConverted = kSteps * kWarps * kByteColumns;
  const uint32_t warp = kWarps == 1 ? 0 : threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t stages = byte_stages(row.width), padded = stages * kByteColumns;
  uint4* staged = memory.staged[warp];
  auto* words = reinterpret_cast<uint32_t*>(staged);
  float v[kSteps][8], own = 1e-12f;  // own: the largest magnitude in stages `lane`, lane + 32, ...
  const auto stage_of = [&](uint32_t first, uint32_t i) {
    return first / kByteColumns + (i / 2 * kWarps + warp) * 2 + i % 2;
  };
  const auto load = [&](uint32_t first) {
    if constexpr (Row::kAhead) {
#pragma unroll
      for (uint32_t i = 0; i < kSteps; ++i) {
        const uint32_t k = stage_of(first, i) * kByteColumns + lane * 8;
        if (k < row.width) row.ask(i, k);
      }
    }
#pragma unroll
    for (uint32_t i = 0; i < kSteps; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) v[i][j] = 0;
      const uint32_t k = stage_of(first, i) * kByteColumns + lane * 8;
      if (k >= row.width) continue;
      if constexpr (Row::kAhead) {
        row.load(i, v[i]);
      } else {
        row.load(k, v[i]);
      }
    }
  };
  for (uint32_t first = 0; first < padded; first += kConverted) {
    load(first);
#pragma unroll
    for (uint32_t i = 0; i < kSteps; ++i) {
      float largest = 0;
#pragma unroll
      for (int j = 0; j < 8; ++j) largest = fmaxf(largest, fabsf(v[i][j]));
      largest = __uint_as_float(__reduce_max_sync(kAll, __float_as_uint(largest)));
      if (stage_of(first, i) % 32 == lane) own = fmaxf(own, largest);
    }
  }
#pragma unroll
  for (int s = 0; s < Row::kSums; ++s) row.sums[s] = warp_sum(row.sums[s]);
  if constexpr (kWarps > 1) {
    memory.largest[warp][lane] = own;
#pragma unroll
    for (int s = 0; s < Row::kSums; ++s) {
      if (lane == 0) memory.sums[warp][s] = row.sums[s];
    }
    __syncthreads();
#pragma unroll
    for (uint32_t w = 0; w < kWarps; ++w) own = fmaxf(own, memory.largest[w][lane]);
#pragma unroll
    for (int s = 0; s < Row::kSums; ++s) {
      row.sums[s] = 0;
#pragma unroll
      for (uint32_t w = 0; w < kWarps; ++w) row.sums[s] += memory.sums[w][s];
    }
  }
  const float largest = warp_max(own), inverse = __fdividef(127.0f, largest);
  // Even numbers only: where a stage is quieter by less than a factor of four, which is so in many rows, a change would
  // cost the products of a whole tile more than the bit that it saves.
  const uint32_t bits = min((__float_as_uint(largest / own) >> 23) - 127, most_bits(stages)) & ~1u;
  const auto power = [](uint32_t exponent) { return __uint_as_float((127 + exponent) << 23); };
  const uint32_t last = __shfl_sync(kAll, bits, (stages - 1) % 32), before = __shfl_sync(kAll, bits, (lane + 31) % 32);
  row.put_scale(largest * (1.0f / 127) * power(-last));
  for (uint32_t stage = lane; stage < stages && warp == 0; stage += 32) {
    const uint32_t from = stage == 0 ? bits : before;
    row.put_change(stage, static_cast<uint16_t>(bits > from ? bits - from : (from - bits) << 8));
  }
  for (uint32_t first = 0; first < padded; first += kConverted) {
    if (padded > kConverted) load(first);
#pragma unroll
    for (uint32_t i = 0; i < kSteps; i += 2) {
      const uint32_t begin = stage_of(first, i) * kByteColumns;
      if (begin >= padded) break;
      __syncwarp();  // earlier bytes have been read
#pragma unroll
      for (uint32_t j = 0; j < 2; ++j) {
        const float by = inverse * power(__shfl_sync(kAll, bits, (begin / kByteColumns + j) % 32));
        const uint2 eight = eight_bytes(v[i + j], by);
        uint32_t* at = words + (j * 256 + lane / 16 * kSpan + byte_place(lane % 16)) / 4;
        at[0] = eight.x, at[4] = eight.y;
      }
      __syncwarp();
      if (begin + lane * 16 < padded) row.put(begin / kSpan + lane / 8, lane % 8, staged[lane]);
    }
  }
}

// A row of x, with the norm's weights. Its factor changes all elements alike, so the bytes do not depend on it.
// Norm: normed, and then norm, bias, eps; inverse, which may be null.
template <class Norm>
struct InputRow : ByteRow {
  const Norm& p;
  const float* x;
  uint32_t width;
  static constexpr int kSums = 1;
  static constexpr bool kAhead = false;
  float sums[kSums] = {};  // of squares
  bool scaled = false;

  __device__ void load(uint32_t k, float (&v)[8]) {
    load_floats(x + k, v);
    if (!p.normed) return;
    float of[8];
    load_plain(p.norm, k, of);
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) {
      if (!scaled) sums[0] = fmaf(v[i], v[i], sums[0]);
      v[i] *= p.bias + of[i];
    }
  }
  __device__ void put_scale(float scale) {
    const float factor = p.normed ? rsqrtf(sums[0] / static_cast<float>(width) + p.eps) : 1;
    scaled = true;
    if (threadIdx.x != 0) return;
    to.scales.last[row] = scale * factor;
    if (p.normed && p.inverse != nullptr) p.inverse[row] = factor;
  }
};

}  // namespace gpu
