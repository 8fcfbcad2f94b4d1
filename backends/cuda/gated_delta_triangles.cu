// GATED_DELTA for prompts: what each chunk needs of itself, all chunks at once.
//
// A block has one chunk of one key head. K K^T and Q K^T are the same for all value heads of it; decays and beta make
// L and W of them. X = (I + L)^-1 is found by substitution in fp32, a thread per column, 16 rows at a time. L and X share
// one square [64, 64] of shared memory: L lies transposed above the diagonal, X below it, and its diagonal is all ones.
#include "gated_delta_chunks.cuh"
#include "matrix.cuh"

namespace gpu {
namespace {

constexpr uint32_t kThreads = 128, kStride = kChunk + 4, kPair = 2;  // value heads at a time
constexpr uint32_t kKeepers = 8;                                     // blocks per sequence that keep inputs

// The last kernel - 1 inputs of an active sequence: part `part` of kKeepers of the channels.
__device__ inline void keep_inputs(const Delta& d, const swy_step* step, uint32_t seq, uint32_t part) {
  if (seq >= step->seqs) return;
  const Sequence s = sequence_of(step, seq);
  if (!s.active) return;
  const uint32_t channels = d.channels(), keep = d.kernel - 1;
  for (uint32_t c = part * kThreads + threadIdx.x; c < channels; c += kKeepers * kThreads) {
    const float* from = d.conv_state + (s.read * channels + c) * keep;
    float* to = d.conv_state + (s.write * channels + c) * keep;
    for (uint32_t t = 0; t < keep; ++t) {  // ascending: with from == to nothing is read after it was written
      const uint32_t at = t + s.rows;      // among the old inputs and then the rows
      float x = 0;
      if (at >= keep) {
        x = d.qkv[uint64_t{s.first + at - keep} * channels + c];
      } else if (!s.fresh) {
        x = from[at];
      }
      to[t] = x;
    }
  }
}

// Column j of X, below the diagonal: x_i = -sum over m of L_im x_m, with x_j = 1. `m`: the square; first: 0 or 32, a
// multiple of 16 that is not beyond any j of the warp.
__device__ inline void substitute(float (*m)[kStride], uint32_t j, uint32_t first) {
  for (uint32_t top = first; top < kChunk; top += 16) {
    float x[16] = {};
    for (uint32_t i = first; i < top; ++i) {
      const float known = i > j ? m[i][j] : i == j ? 1.0f : 0.0f;
#pragma unroll
      for (uint32_t r = 0; r < 16; r += 4) {
        const float4 l = *reinterpret_cast<const float4*>(&m[i][top + r]);
        x[r] = fmaf(-l.x, known, x[r]), x[r + 1] = fmaf(-l.y, known, x[r + 1]);
        x[r + 2] = fmaf(-l.z, known, x[r + 2]), x[r + 3] = fmaf(-l.w, known, x[r + 3]);
      }
    }
#pragma unroll
    for (uint32_t r = 0; r < 16; ++r) {
      if (top + r == j) x[r] = 1;
      if (top + r > j) m[top + r][j] = x[r];
#pragma unroll
      for (uint32_t q = (r + 1) / 4 * 4; q < 16; q += 4) {
        const float4 l = *reinterpret_cast<const float4*>(&m[top + r][top + q]);
        if (q > r) x[q] = fmaf(-l.x, x[r], x[q]);
        if (q + 1 > r) x[q + 1] = fmaf(-l.y, x[r], x[q + 1]);
        if (q + 2 > r) x[q + 2] = fmaf(-l.z, x[r], x[q + 2]);
        if (q + 3 > r) x[q + 3] = fmaf(-l.w, x[r], x[q + 3]);
      }
    }
  }
}

// Shared memory of a block.
template <int kDim>
struct Shared {
  char k[kChunk * kDim * 2], q[kChunk * kDim * 2];
  float square[kPair][kChunk][kStride];
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

// blockIdx.x: slot; blockIdx.y: key head, and kKeepers more for the inputs of sequence blockIdx.x.
template <int kDim>
__global__ void __launch_bounds__(kThreads) triangles(const __grid_constant__ Chunks c, const swy_step* step) {
  extern __shared__ __align__(128) char memory[];
  auto& s = *reinterpret_cast<Shared<kDim>*>(memory);
  constexpr uint32_t kUnits = kDim / 8;
  const Delta& d = c.d;
  release_next();
  depend();
  if (blockIdx.y >= d.key_heads) return keep_inputs(d, step, blockIdx.x, blockIdx.y - d.key_heads);
  const Part chunk = part_of(step, blockIdx.x, kChunk);
  if (chunk.rows == 0 || !chunk.active) return;
  const uint64_t tile = (uint64_t{blockIdx.x} * d.key_heads + blockIdx.y) * kChunk * kDim;
#pragma unroll
  for (uint32_t n = 0; n < kChunk * kUnits / kThreads; ++n) {
    const uint32_t i = n * kThreads + threadIdx.x;
    copy_later(s.k + i * 16, c.k + tile + i * 8, i / kUnits < chunk.rows);
    copy_later(s.q + i * 16, c.q + tile + i * 8, i / kUnits < chunk.rows);
  }
  copies_end();
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const uint32_t ratio = d.value_heads / d.key_heads, head0 = blockIdx.y * ratio;
  gates_of<kDim>(c, chunk, head0, min(kPair, ratio), s);
  copies_wait<0>();
  __syncthreads();
  // Rows 16 warp to 16 warp + 15 of K K^T and Q K^T, up to the diagonal.
  float kk[8][4] = {}, qk[8][4] = {};
  const uint32_t keys = shared_address(s.k), queries = shared_address(s.q);
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
  for (uint32_t done = 0; done < ratio; done += kPair) {
    const uint32_t heads = min(kPair, ratio - done);
    if (done > 0) gates_of<kDim>(c, chunk, head0 + done, heads, s);
    for (uint32_t h = 0; h < heads; ++h) {
      const uint64_t at = uint64_t{blockIdx.x} * d.value_heads + head0 + done + h;
      uint16_t* within = c.within + at * kChunkTile;
#pragma unroll
      for (uint32_t n = 0; n < 8; ++n) {
        if (n / 2 > warp) break;
#pragma unroll
        for (uint32_t half = 0; half < 2; ++half) {
          const uint32_t i = warp * 16 + half * 8 + g, j = n * 8 + 2 * t;
          float w[2];
#pragma unroll
          for (uint32_t e = 0; e < 2; ++e) {
            const float decay = j + e <= i ? __expf(s.sum[h][i] - s.sum[h][j + e]) : 0.0f;
            if (j + e < i) s.square[h][j + e][i] = s.beta[h][i] * kk[n][half * 2 + e] * decay;
            w[e] = qk[n][half * 2 + e] * decay;
          }
          *reinterpret_cast<uint32_t*>(reinterpret_cast<char*>(within) + tile_at<8>(i, n) + t * 4) =
              pack_bf16(w[0], w[1]);
        }
      }
    }
    __syncthreads();
    if (warp / 2 < heads) substitute(s.square[warp / 2], warp % 2 * 32 + lane, warp % 2 * 32);
    __syncthreads();
    for (uint32_t n = threadIdx.x; n < heads * kChunk * 8; n += kThreads) {
      const uint32_t h = n / (kChunk * 8), i = n / 8 % kChunk, u = n % 8;
      if (u / 2 > i / 16) continue;
      float x[8];
#pragma unroll
      for (uint32_t e = 0; e < 8; ++e) {
        const uint32_t j = u * 8 + e;
        x[e] = j < i ? s.square[h][i][j] * s.beta[h][j] : j == i ? s.beta[h][j] : 0.0f;
      }
      const uint64_t at = uint64_t{blockIdx.x} * d.value_heads + head0 + done + h;
      *reinterpret_cast<uint4*>(reinterpret_cast<char*>(c.inverse + at * kChunkTile) + tile_at<8>(i, u)) =
          make_uint4(pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]), pack_bf16(x[4], x[5]), pack_bf16(x[6], x[7]));
    }
    if (threadIdx.x / kChunk < heads) {
      const uint32_t h = threadIdx.x / kChunk, i = threadIdx.x % kChunk;
      const uint64_t at = uint64_t{blockIdx.x} * d.value_heads + head0 + done + h;
      const float sum = s.sum[h][i];
      c.decay[at * kChunk + i] = make_float2(__expf(sum), __expf(s.sum[h][kChunk - 1] - sum));
    }
    __syncthreads();
  }
}

}  // namespace

swy_status record_triangles(const Recording& r, const Chunks& c) {
  const dim3 grid(c.slots, c.d.key_heads + kKeepers);
  switch (c.d.key_dim) {
    case 32: return launch(r, triangles<32>, grid, kThreads, sizeof(Shared<32>), c, r.list.step);
    case 64: return launch(r, triangles<64>, grid, kThreads, sizeof(Shared<64>), c, r.list.step);
    default: return launch(r, triangles<128>, grid, kThreads, sizeof(Shared<128>), c, r.list.step);
  }
}

}  // namespace gpu
