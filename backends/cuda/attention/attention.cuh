// SPDX-License-Identifier: Apache-2.0
// Shared by the kernels of ATTENTION and ATTEND: their operands, where keys and values lie, and how the parts of a row
// are joined.
#pragma once

#include "attention_bytes.cuh"
#include "common/half_rows.cuh"
#include "common/head_parts.cuh"
#include "rope.cuh"

namespace gpu {

constexpr uint32_t kHeads = 8;  // query heads that a block serves at most
constexpr uint32_t kNoWindow = 1u << 31;

struct Attention : Rotation {
  const float *q, *k, *v;  // the operation's inputs
  void* pages;
  float* y;         // [rows, heads * head_dim]
  HeadParts left;   // where the clusters of the only row leave their parts; without words, one of them joins these
  HalfRows halves;  // where the same goes as integers; without words, y is written
  void* ready;      // [rows, heads, head_dim]: q, normed, rotated and scaled, in fp32 or (packed) bf16
  float* parts;     // [rows, head groups, splits, kHeads, head_dim + 2]
  uint32_t* counters;
  Weight q_norm, k_norm;
  uint32_t heads, kv_heads, head_dim, rotary;
  uint32_t groups;  // blocks per KV head, of kHeads query heads each
  float scale, eps, bias;
  swy_dtype kv_type;   // of keys and values: fp32, bf16 or 8 bits
  BytePages bytes;     // where they lie in 8 bits
  uint16_t* expanded;  // pages of the same numbers in bf16, for kernels that read only these
  bool gated, packed;
  bool alone;  // one row per sequence: all earlier positions are in the pages already
  uint32_t splits;
  // Of revision 2.
  bool normed;       // q and k have norms
  Bias sinks;        // [heads]: one more score of each row, without a value
  uint32_t window;   // positions that a row reads, its own among them; kNoWindow: all
  float late_scale;  // of the products with q

  __host__ __device__ uint32_t per_kv() const { return heads / kv_heads; }
};

// Positions of one split of a row that reads `count`. Depends only on the row's position.
__host__ __device__ inline uint32_t split_positions(uint32_t count) {
  return count <= 4096 ? 64 : count <= 16384 ? 128 : 256;
}

// The first position that a row reads which reads `context - 1` as its last.
__device__ inline uint32_t first_read(const Attention& a, uint32_t context) {
  return context > a.window ? context - a.window : 0;
}

// The weight of a head's sink, beside weights exp(score - top).
__device__ inline float sink_weight(const Attention& a, uint32_t head, float top) {
  return a.sinks.data == nullptr ? 0.0f : __expf(bias_at(a.sinks, head) - top);
}

// n consecutive elements, aligned to their size.
template <int N>
__device__ inline void load_kv(const float* p, float (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    const float2 v = *reinterpret_cast<const float2*>(p + i);
    x[i] = v.x, x[i + 1] = v.y;
  }
}
template <int N>
__device__ inline void load_kv(const uint16_t* p, float (&x)[N]) {
  uint32_t w[N / 2];
  if constexpr (N == 8) {
    const uint4 v = *reinterpret_cast<const uint4*>(p);
    w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
  } else {
#pragma unroll
    for (int i = 0; i < N / 2; ++i) w[i] = reinterpret_cast<const uint32_t*>(p)[i];
  }
#pragma unroll
  for (int i = 0; i < N / 2; ++i) {
    x[2 * i] = bf16_bits(w[i] & 0xffffu);
    x[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
  }
}

// Without their scale.
template <int N>
__device__ inline void load_kv(const int8_t* p, float (&x)[N]) {
  if constexpr (N == 2) {
    float four[4];
    to_floats(*reinterpret_cast<const uint16_t*>(p), four);
    x[0] = four[0], x[1] = four[1];
  } else {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      to_floats(*reinterpret_cast<const uint32_t*>(p + i), reinterpret_cast<float(&)[4]>(x[i]));
    }
  }
}

__device__ inline void store_kv(float* p, float x) { *p = x; }
__device__ inline void store_kv(uint16_t* p, float x) { *p = __bfloat16_as_ushort(__float2bfloat16_rn(x)); }

// Where the keys of a KV head lie for one position; the values follow page_size * head_dim elements later.
template <class T>
__device__ inline T* keys_at(const Attention& a, const swy_step* step, const uint32_t* table, uint32_t kv,
                             uint32_t position) {
  const uint32_t size = step->page_size, page = table[position / size];
  return static_cast<T*>(a.pages) + ((uint64_t{page} * a.kv_heads + kv) * 2 * size + position % size) * a.head_dim;
}
// The same of pages in 8 bits, too.
template <class T>
__device__ inline const T* kv_at(const Attention& a, const swy_step* step, const uint32_t* table, uint32_t kv,
                                 uint32_t position) {
  if constexpr (sizeof(T) == 1) {
    const uint32_t size = step->page_size;
    return a.bytes.elements(a.pages, table[position / size], a.bytes.row(kv, false, position % size));
  } else {
    return keys_at<T>(a, step, table, kv, position);
  }
}
__device__ inline const uint32_t* table_of(const swy_step* step, uint32_t seq) {
  return step_array<uint32_t>(step, step->block_table_at) + uint64_t{seq} * step->block_table_stride;
}

__device__ inline const float* ready_of(const Attention& a, uint32_t row, uint32_t head) {
  return static_cast<const float*>(a.ready) + (uint64_t{row} * a.heads + head) * a.head_dim;
}

__device__ inline float gate_of(const Attention& a, uint32_t row, uint32_t head, uint32_t i) {
  return a.gated ? sigmoid(a.q[(uint64_t{row} * a.heads + head) * 2 * a.head_dim + a.head_dim + i]) : 1.0f;
}

// The weight of each split: weights [heads, splits], which add up to one over the splits of a head and its sink.
__device__ inline void join_splits(const Attention& a, const float* parts, uint32_t splits, uint32_t first_head,
                                   uint32_t heads, float* weights) {
  const uint32_t lane = threadIdx.x % 32, stride = kHeads * (a.head_dim + 2), tops = kHeads * a.head_dim;
  for (uint32_t h = threadIdx.x / 32; h < heads; h += blockDim.x / 32) {
    float best = -INFINITY, sum = 0;
    for (uint32_t s = lane; s < splits; s += 32) best = fmaxf(best, __ldcg(parts + s * stride + tops + h));
    best = warp_max(best);
    for (uint32_t s = lane; s < splits; s += 32) {
      const float share = __expf(__ldcg(parts + s * stride + tops + h) - best);
      weights[h * splits + s] = share;
      sum = fmaf(share, __ldcg(parts + s * stride + tops + kHeads + h), sum);
    }
    sum = warp_sum(sum) + sink_weight(a, first_head + h, best);
    for (uint32_t s = lane; s < splits; s += 32) weights[h * splits + s] /= sum;
  }
  __syncthreads();
}

// Outputs a block's result for a row: values [kHeads, head_dim], unnormalised, then tops and sums [kHeads], all in
// shared memory. With several splits, the block of the row that finishes last joins them.
__device__ inline void give_out(const Attention& a, uint32_t row, uint32_t first_head, uint32_t heads, uint32_t splits,
                                bool active, float* shared_heads) {
  const uint32_t dim = a.head_dim, threads = blockDim.x;
  float *tops = shared_heads + kHeads * dim, *sums = tops + kHeads;
  float* y = a.y + (uint64_t{row} * a.heads + first_head) * dim;
  if (splits <= 1) {
    for (uint32_t e = threadIdx.x; e < heads * dim; e += threads) {
      const uint32_t h = e / dim;
      const float sum = sums[h] + sink_weight(a, first_head + h, tops[h]);
      y[e] = active ? shared_heads[e] / sum * gate_of(a, row, first_head + h, e % dim) : 0.0f;
    }
    return;
  }
  const uint64_t stride = kHeads * (dim + 2), unit = uint64_t{row} * gridDim.y + blockIdx.y;
  float* parts = a.parts + unit * a.splits * stride;
  for (uint32_t i = threadIdx.x; i < stride; i += threads) parts[blockIdx.x * stride + i] = shared_heads[i];
  if (!last_of(a.counters + unit, splits)) return;
  join_splits(a, parts, splits, first_head, heads, shared_heads);
  for (uint32_t e = threadIdx.x; e < heads * dim; e += threads) {
    const uint32_t h = e / dim;
    float value = 0;
#pragma unroll 8
    for (uint32_t s = 0; s < splits; ++s) {
      value = fmaf(shared_heads[h * splits + s], __ldcg(parts + s * stride + e), value);
    }
    y[e] = value * gate_of(a, row, first_head + h, e % dim);
  }
}

// ---- host

inline swy_dtype kv_type_of(const swy_device& device) {
  return device.kv_i8 ? SWY_I8 : device.kv_bf16 ? SWY_BF16 : SWY_F32;
}
// What a row of head_dim keys or values takes up.
inline double kv_row_bytes(const swy_device& device, uint32_t head_dim) {
  return device.kv_i8 ? head_dim + sizeof(float) : device.kv_bf16 ? 2.0 * head_dim : 4.0 * head_dim;
}
inline swy_status needs_rounded_kv(const swy_device& device, swy_error* error) {
  if (kv_type_of(device) != SWY_F32) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_DTYPE, "needs keys and values in bf16 or in 8 bits");
}
inline swy_status supports_kv(const swy_device& device, const swy_op& op, swy_error* error) {
  const uint32_t dim = swy_attention_of(&op).head_dim;
  if (!device.kv_i8 || dim % 4 == 0) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                   "head_dim is %u; with keys and values in 8 bits it must be a multiple of 4", dim);
}

inline swy_attention_attrs attention_attrs(const swy_op& op) { return swy_attention_of(&op); }
// Positions that the last row reads.
inline uint32_t most_read(const swy_op& op, const swy_bucket& bucket) {
  const uint32_t window = attention_attrs(op).window;
  return window != 0 && window < bucket.context ? window : bucket.context;
}
inline uint32_t groups_of(const swy_attention_attrs& a) { return ceil_div(a.heads / a.kv_heads, kHeads); }

// The operation's operands and workspace. `split`: for rows that are divided into splits.
Attention attention_of(const Recording& r, bool split);
uint64_t attention_workspace(const swy_op& op, const swy_bucket& bucket, bool split);
// Norms and rotates q and k, and appends k and v to the pages.
swy_status record_prepare(const Recording& r, const Attention& a, uint32_t rows);

}  // namespace gpu
