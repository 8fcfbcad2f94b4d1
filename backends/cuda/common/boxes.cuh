// SPDX-License-Identifier: Apache-2.0
// Products of one row with 4-bit weights: the copy engine of Hopper brings boxes of a weight (async_copies.cuh does so
// for other cards), tensor cores multiply. (README.md has a glossary.)
//
// Each warp of a block has its own columns: slices of 256 elements, 128 bytes of a row. So a warp needs only the
// activations that it converts itself, and the block meets only once, to add up its warps' results. A block requests
// all that it will read before it waits for the previous kernels.
//
// Activations become 12-bit integers with one scale per 64, finer than bf16. Two of a weight's 4-bit numbers, e and o,
// lie in a byte e + 16 o. For two activations x, y
//   16 (e x + o y) = (e + 16 o) y + e (16 x - y)
//
// so one operand of the tensor cores is the weight as it lies in memory, and the other needs one mask. Activations are
// signed bytes, high and low, in two columns of the second operand per group of 64; eight columns hold four groups.
#pragma once

#include "copy_engine.cuh"
#include "host/kernels.h"
#include "host/tensor_map.h"
#include "vector.cuh"

namespace gpu {

constexpr uint32_t kBoxWarps = 8, kBoxThreads = 32 * kBoxWarps;  // of a block
constexpr uint32_t kSlice = 256;                                 // columns
constexpr uint32_t kTileRows = 16, kTileBytes = kTileRows * kBoxBytes;
constexpr uint32_t kBoxAlignment = 1024;  // of the first box: the copy engine's pattern repeats so often

// Lets a block begin beside others. Registers belong to a quarter of a multiprocessor, 16,384 each, and a block's warps
// go to the quarters in turn. `down` has 18 warps of 56 registers, five of them in two quarters. That leaves room for a
// projection's 16 warps, or the 16 of two blocks of gate_up, if these have 56 as well. Launch bounds of two blocks of
// this many threads make the compiler keep to that.
constexpr uint32_t kBesideThreads = 18 * 32;

// Whether a weight's rows are whole slices with groups of whole 64s; and whether its rows are also whole tiles.
inline bool in_slices(const Weight& w) {
  return (w.dtype == SWY_I4 || w.dtype == SWY_I4A) && w.width % kSlice == 0 &&
         (w.groups == 1 || (w.group % 64 == 0 && (w.group & (w.group - 1)) == 0));
}
inline bool in_boxes(const Weight& w) { return in_slices(w) && w.rows % kTileRows == 0; }
// Bytes of the scales of `rows` rows, and of the offsets that follow them.
__host__ __device__ inline uint32_t scales_bytes(const Weight& w, uint32_t rows) {
  return rows * w.groups * 2 * (w.offsets != nullptr ? 2 : 1);
}

// ---- requests to the copy engine that have not arrived yet

struct Asked {
  uint64_t barrier;

  __device__ void init() { barrier_init(shared_at(&barrier), 1); }
  __device__ void expect(uint32_t bytes) { barrier_expect(shared_at(&barrier), bytes); }
  // A box whose first byte is `column` of row `row`.
  __device__ void ask(void* to, const CUtensorMap& map, uint32_t column, uint32_t row) {
    copy_box(shared_at(to), map, column, row, shared_at(&barrier));
  }
  // Scales of `rows` rows from `row`, then their offsets: scales_bytes() in all.
  __device__ void ask_scales(uint16_t* to, const Weight& w, uint64_t row, uint32_t rows) {
    const uint32_t bytes = rows * w.groups * 2;
    copy_in(shared_at(to), w.scales + row * w.groups, bytes, shared_at(&barrier));
    if (w.offsets == nullptr) return;
    copy_in(shared_at(to + rows * w.groups), w.offsets + row * w.groups, bytes, shared_at(&barrier));
  }
};
// Dynamic shared memory, aligned for boxes. Kernels that declare it with kBoxAlignment need no room for this.
__device__ inline char* first_box(char* dynamic) { return dynamic + (1024 - shared_at(dynamic) % 1024) % 1024; }

// ---- activations

__device__ inline void load_eight_fresh(const float* x, float (&v)[8]) {
  const float4 a = __ldcg(reinterpret_cast<const float4*>(x)), b = __ldcg(reinterpret_cast<const float4*>(x) + 1);
  v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}

// Elements 8 i to 8 i + 7 of a weight in f32 or bf16.
__device__ inline void unpack_eight(const uint4& bf16, float (&v)[8]) {
  const uint32_t words[4] = {bf16.x, bf16.y, bf16.z, bf16.w};
#pragma unroll
  for (int j = 0; j < 4; ++j)
    v[2 * j] = bf16_bits(words[j] & 0xffff), v[2 * j + 1] = __uint_as_float(words[j] & 0xffff0000u);
}
__device__ inline void plain_eight(const Weight& w, uint64_t i, float (&v)[8]) {
  if (w.dtype == SWY_BF16) {
    unpack_eight(load_piece(w.data + 16 * i), v);
  } else {
    load_eight(reinterpret_cast<const float*>(w.data) + 8 * i, v);
  }
}

// A slice of the activations as integers. `scale` and `sum` are of group t of lane 4 g + t: the scale of 16 times the
// product, and 16 times the sum.
struct SliceX {
  float scale, sum;
};

// One byte of each of four integers: the low bytes, or the high ones rounded so that the low ones are signed.
__device__ inline uint32_t low_bytes(int a, int b, int c, int d) {
  return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
}
__device__ inline uint32_t high_bytes(int a, int b, int c, int d) {
  return __byte_perm(__byte_perm(a + 128, b + 128, 0x0051), __byte_perm(c + 128, d + 128, 0x0051), 0x5410);
}

// Lane i passes elements 8 i to 8 i + 7. `scratch` [32], the warp's, gets for each eight the words of the second
// operand: high bytes for a weight's bytes as they are and for their low halves, then low bytes for both.
__device__ inline SliceX make_slice(const float (&v)[8], uint4* scratch) {
  const uint32_t lane = threadIdx.x % 32, t = lane % 4;
  float top = 0;
#pragma unroll
  for (int j = 0; j < 8; ++j) top = fmaxf(top, fabsf(v[j]));
#pragma unroll
  for (int d = 1; d < 8; d *= 2) top = fmaxf(top, __shfl_xor_sync(kAll, top, d));
  constexpr float kMost = 1919, kRound = 12582912.0f;  // 17 * kMost has 16 bits; 1.5 * 2^23 leaves integers
  const float scale = fmaxf(top * (1.0f / kMost), 1e-37f), inverse = __fdividef(1.0f, scale);
  int q[8], sum = 0;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    q[j] = __float_as_int(fmaf(v[j], inverse, kRound)) - __float_as_int(kRound);
    sum += q[j];
  }
#pragma unroll
  for (int d = 1; d < 8; d *= 2) sum += __shfl_xor_sync(kAll, sum, d);
  const int both[4] = {16 * q[0] - q[1], 16 * q[2] - q[3], 16 * q[4] - q[5], 16 * q[6] - q[7]};
  __syncwarp();
  scratch[lane] = make_uint4(high_bytes(q[1], q[3], q[5], q[7]), high_bytes(both[0], both[1], both[2], both[3]),
                             low_bytes(q[1], q[3], q[5], q[7]), low_bytes(both[0], both[1], both[2], both[3]));
  __syncwarp();
  return {__shfl_sync(kAll, scale, 8 * t) * (1.0f / 16), static_cast<float>(__shfl_sync(kAll, sum, 8 * t)) * 16};
}

// ---- products

__device__ inline void multiply_bytes(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                      const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b[0]), "r"(b[1]));
}

// Where a slice's scales and offsets of tiles lie: those of row r of a tile and group t at [r * stride + (t >> shift)].
struct TileScales {
  const uint16_t* scales;
  uint32_t stride, shift;
  uint32_t offsets;  // distance from a scale to its offset; 0: offsets are -8 times the scale
  uint32_t next;     // from one tile to the next

  // Scales of `rows` rows in one piece, as Asked::ask_scales brings them; a tile's are `next` elements after the
  // previous tile's.
  __device__ TileScales(const void* at, const Weight& w, uint32_t slice, uint32_t rows, uint32_t next_tile)
      : stride(w.groups), offsets(w.offsets == nullptr ? 0 : rows * w.groups), next(next_tile) {
    const bool one = w.groups == 1;
    shift = one ? 31 : 31 - __clz(w.group / 64);
    scales = static_cast<const uint16_t*>(at) + (slice * (kSlice / 64) >> shift);  // slice * kSlice / group
  }
};

// Sums N values over lanes that differ in bits D, D / 2 ... 1; lane l gets value l / (2 D / N) % N.
template <int N, int D>
__device__ inline float sum_lanes(const float (&v)[N]) {
  if constexpr (N == 1) {
    float sum = v[0];
#pragma unroll
    for (int d = D; d > 0; d /= 2) sum += __shfl_xor_sync(kAll, sum, d);
    return sum;
  } else {
    const bool up = (threadIdx.x & D) != 0;
    float half[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      const float other = up ? v[i] : v[i + N / 2], keep = up ? v[i + N / 2] : v[i];
      half[i] = keep + __shfl_xor_sync(kAll, other, D);
    }
    return sum_lanes<N / 2, D / 2>(half);
  }
}

}  // namespace gpu
