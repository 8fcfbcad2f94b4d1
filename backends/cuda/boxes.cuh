// Products of one row with 4-bit weights on Hopper: the copy engine brings boxes of a weight, tensor cores multiply.
//
// A block has 8 warps, and each its own columns: slices of 256 elements, 128 bytes of a row. So a warp needs of the
// activations only what it brings to integers itself, and the block meets once, to add up what its warps have. All that
// a block will read is asked for before it waits for the kernels in front.
//
// Activations become 12-bit integers with one scale per 64, finer than bf16. Two of a weight's 4-bit numbers, e and o,
// lie in a byte e + 16 o, and two activations x, y multiply them as
//   16 (e x + o y) = (e + 16 o) y + e (16 x - y)
// so that one operand of the tensor cores is the weight as it lies in memory and the other needs one mask. Activations
// are signed bytes, high and low, in two columns of the second operand per group of 64; eight columns take four groups.
#pragma once

#include "copy_engine.cuh"
#include "kernels.h"
#include "tensor_map.h"
#include "vector.cuh"

namespace gpu {

constexpr uint32_t kBoxWarps = 8, kBoxThreads = 32 * kBoxWarps;  // of a block
constexpr uint32_t kSlice = 256;                                 // columns
constexpr uint32_t kTileRows = 16, kTileBytes = kTileRows * kBoxBytes;

// Whether a weight's rows are whole slices with groups that are whole 64s; and whether there are whole tiles of them.
inline bool in_slices(const Weight& w) {
  return (w.dtype == SWY_I4 || w.dtype == SWY_I4A) && w.width % kSlice == 0 &&
         (w.groups == 1 || (w.group % 64 == 0 && (w.group & (w.group - 1)) == 0));
}
inline bool in_boxes(const Weight& w) { return in_slices(w) && w.rows % kTileRows == 0; }
// Scales of `rows` rows, and offsets behind them.
__host__ __device__ inline uint32_t scales_bytes(const Weight& w, uint32_t rows) {
  return rows * w.groups * 2 * (w.offsets != nullptr ? 2 : 1);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// ---- what was asked for and has not come yet

struct Asked {
  uint64_t barrier;

  __device__ void init() { barrier_init(shared_at(&barrier), 1); }
  __device__ void expect(uint32_t bytes) { barrier_expect(shared_at(&barrier), bytes); }
  __device__ void wait() { barrier_wait(shared_at(&barrier), 0); }
  // A box whose first byte is `column` of row `row`.
  __device__ void ask(void* to, const CUtensorMap& map, uint32_t column, uint32_t row) {
    copy_box(shared_at(to), map, column, row, shared_at(&barrier));
  }
  // Scales of `rows` rows from `row`, then their offsets; as many bytes as scales_bytes says.
  __device__ void ask_scales(uint16_t* to, const Weight& w, uint64_t row, uint32_t rows) {
    const uint32_t bytes = rows * w.groups * 2;
    copy_in(shared_at(to), w.scales + row * w.groups, bytes, shared_at(&barrier));
    if (w.offsets == nullptr) return;
    copy_in(shared_at(to + rows * w.groups), w.offsets + row * w.groups, bytes, shared_at(&barrier));
  }
};
// Dynamic shared memory from where a box may begin.
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

// A slice of the activations as the second operand: b[group][0] multiplies bytes of the weight as they are, b[group][1]
// their low halves. Lane 4 g + t has column g, and of each 64 the 16 from 16 t. `scale` and `sum` are of group t; scale
// is that of 16 times the product.
struct SliceX {
  uint32_t b[4][2][2];
  float scale, sum;
};

// Four bytes of four integers: the low ones, or the high ones rounded so that the low ones are signed.
__device__ inline uint32_t low_bytes(int a, int b, int c, int d) {
  return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
}
__device__ inline uint32_t high_bytes(int a, int b, int c, int d) {
  return __byte_perm(__byte_perm(a + 128, b + 128, 0x0051), __byte_perm(c + 128, d + 128, 0x0051), 0x5410);
}

// Lane i gives elements 8 i to 8 i + 7. What comes out of products is multiplied by `factor`. `scratch` [32] belongs to
// the warp.
__device__ inline SliceX make_slice(const float (&v)[8], float factor, uint4* scratch) {
  const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
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
  SliceX s;
#pragma unroll
  for (int group = 0; group < 4; ++group) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint2 words = reinterpret_cast<const uint2*>(scratch + 8 * group + 2 * t + half)[g % 2];
      s.b[group][0][half] = g / 2 == group ? words.x : 0;
      s.b[group][1][half] = g / 2 == group ? words.y : 0;
    }
  }
  s.scale = __shfl_sync(kAll, scale, 8 * t) * factor * (1.0f / 16);
  s.sum = static_cast<float>(__shfl_sync(kAll, sum, 8 * t)) * 16;
  return s;
}

// ---- products

__device__ inline void multiply_bytes(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                      const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b[0]), "r"(b[1]));
}

// Which row of eight a lane reads, so that no two of a half warp meet in a bank.
__device__ inline uint32_t box_row() { return threadIdx.x % 16 / 4 * 2 + threadIdx.x % 32 / 16; }

// Where a slice's scales and offsets of tiles lie: of row r of a tile and group t at [r * stride + (t >> shift)].
struct TileScales {
  const uint16_t* scales;
  uint32_t stride, shift;
  uint32_t offsets;  // how far behind the scales the offsets are; 0: they are -8 times the scale
  uint32_t next;     // from one tile to the next

  // Of `rows` rows in one piece, as Asked::ask_scales brings them; tiles follow each other by `next` elements.
  __device__ TileScales(const void* at, const Weight& w, uint32_t slice, uint32_t rows, uint32_t next_tile)
      : stride(w.groups), offsets(w.offsets == nullptr ? 0 : rows * w.groups), next(next_tile) {
    const bool one = w.groups == 1;
    shift = one ? 31 : 31 - __clz(w.group / 64);
    scales = static_cast<const uint16_t*>(at) + (slice * (kSlice / 64) >> shift);  // slice * kSlice / group
  }
};

// N tiles, one behind the other, times a slice. sum[i][j] gets the share of group t of row box_row() + 8 j.
template <int N>
__device__ inline void multiply_tiles(const char* tiles, const TileScales& w, const SliceX& x, float (&sum)[N][2]) {
  const uint32_t t = threadIdx.x % 4, row = box_row();
  int c[N][4] = {}, d[N][4] = {};
  const char* from = tiles + row * kBoxBytes + t % 2 * 8;
#pragma unroll
  for (uint32_t group = 0; group < 4; ++group) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const char* at = from + i * kTileBytes + ((2 * group + t / 2) ^ row) * 16;
      const uint2 p = *reinterpret_cast<const uint2*>(at), q = *reinterpret_cast<const uint2*>(at + 8 * kBoxBytes);
      constexpr uint32_t kLow = 0x0f0f0f0fu;
      multiply_bytes(c[i], p.x, q.x, p.y, q.y, x.b[group][0]);
      multiply_bytes(d[i], p.x & kLow, q.x & kLow, p.y & kLow, q.y & kLow, x.b[group][1]);
    }
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const uint16_t* at = w.scales + i * w.next + (row + 8 * j) * w.stride + (t >> w.shift);
      const float dot = static_cast<float>((c[i][2 * j] + d[i][2 * j]) * 256 + c[i][2 * j + 1] + d[i][2 * j + 1]);
      const float scale = half_bits(*at), offset = w.offsets == 0 ? -8.0f * scale : half_bits(at[w.offsets]);
      sum[i][j] = x.scale * fmaf(scale, dot, offset * x.sum);
    }
  }
}

// Adds up the groups; the rows of the first `tiles` tiles get the sums in `to`, or have them added.
template <int N>
__device__ inline void give(const float (&sum)[N][2], float* to, uint32_t tiles, bool add) {
#pragma unroll
  for (uint32_t i = 0; i < N; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float v = sum[i][j];
      v += __shfl_xor_sync(kAll, v, 1);
      v += __shfl_xor_sync(kAll, v, 2);
      if (threadIdx.x % 4 != 0 || i >= tiles) continue;
      float& at = to[i * kTileRows + j * 8 + box_row()];
      at = add ? at + v : v;
    }
  }
}

// A warp's share of the sum of the squares of x, for the whole block.
__device__ inline void keep_square(float square, float (&squares)[kBoxWarps]) {
  square = warp_sum(square);
  if (threadIdx.x % 32 == 0) squares[threadIdx.x / 32] = square;
}

#endif

}  // namespace gpu
