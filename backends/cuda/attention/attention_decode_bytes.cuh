// SPDX-License-Identifier: Apache-2.0
// Tiles of attention.decode whose keys and values have 8 bits (attention_bytes.cuh).
//
// Query heads are integers of 16 bits. Their high bytes are rows 0-7 of the first operand, their low bytes rows 8-15: a
// thread gets both products of the same head and position, and the score of integers is exact. Values become fp16,
// which holds them exactly, and their scales become factors of the weights.
#pragma once

#include "attention_decode.cuh"
#include "attention_ring_bytes.cuh"

namespace gpu {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// d [16, 8] += a [16, 32] b [32, 8].
__device__ inline void multiply_bytes(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// d [16, 8] += a [16, 16] b [16, 8], in fp16; or of half the columns and rows.
__device__ inline void multiply_halves(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline void multiply_halves(float (&d)[4], const uint32_t (&a)[2], uint32_t b) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(b));
}

// Two signed bytes as fp16: byte `first` and the one after the next of a word whose bytes had their sign bits flipped.
template <uint32_t kFirst>
__device__ inline uint32_t halves_of(uint32_t flipped) {
  const uint32_t bits = __byte_perm(flipped, 0x64646464u, 0x4240 + 0x0101 * kFirst);  // 1,152 more than each
  const __half2 x = __hsub2(*reinterpret_cast<const __half2*>(&bits), __floats2half2_rn(1152, 1152));
  return *reinterpret_cast<const uint32_t*>(&x);
}
__device__ inline uint32_t pack_halves(float x, float y) {
  const __half2 h = __floats2half2_rn(x, y);
  return *reinterpret_cast<const uint32_t*>(&h);
}

// Of head g with positions 8 h + 2 t and + 1: sums of high and of low bytes, as kSums<F> parts.
using ByteScores = int[4][4];

// The bytes that one load of matrices covers of each row.
template <class F>
constexpr uint32_t kSpanBytes = 2 * kSpan<F>;

// Adds the contribution of a stage's keys. `at`: what lane_at returns for it.
template <class F>
__device__ inline void add_scores(const Memory<F>& memory, uint32_t at, ByteScores& part) {
  constexpr uint32_t kLoads = 64 / kSpanBytes<F>;  // of 64 bytes
  const uint32_t lane = threadIdx.x % 32;
  // Matrices: high bytes and low ones of 16 elements, then of the next 16.
  const uint32_t queries = shared_at(memory.head(lane % 8)) + lane / 8 % 2 * F::kDim + lane / 16 * 16;
#pragma unroll
  for (uint32_t k = 0; k < F::kDim / 64; ++k) {
    uint32_t q[2][4], keys[kLoads][4];
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) load_matrices(q[i], queries + k * 64 + i * 32);
#pragma unroll
    for (uint32_t i = 0; i < kLoads; ++i) load_matrices(keys[i], elements_at<F>(at, kLoads * k + i));
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      if constexpr (F::kTile == 16) {
        multiply_bytes(part[i], q[i], keys[i][0], keys[i][1]);
        multiply_bytes(part[2 + i], q[i], keys[i][2], keys[i][3]);
      } else {
        multiply_bytes(part[k % 2 * 2 + i], q[i], keys[0][2 * i], keys[0][2 * i + 1]);
      }
    }
  }
}

// Scales of the keys and values of a lane's positions.
template <class F>
struct PositionScales {
  static constexpr uint32_t kPositions = F::kTile / 4;
  float key[kPositions], value[kPositions];

  __device__ explicit PositionScales(const float* slot) {
#pragma unroll
    for (uint32_t h = 0; h < F::kTile / 8; ++h) {
      const auto* two = reinterpret_cast<const float2*>(slot + 8 * h) + threadIdx.x % 4;
      const float2 k = two[0], v = two[F::kTile / 2];
      key[2 * h] = k.x, key[2 * h + 1] = k.y, value[2 * h] = v.x, value[2 * h + 1] = v.y;
    }
  }
};

// A warp's running sums. Of head g: the largest score and this lane's weights. Of heads 2 t and 2 t + 1: elements 16 m
// + 2 g and + 1 of the weighted values, as multiples of `unit`, a power of two that is no less than any scale so far.
template <class F>
class ByteSums {
 public:
  static constexpr uint32_t kHalves = F::kTile / 8;
  using Weights = uint32_t[kHalves];

  __device__ explicit ByteSums(const Memory<F>& memory)
      : query_scale_(*reinterpret_cast<const float*>(memory.head(threadIdx.x % 32 / 4) + F::kQueryScale)) {}

  // Turns scores into weights, times the scales of values: w[h] is for positions 8 h + 2 t and + 1. `left`: positions
  // from the tile's first one on.
  __device__ void weigh(const ByteScores& part, const PositionScales<F>& scales, uint32_t left, Weights& w) {
    const uint32_t t = threadIdx.x % 4;
    float s[2 * kHalves], v[2 * kHalves];
    float best = -INFINITY, widest = 0;
#pragma unroll
    for (uint32_t j = 0; j < 2 * kHalves; ++j) {
      const uint32_t first = j / 2 * kSums<F>;
      int high = part[first][j % 2] + part[first + 1][j % 2], low = part[first][2 + j % 2] + part[first + 1][2 + j % 2];
      if constexpr (kSums<F> == 4) {
        high += part[2][j % 2] + part[3][j % 2], low += part[2][2 + j % 2] + part[3][2 + j % 2];
      }
      s[j] = static_cast<float>(256 * high + low) * (query_scale_ * scales.key[j]);
      v[j] = scales.value[j];
    }
    if (left < F::kTile) {
#pragma unroll
      for (uint32_t j = 0; j < 2 * kHalves; ++j) {
        if (j / 2 * 8 + 2 * t + j % 2 >= left) s[j] = -INFINITY, v[j] = 0;
      }
    }
#pragma unroll
    for (uint32_t j = 0; j < 2 * kHalves; ++j) best = fmaxf(best, s[j]), widest = fmaxf(widest, v[j]);
    if (__any_sync(kAll, best > top_ || widest > unit_)) raise(best, widest);
    const float inverse = inverse_of_power(unit_);
#pragma unroll
    for (uint32_t j = 0; j < 2 * kHalves; ++j) {
      s[j] = exp2_of(s[j] - top_);
      weight_ += s[j];
      s[j] *= v[j] * inverse;
    }
#pragma unroll
    for (uint32_t h = 0; h < kHalves; ++h) w[h] = pack_halves(s[2 * h], s[2 * h + 1]);
  }

  // Adds the contribution of a stage's values. `at`: what lane_at returns for it.
  __device__ void add(uint32_t at, const Weights& w) {
#pragma unroll
    for (uint32_t k = 0; k < F::kDim / kSpanBytes<F>; ++k) {
      uint32_t values[4];
      load_transposed(values, elements_at<F>(at, k));
#pragma unroll
      for (uint32_t& v : values) v ^= 0x80808080u;
      if constexpr (F::kTile == 16) {
#pragma unroll
        for (uint32_t i = 0; i < 2; ++i) {
          multiply_halves(value_[2 * k + i],
                          {halves_of<0>(values[i]), halves_of<1>(values[i]), halves_of<0>(values[2 + i]),
                           halves_of<1>(values[2 + i])},
                          w[0], w[1]);
        }
      } else {
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
          multiply_halves(value_[4 * k + i], {halves_of<0>(values[i]), halves_of<1>(values[i])}, w[0]);
        }
      }
    }
  }

  // Writes the sums where the block reads them.
  __device__ void leave(const Memory<F>& memory) const {
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    float* even = memory.partial(warp) + 2 * t * F::kPartial + 2 * g;
    float* odd = even + F::kPartial;
#pragma unroll
    for (int m = 0; m < 2 * F::kLane; ++m) {
      const float(&v)[4] = value_[m];
      *reinterpret_cast<float2*>(even + 16 * m) = make_float2(v[0] * unit_, v[2] * unit_);
      *reinterpret_cast<float2*>(odd + 16 * m) = make_float2(v[1] * unit_, v[3] * unit_);
    }
    float sum = weight_ + __shfl_xor_sync(kAll, weight_, 1);
    sum += __shfl_xor_sync(kAll, sum, 2);
    if (t == 0) memory.known(warp)[g] = make_float2(top_, sum);
  }

 private:
  __device__ void raise(float best, float widest) {
    const uint32_t t = threadIdx.x % 4;
#pragma unroll
    for (uint32_t d = 1; d < 4; d *= 2) {
      best = fmaxf(best, __shfl_xor_sync(kAll, best, d));
      widest = fmaxf(widest, __shfl_xor_sync(kAll, widest, d));
    }
    const float to = fmaxf(best, top_), shrink = power(top_, to);
    const float unit = fmaxf(unit_, __uint_as_float((__float_as_uint(widest) + 0x7fffffu) & 0xff800000u));
    const float ratio = unit_ * inverse_of_power(unit);
    const float even = __shfl_sync(kAll, shrink, 8 * t) * ratio, odd = __shfl_sync(kAll, shrink, 8 * t + 4) * ratio;
    top_ = to, unit_ = unit;
    weight_ *= shrink;
#pragma unroll
    for (float(&v)[4] : value_) v[0] *= even, v[1] *= odd, v[2] *= even, v[3] *= odd;
  }

  float query_scale_, top_ = -INFINITY, weight_ = 0;
  float unit_ = 0x1p-110f;  // less than any scale but 0
  float value_[2 * F::kLane][4] = {};
};

#endif

}  // namespace gpu
