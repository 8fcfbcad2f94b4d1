// SPDX-License-Identifier: Apache-2.0
// What products of bytes share (bytes.cuh, scaled_bytes.cuh, byte_tiles.cuh), and weights of bytes.cuh: which rows a
// thread has, their factors, and first operands of products.
#pragma once

#include "bytes.h"
#include "common/device_code.cuh"
#include "common/matrix.cuh"
#include "common/tiles.cuh"
#include "common/wgmma.cuh"
#include "grouped.cuh"

namespace gpu {

// Integers that begin at these bits can be read as floats, from this one on.
constexpr uint32_t kIntegerBits = 0x4b400000;
constexpr float kIntegerBase = 12582912.0f;

// Nibbles in the upper halves of bytes, their highest bits flipped: 16 (q - 8) each.
struct UpperNibbles {
  uint32_t flip;

  __device__ UpperNibbles() { asm volatile("mov.b32 %0, 0x80808080;" : "=r"(flip)); }
  // (bits & mask) ^ flip in one instruction, which can take only one constant.
  __device__ uint32_t of(uint32_t bits) const {
    uint32_t r;
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(r) : "r"(bits), "n"(0xf0f0f0f0), "r"(flip));
    return r;
  }
};

#ifdef SWY_HOPPER

// The row of the tile to which acc[4 n + 2 h + e] of a consumer's lane 4 g + t belongs. pairs: h is the tile's half.
// neighbours: lanes g and g + 1 have four neighbouring rows. Lanes that read together have no bank conflicts.
template <RowOrder kOrder>
__device__ inline uint32_t byte_row_of(uint32_t g, uint32_t h) {
  const uint32_t warp = threadIdx.x / 32;
  if (kOrder == RowOrder::neighbours) return warp * 16 + g * 2 + h;
  return h * kBoxRows + warp * 8 + g % 4 * 2 + g / 4;
}
template <RowOrder kOrder>
__device__ inline uint32_t byte_row(uint32_t h) {
  return byte_row_of<kOrder>(threadIdx.x % 32 / 4, h);
}

// Where in a stage this thread reads its two rows' quants, of the stage's first group.
template <RowOrder kOrder>
__device__ __forceinline__ void quants_of_rows(uint32_t (&quants)[2]) {
  const uint32_t t = threadIdx.x % 4;
#pragma unroll
  for (uint32_t h = 0; h < 2; ++h) {
    const uint32_t row = byte_row<kOrder>(h);
    quants[h] = row * kBoxBytes + ((t / 2) ^ (row % 8)) * 16 + t % 2 * 8;
  }
  keep(quants);
}

// Scales of this thread's two rows of activations, at an address.
__device__ inline float2 load_scales(uint32_t at) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(at));
  return v;
}

// From the sums of two rows of a weight and two of activations, of[2 h + e], those of one row of activations: v[h] has
// two in bf16, of which those of the other h are the neighbours. four_columns has all four in the order of the columns.
__device__ __forceinline__ void transpose_results(const float* of, uint32_t (&v)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const __nv_bfloat162 two = __floats2bfloat162_rn(of[h * 2], of[h * 2 + 1]);
    v[h] = transpose(*reinterpret_cast<const uint32_t*>(&two));
  }
}
__device__ __forceinline__ uint2 four_columns(const uint32_t (&v)[2]) {
  return make_uint2(__byte_perm(v[0], v[1], 0x5410), __byte_perm(v[0], v[1], 0x7632));
}

// As produce; one thread of each warp with a part has work.
template <class Pipe, class Work>
__device__ inline void produce_bytes(Pipe& p, const Work& work, bool waits) {
  if (threadIdx.x % 32 != 0) return;
  const auto part = static_cast<Producer>((threadIdx.x - kByteConsumers) / 32);
  const uint64_t policy = cache_policy(Work::kReadOnce);
  if (part == Producer::first_half) return produce_stages<Producer::first_half>(p, work, policy);
  if (part == Producer::second_half) return produce_stages<Producer::second_half>(p, work, policy);
  if (part != Producer::activations) return;
  if (waits) {
    depend();
    release_next();
  }
  produce_stages<Producer::activations>(p, work, policy);
}

// f of a scale; below zero it may not be -256, since a byte ends at 127. So where a row's largest scale is negative,
// the weights of its groups are up to 0.8% too small; finding its sign would take instructions for each scale of a
// tile.
__device__ inline uint16_t byte_factor(uint16_t scale, float by) {
  return static_cast<uint16_t>(__float_as_uint(fmaxf(half_bits(scale) * by, -254.0f) + 12582912.0f));
}
__device__ inline uint32_t largest_half(uint32_t largest, uint32_t bits) { return max(largest, bits & 0x7fff); }

// The factors of a warp's 16 rows of a tile, in its part of the shared memory: [groups of 64][2 g + h], two bytes each.
// Two lanes share a row.
template <RowOrder kOrder>
struct Factors {
  static constexpr uint32_t kMostPieces = 8;  // of 16 bytes in a row
  char* at;

  __device__ static const uint16_t* scales_of(const GroupedTile& t, uint32_t g, uint32_t h) {
    const uint32_t r = byte_row_of<kOrder>(g, h);
    const StreamedWeight& w = r < kBoxRows ? *t.w0 : *t.w1;
    const uint32_t row = min(r < kBoxRows ? t.row0 + r : t.row1 + r - kBoxRows, w.rows - 1);
    return w.scale_data + uint64_t{row} * w.groups;
  }
  // Whether scales take as much room as factors, and can be copied to where these will be.
  __device__ static bool copied(const StreamedWeight& w) {
    return w.group_shift == 6 && w.groups % 8 == 0 && w.groups <= 8 * kMostPieces;
  }
  // Begins to copy the scales, when the previous tile's factors have been read: row after row.
  __device__ __forceinline__ void request(const GroupedTile& t) const {
    if (!copied(*t.w0)) return;
    const uint32_t pieces = t.w0->groups / 8, lane = threadIdx.x % 32;
    const char* from = reinterpret_cast<const char*>(scales_of(t, lane / 2 % 8, lane / 16));
    copies_wait<0>();  // of a tile without work
    __syncwarp();
    for (uint32_t n = lane % 2; n < pieces; n += 2) copy_later(at + (lane / 2 * pieces + n) * 16, from + n * 16, true);
    copies_end();
  }
  // scale[h]: of this thread's rows.
  __device__ __forceinline__ void make(const GroupedTile& t, float (&scale)[2]) const {
    const uint32_t lane = threadIdx.x % 32, half = lane % 2, groups = t.w0->groups, pieces = groups / 8;
    auto* factors = reinterpret_cast<uint16_t*>(at) + lane / 2 % 8 * 2 + lane / 16;
    uint32_t largest = 0;
    if (copied(*t.w0)) {
      copies_wait<0>();
      __syncwarp();
      uint4 own[kMostPieces / 2];  // every second piece
#pragma unroll
      for (uint32_t i = 0; i < kMostPieces / 2; ++i) {
        const uint32_t n = 2 * i + half;
        own[i] = n < pieces ? reinterpret_cast<const uint4*>(at)[lane / 2 * pieces + n] : make_uint4(0, 0, 0, 0);
        for (const uint32_t two : {own[i].x, own[i].y, own[i].z, own[i].w}) {
          largest = largest_half(largest_half(largest, two), two >> 16);
        }
      }
      const float by = factor_of(largest);
#pragma unroll
      for (uint32_t i = 0; i < kMostPieces / 2; ++i) {
        const uint32_t n = 2 * i + half;
        if (n >= pieces) break;
        const uint32_t words[4] = {own[i].x, own[i].y, own[i].z, own[i].w};
#pragma unroll
        for (uint32_t j = 0; j < 8; ++j) {
          factors[(8 * n + j) * 16] = byte_factor(static_cast<uint16_t>(words[j / 2] >> j % 2 * 16), by);
        }
      }
    } else {
      const uint16_t* from = scales_of(t, lane / 2 % 8, lane / 16);
      for (uint32_t i = half; i < groups; i += 2) largest = largest_half(largest, __ldg(from + i));
      const float by = factor_of(largest);
      for (uint32_t i = half; i < t.end * 4; i += 2) {
        factors[i * 16] = byte_factor(__ldg(from + min((i * kByteGroup) >> t.w0->group_shift, groups - 1)), by);
      }
    }
    const float most = half_bits(static_cast<uint16_t>(largest));
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) scale[i] = __shfl_sync(kAll, most, (i * 8 + lane / 4) * 2) * (1.0f / 16);
    __syncwarp();
  }

 private:
  // By what scales are multiplied, and the largest one of the row. Earlier contents have been read then.
  __device__ static float factor_of(uint32_t& largest) {
    largest = max(largest, __shfl_xor_sync(kAll, largest, 1));
    __syncwarp();
    return largest == 0 ? 0 : 256.0f / half_bits(static_cast<uint16_t>(largest));
  }
};

// What nibbles are multiplied with: those in the lower and in the upper half of a byte.
struct ByteFactor {
  uint32_t low, high, add;

  __device__ explicit ByteFactor(int f) : low(f * 16), high(f), add(kOne - f * kOne) {}

 private:
  static constexpr uint32_t kOne = 128 * 65537;
};

// Where this thread reads its two rows' quants, and its first operands.
template <RowOrder kOrder>
struct ByteRowsOfWeight {
  uint32_t quants[2];  // [h]

  __device__ ByteRowsOfWeight() { quants_of_rows<kOrder>(quants); }
  // The first operands [step] of a stage's group of 64 elements. factors: of both rows.
  __device__ void load(const char* stage, uint32_t group, uint32_t factors, uint32_t (&a)[2][4]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint2 q = *reinterpret_cast<const uint2*>(stage + (quants[h] ^ group * 32));
      const ByteFactor f(h == 0 ? static_cast<int16_t>(factors) : static_cast<int>(factors) >> 16);
      unpack(q.x, f, a[0][h], a[0][2 + h]);
      unpack(q.y, f, a[1][h], a[1][2 + h]);
    }
  }

 private:
  // The even and the odd ones of eight elements.
  __device__ static void unpack(uint32_t w, const ByteFactor& f, uint32_t& even, uint32_t& odd) {
    const uint32_t v = w >> 8;
    even = __byte_perm((w & 0x000f000f) * f.low + f.add, (v & 0x000f000f) * f.low + f.add, 0x7351);
    odd = __byte_perm((w & 0x00f000f0) * f.high + f.add, (v & 0x00f000f0) * f.high + f.add, 0x7351);
  }
};

#endif  // SWY_HOPPER

}  // namespace gpu
