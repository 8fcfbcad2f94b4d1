// SPDX-License-Identifier: Apache-2.0
// The products of linear_few.cuh with more than 16 rows, on Hopper, where mma.sync reaches only a part of wgmma's rate.
//
// Weights go through registers. Scale and offset are in the weight, both rounded to bf16, so that no sum is touched
// before the tile's end. Each warp of a warpgroup has a tile of its own.
#pragma once

#include "common/wgmma.cuh"
#include "linear_few_rows.cuh"

namespace gpu {

#ifdef SWY_HOPPER

// The factors that turn nibbles of one group of a row into kFewWeights of a weight.
struct FewFactors {
  __nv_bfloat162 scale, even, odd;  // offsets of even and of odd columns, which are 16 times as large

  __device__ explicit FewFactors(uint32_t bits) {
    const auto both = *reinterpret_cast<const __nv_bfloat162*>(&bits);
    scale = __low2bfloat162(both), even = __high2bfloat162(both);
    odd = __hmul2(even, __floats2bfloat162_rn(16.0f, 16.0f));
  }
  // As unpack_word.
  __device__ void unpack(uint32_t word, uint32_t half, uint32_t (&first)[4], uint32_t (&second)[4]) const {
    unpack_word(word, half, first, second);
    first[half] = weights(first[half], even), first[2 + half] = weights(first[2 + half], even);
    second[half] = weights(second[half], odd), second[2 + half] = weights(second[2 + half], odd);
  }

 private:
  __device__ uint32_t weights(uint32_t nibbles, __nv_bfloat162 offset) const {
    const __nv_bfloat162 v = __hfma2(*reinterpret_cast<const __nv_bfloat162*>(&nibbles), scale, offset);
    return *reinterpret_cast<const uint32_t*>(&v);
  }
};

// The products of M tiles of a warp, one team apart, in shared memory.
template <int N, bool kAffine, uint32_t M>
struct FewWgmma {
  using Block = FewBlock<N, kAffine, true>;
  static constexpr uint32_t kBuffers = N == 8 ? 1 : 2;  // of first operands: with 64 rows registers suffice for one

  const Block& block;
  uint32_t words[M], factors[M];  // where a lane's are, from `memory` on
  uint32_t a[kBuffers][4][4];

  // A warp without a tile takes the last one, since all warps of a warpgroup multiply.
  __device__ FewWgmma(const Block& b, uint32_t tile) : block(b), a() {
    const FewCut& c = b.f.cut;
    const uint32_t row = box_row(), t = b.lane % 4;
#pragma unroll
    for (uint32_t m = 0; m < M; ++m) {
      const uint32_t mine = min(tile + m * c.team, b.tiles - 1);
      words[m] = mine * c.slices() * kTileBytes + row * kBoxBytes + t % 2 * 8 + ((t / 2) ^ row) * 16;
      factors[m] = c.scales_at() + (mine * kTileRows + row) * c.scales * 4;
    }
  }

  // total += the products of groups begin to end, an even number.
  __device__ void multiply(uint32_t begin, uint32_t end, float (&total)[kFewWarpTiles][N * 4]) {
    const uint64_t operand = rows_descriptor(shared_at(block.memory + block.f.cut.x_at()), kFewBytes);
    const uint32_t first_group = block.column() / kFewGroup, before = block.first_scale();
    typename Block::RowChunks chunks(block, begin);
#pragma unroll 1
    for (uint32_t group = begin; group < end; group += 2) {
      chunks.wait_until(group + 2);
      const uint32_t slice = group / 4 * kTileBytes, turn = group % 4 * 32;
#pragma unroll
      for (uint32_t k = 0; k < 2; ++k) {
        const uint32_t scale = ((first_group + group + k) >> block.f.cut.scale_shift) - before;
#pragma unroll
        for (uint32_t m = 0; m < M; ++m) {
          const uint32_t now = (k * M + m) % kBuffers;
          make_weights((words[m] + slice) ^ turn ^ k * 32, factors[m] + scale * 4, a[now]);
          multiply_group(a[now], operand + (group + k) * (N * kFewBytes / 16), total[m]);
          products_wait<kBuffers - 1>();
          keep_operand(a[(now + 1) % kBuffers]);
        }
      }
    }
    products_wait<0>();
#pragma unroll
    for (uint32_t i = 0; i < kBuffers; ++i) keep_operand(a[i]);
#pragma unroll
    for (uint32_t m = 0; m < M; ++m) keep(total[m]);
  }

 private:
  // A group of a tile as the first operands of four instructions.
  __device__ void make_weights(uint32_t from, uint32_t by, uint32_t (&to)[4][4]) const {
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const uint2 q = *reinterpret_cast<const uint2*>(block.memory + from + half * 8 * kBoxBytes);
      const char* at = block.memory + by + half * 8 * block.f.cut.scales * 4;
      const FewFactors row(*reinterpret_cast<const uint32_t*>(at));
      row.unpack(q.x, half, to[0], to[1]);
      row.unpack(q.y, half, to[2], to[3]);
    }
  }
  __device__ static void multiply_group(uint32_t (&weights)[4][4], uint64_t operand, float (&total)[N * 4]) {
    keep_operand(weights);
    products_begin();
#pragma unroll
    for (uint32_t s = 0; s < 4; ++s) matrix_product<N * 8>(total, weights[s], operand + 2 * s);
    products_commit();
  }
  __device__ static void keep_operand(uint32_t (&weights)[4][4]) {
#pragma unroll
    for (uint32_t s = 0; s < 4; ++s) keep(weights[s]);
  }
};

#endif

}  // namespace gpu
