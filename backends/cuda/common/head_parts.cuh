// SPDX-License-Identifier: Apache-2.0
// Heads of one row in parts, which the reader joins: a cluster of attention's blocks makes one of each head, from some
// of the positions. So no cluster waits for others.
#pragma once

#include "device_code.cuh"
#include "pin.cuh"

namespace gpu {

struct HeadParts {
  // Columns of a head, and its parts. Parts without a cluster are zeros.
  static constexpr uint32_t kDim = 256, kParts = 8;

  uint4* words;   // [heads][kParts][kDim / 8]: eight columns in fp16
  float2* stats;  // [heads][kParts]: the part's largest score, as a power of two, and the sum of its weights

  static uint64_t bytes(uint64_t heads) { return heads * kParts * (kDim / 8 * sizeof(uint4) + sizeof(float2)); }
  static HeadParts in(char* memory, uint64_t heads) {
    auto* words = reinterpret_cast<uint4*>(memory);
    return {words, reinterpret_cast<float2*>(words + heads * kParts * (kDim / 8))};
  }

  // Writes the i-th four columns of a part. Where the sum is 0, the columns must be numbers.
  __device__ void put(uint32_t head, uint32_t part, uint32_t i, float2 stat, const float4& v) const {
    constexpr float kLargest = 65504;  // in fp16
    const auto pair = [](float x, float y) {
      const __half2 h = __floats2half2_rn(fminf(fmaxf(x, -kLargest), kLargest), fminf(fmaxf(y, -kLargest), kLargest));
      return *reinterpret_cast<const uint32_t*>(&h);
    };
    const uint32_t at = head * kParts + part;
    reinterpret_cast<uint2*>(words + at * (kDim / 8))[i] = make_uint2(pair(v.x, v.y), pair(v.z, v.w));
    if (i == 0) stats[at] = stat;
  }
};

// Where a lane finds its eight columns of a head, and the stat of part lane % kParts.
class HeadPartsPlace {
 public:
  __device__ HeadPartsPlace(const HeadParts& p, uint32_t head)
      : words_(p.words + head * HeadParts::kParts * (HeadParts::kDim / 8) + threadIdx.x % 32),
        stat_(p.stats + head * HeadParts::kParts + threadIdx.x % HeadParts::kParts) {
    pin(words_), pin(stat_);
  }
  // Requests all parts at once. To be called in one place of a kernel, which must not spill: either costs microseconds.
  __device__ void load(float (&v)[8]) const {
    uint4 eight[HeadParts::kParts];
#pragma unroll
    for (uint32_t i = 0; i < HeadParts::kParts; ++i) eight[i] = __ldcg(words_ + i * (HeadParts::kDim / 8));
    const float weight = weight_of(__ldcg(stat_));
#pragma unroll
    for (float& x : v) x = 0;
#pragma unroll
    for (uint32_t i = 0; i < HeadParts::kParts; ++i) add(eight[i], __shfl_sync(kAll, weight, i), v);
  }

 private:
  // Of this lane's part.
  __device__ static float weight_of(float2 stat) {
    float top = stat.y > 0 ? stat.x : -INFINITY;
#pragma unroll
    for (uint32_t d = 1; d < HeadParts::kParts; d *= 2) top = fmaxf(top, __shfl_xor_sync(kAll, top, d));
    const float own = stat.y > 0 ? exp2_of(stat.x - top) * stat.y : 0.0f;
    float sum = own;
#pragma unroll
    for (uint32_t d = 1; d < HeadParts::kParts; d *= 2) sum += __shfl_xor_sync(kAll, sum, d);
    return sum > 0 ? __fdividef(own, sum) : 0.0f;
  }
  __device__ static void add(const uint4& eight, float weight, float (&v)[8]) {
    const uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float2 two = __half22float2(*reinterpret_cast<const __half2*>(&words[j]));
      v[2 * j] = fmaf(weight, two.x, v[2 * j]), v[2 * j + 1] = fmaf(weight, two.y, v[2 * j + 1]);
    }
  }

  const uint4* words_;
  const float2* stat_;
};

}  // namespace gpu
