// SPDX-License-Identifier: Apache-2.0
// GATED_DELTA for prompts: what depends on one chunk only, for all chunks at once. All blocks convolve, some of them
// columns of v only.
//
// The others have one chunk of one key head, whose q and k stay in shared memory. K K^T and Q K^T are the same for all
// value heads of it; decays and beta turn them into L and W. X = (I + L)^-1 is found by blocks of 16: the diagonal ones
// by substitution in fp32, one thread per column; the others from them by products in tf32, X_IJ = -X_II sum over K < I
// of L_IK X_KJ, J <= K. A warp has 16 columns of X, transposed, so that one product's sums are the next one's first
// operand.
#include "common/matrix.cuh"
#include "gated_delta_inputs.cuh"

namespace gpu {
namespace {

constexpr uint32_t kThreads = kInputThreads, kStride = kChunk + 8, kPair = 2;  // kPair: value heads at a time

// Inverts the diagonal blocks in place, one thread per column. All threads of the block must call this.
__device__ inline void invert_diagonal(float (*l)[kChunk][kStride]) {
  const uint32_t top = threadIdx.x / 16 % 4 * 16, column = threadIdx.x % 16;
  float(*block)[kStride] = l[threadIdx.x / kChunk] + top;
  float x[16];
#pragma unroll
  for (uint32_t i = 0; i < 16; ++i) {
    float sum = i == column ? 1.0f : 0.0f;
#pragma unroll
    for (uint32_t m = 0; m < i; m += 4) {
      const float4 v = *reinterpret_cast<const float4*>(&block[i][top + m]);
      sum = fmaf(-v.x, x[m], sum);
      if (m + 1 < i) sum = fmaf(-v.y, x[m + 1], sum);
      if (m + 2 < i) sum = fmaf(-v.z, x[m + 2], sum);
      if (m + 3 < i) sum = fmaf(-v.w, x[m + 3], sum);
    }
    x[i] = sum;
  }
  __syncwarp();
#pragma unroll
  for (uint32_t i = 0; i < 16; ++i) block[i][top + column] = x[i];
}

// sums [16, 16] += x [16, 16] block^T, in tf32. x has the layout of sums: a thread has columns 2 t and 2 t + 1, which
// are passed to the instruction as t and t + 4.
__device__ inline void multiply_block(float (&sums)[2][4], const float (&x)[2][4], const float (*block)[kStride]) {
  const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (uint32_t m = 0; m < 2; ++m) {
#pragma unroll
    for (uint32_t n = 0; n < 2; ++n) {
      const float2 b = *reinterpret_cast<const float2*>(&block[n * 8 + g][m * 8 + 2 * t]);
      asm volatile(
          "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
          "%2, %3};"
          : "+f"(sums[n][0]), "+f"(sums[n][1]), "+f"(sums[n][2]), "+f"(sums[n][3])
          : "r"(__float_as_uint(x[m][0])), "r"(__float_as_uint(x[m][2])), "r"(__float_as_uint(x[m][1])),
            "r"(__float_as_uint(x[m][3])), "r"(__float_as_uint(b.x)), "r"(__float_as_uint(b.y)));
    }
  }
}

// Columns 16 warp to 16 warp + 15 of X diag(beta), written as a tile; l: L with inverted diagonal blocks.
__device__ inline void invert_columns(const float (*l)[kStride], const float* beta, uint16_t* inverse) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const float low = beta[warp * 16 + g], high = beta[warp * 16 + 8 + g];
  float x[4][2][4];  // X^T: column g or g + 8, row of each block as products have it
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    if (i < warp) continue;
    if (i == warp) {
#pragma unroll
      for (uint32_t e = 0; e < 8; ++e) {
        x[i][e / 4][e % 4] = l[i * 16 + e / 4 * 8 + 2 * t + e % 2][i * 16 + g + e % 4 / 2 * 8];
      }
    } else {
      float sums[2][4] = {};
#pragma unroll
      for (uint32_t k = 0; k < i; ++k) {
        if (k >= warp) multiply_block(sums, x[k], reinterpret_cast<const float(*)[kStride]>(&l[i * 16][k * 16]));
      }
#pragma unroll
      for (uint32_t e = 0; e < 8; ++e) sums[e / 4][e % 4] = -sums[e / 4][e % 4], x[i][e / 4][e % 4] = 0;
      multiply_block(x[i], sums, reinterpret_cast<const float(*)[kStride]>(&l[i * 16][i * 16]));
    }
#pragma unroll
    for (uint32_t n = 0; n < 2; ++n) {
      const float(&v)[4] = x[i][n];
      const uint32_t left = transpose(pack_bf16(v[0] * low, v[1] * low));
      const uint32_t right = transpose(pack_bf16(v[2] * high, v[3] * high));
      char* to = reinterpret_cast<char*>(inverse) + 4 * t;
      *reinterpret_cast<uint32_t*>(to + tile_at<8>(i * 16 + n * 8 + g, 2 * warp)) = left;
      *reinterpret_cast<uint32_t*>(to + tile_at<8>(i * 16 + n * 8 + g, 2 * warp + 1)) = right;
    }
  }
}

// Shared memory of a block.
template <int kDim>
struct Shared {
  union {
    struct {
      char k[kChunk * kDim * 2], q[kChunk * kDim * 2];
    } tiles;
    float l[kPair][kChunk][kStride];  // L of each head, once the products are done
  };
  float sum[kPair][kChunk], beta[kPair][kChunk], half[kPair];  // of log decays
};

// Sums of log decays and beta of value heads head and on; rows beyond the chunk's change nothing.
template <int kDim>
__device__ inline void gates_of(const Chunks& c, const Part& chunk, uint32_t head, uint32_t heads, Shared<kDim>& s) {
  const Delta& d = c.d;
  const uint32_t h = threadIdx.x / kChunk, i = threadIdx.x % kChunk, lane = threadIdx.x % 32;
  float g = 0, beta = 0;
  if (i < chunk.rows && h < heads) {
    const uint64_t at = uint64_t{chunk.first + i} * d.value_heads + head + h;
    const float x = d.a[at] + plain_at(d.dt_bias, head + h);
    g = -expf(plain_at(d.a_log, head + h)) * (x > 20.0f ? x : log1pf(expf(x)));
    beta = sigmoid(d.b[at]);
  }
#pragma unroll
  for (uint32_t o = 1; o < 32; o *= 2) {
    const float before = __shfl_up_sync(kAll, g, o);
    if (lane >= o) g += before;
  }
  if (i == 31) s.half[h] = g;
  __syncthreads();
  if (i >= 32) g += s.half[h];
  s.sum[h][i] = g;
  s.beta[h][i] = beta;
  __syncthreads();
}

// Rows 16 warp to 16 warp + 15 of one head's L and W. `kk`, `qk`: this thread's elements of K K^T and Q K^T.
__device__ inline void write_products(const float (&kk)[8][4], const float (&qk)[8][4], const float* sum,
                                      const float* beta, float (*l)[kStride], uint16_t* within) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (uint32_t half = 0; half < 2; ++half) {
    const uint32_t i = warp * 16 + half * 8 + g;
    const float own = sum[i], factor = beta[i];
#pragma unroll
    for (uint32_t n = 0; n < 8; ++n) {
      if (n / 2 > warp) break;
      const uint32_t j = n * 8 + 2 * t;
      const float2 other = *reinterpret_cast<const float2*>(sum + j);
      const float first = j <= i ? __expf(own - other.x) : 0.0f, second = j + 1 <= i ? __expf(own - other.y) : 0.0f;
      *reinterpret_cast<float2*>(&l[i][j]) = make_float2(j < i ? factor * kk[n][half * 2] * first : 0.0f,
                                                         j + 1 < i ? factor * kk[n][half * 2 + 1] * second : 0.0f);
      *reinterpret_cast<uint32_t*>(reinterpret_cast<char*>(within) + tile_at<8>(i, n) + t * 4) =
          pack_bf16(qk[n][half * 2] * first, qk[n][half * 2 + 1] * second);
    }
  }
}

// Rows 16 warp to 16 warp + 15 of K K^T and Q K^T, up to the diagonal.
template <int kDim>
__device__ inline void multiply_keys(float (&kk)[8][4], float (&qk)[8][4], uint32_t warp, uint32_t keys,
                                     uint32_t queries) {
  constexpr uint32_t kUnits = kDim / 8;
#pragma unroll
  for (uint32_t k = 0; k < kDim; k += 16) {
    uint32_t a[4], b[4], right[4];
    first_operand<kUnits>(a, keys, warp * 16, k);
    first_operand<kUnits>(b, queries, warp * 16, k);
#pragma unroll
    for (uint32_t n = 0; n < 4; ++n) {
      if (n > warp) break;
      second_operand<kUnits>(right, keys, n * 16, k);
      matrix_multiply(kk[2 * n], a, right[0], right[1]);
      matrix_multiply(kk[2 * n + 1], a, right[2], right[3]);
      matrix_multiply(qk[2 * n], b, right[0], right[1]);
      matrix_multiply(qk[2 * n + 1], b, right[2], right[3]);
    }
  }
}

// blockIdx.x: slot; blockIdx.y: key head, then 128 columns of v. kPends: with pending rows.
template <int kDim, bool kPends>
__global__ void __launch_bounds__(kThreads, 3) triangles(const __grid_constant__ Chunks c, const swy_step* step) {
  extern __shared__ __align__(128) char memory[];
  auto& s = *reinterpret_cast<Shared<kDim>*>(memory);
  const Delta& d = c.d;
  release_next();
  const Part chunk = part_of(step, blockIdx.x, kChunk);
  const bool none = chunk.rows == 0 || !chunk.active;
  if (none && blockIdx.x + blockIdx.y != 0) return;  // one waits for all: the next kernel begins when all have begun
  if (none) return depend();
  const Run run = run_of<kPends>(step, chunk.seq);
  depend();
  const bool values = blockIdx.y >= d.key_heads;
#pragma unroll 1
  for (uint32_t n = 0; n < (values ? 1 : 2); ++n) {  // once in the code, which is long
    const Kind kind = values ? Kind::value : n == 0 ? Kind::key : Kind::query;
    char* near = values ? nullptr : n == 0 ? s.tiles.k : s.tiles.q;
    convolve<kPends>(c, unit_of(c, kind, values ? blockIdx.y - d.key_heads : blockIdx.y), run, chunk, near);
  }
  if (values) return;
  if (chunk.total <= c.few) return;
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t ratio = d.value_heads / d.key_heads, head0 = blockIdx.y * ratio;
  gates_of<kDim>(c, chunk, head0, min(kPair, ratio), s);  // all rows of q and k are there then
  float kk[8][4] = {}, qk[8][4] = {};
  multiply_keys<kDim>(kk, qk, warp, shared_at(s.tiles.k), shared_at(s.tiles.q));
  for (uint32_t done = 0; done < ratio; done += kPair) {
    const uint32_t heads = min(kPair, ratio - done);
    const uint64_t at = uint64_t{blockIdx.x} * d.value_heads + head0 + done;
    __syncthreads();
    if (done > 0) gates_of<kDim>(c, chunk, head0 + done, heads, s);
    for (uint32_t h = 0; h < heads; ++h) {
      write_products(kk, qk, s.sum[h], s.beta[h], s.l[h], c.within + (at + h) * kChunkTile);
    }
    if (const uint32_t h = threadIdx.x / kChunk, i = threadIdx.x % kChunk; h < heads) {
      const float sum = s.sum[h][i];
      c.decay[(at + h) * kChunk + i] = make_float2(__expf(sum), __expf(s.sum[h][kChunk - 1] - sum));
    }
    __syncthreads();
    invert_diagonal(s.l);
    __syncthreads();
    for (uint32_t h = 0; h < heads; ++h) invert_columns(s.l[h], s.beta[h], c.inverse + (at + h) * kChunkTile);
  }
}

}  // namespace

swy_status record_triangles(const Recording& r, const Chunks& c) {
  const dim3 grid(c.slots, c.d.key_heads + value_units(c.d));
  const bool pends = c.pends();
  switch (c.d.key_dim) {
    case 32:
      return launch(r, pends ? triangles<32, true> : triangles<32, false>, grid, kThreads, sizeof(Shared<32>), c,
                    r.list.step);
    case 64:
      return launch(r, pends ? triangles<64, true> : triangles<64, false>, grid, kThreads, sizeof(Shared<64>), c,
                    r.list.step);
    default:
      return launch(r, pends ? triangles<128, true> : triangles<128, false>, grid, kThreads, sizeof(Shared<128>), c,
                    r.list.step);
  }
}

}  // namespace gpu
