// SPDX-License-Identifier: Apache-2.0
// ATTENTION of few rows over a long context, keys and values in bf16 or 8 bits: a tile of 16 positions per warp.
//
// All query heads of a KV head are the columns of one matrix instruction, and the keys its rows, so every key is read
// once. Asynchronous copies bring keys and values, one tile ahead of the current one. Those in 8 bits become bf16,
// which has all of these integers, on their way to the products; a key's scale goes to its scores, a value's to its
// weights.
#include "attention.cuh"
#include "common/tiles.cuh"

namespace gpu {
namespace {

constexpr uint32_t kWarps = 4, kThreads = kWarps * 32, kPositions = 16, kBuffers = 2;

// Shared memory of a warp: keys, then values [kPositions, dim] of each buffer.
template <class T>
__host__ __device__ inline uint32_t warp_bytes(uint32_t dim) {
  return kBuffers * 2 * kPositions * dim * static_cast<uint32_t>(sizeof(T));
}

// Where a 16-byte unit of a key's row lies: units are permuted, so that rows that are read together have no bank
// conflicts.
template <class T>
__device__ inline uint32_t permuted(uint32_t row, uint32_t unit, uint32_t dim) {
  return unit ^ (sizeof(T) == 2 ? row % 2 * 4 : (dim == 64 ? row / 2 % 2 : row % 4) * 2);
}

// Copies one tile. In 8 bits, lanes 0 to 15 get the scale of a key, the others that of a value.
template <class T>
__device__ inline float bring(const Attention& a, const swy_step* step, const uint32_t* table, uint32_t kv,
                              uint32_t first, uint32_t last, char* to) {
  const uint32_t units = a.head_dim * sizeof(T) / 16, lane = threadIdx.x % 32, size = step->page_size;
  for (uint32_t i = lane; i < kPositions * units; i += 32) {
    const uint32_t row = i / units, u = i % units, position = min(first + row, last - 1);
    const T* key = kv_at<T>(a, step, table, kv, position) + u * (16 / sizeof(T));
    copy_later(to + (row * units + permuted<T>(row, u, a.head_dim)) * 16, key, first + row < last);
    copy_later(to + (kPositions * units + i) * 16, key + size * a.head_dim, first + row < last);
  }
  copies_end();
  const uint32_t position = first + lane % kPositions;
  if (sizeof(T) == 2 || position >= last) return 0;
  return *a.bytes.scale(a.pages, table[position / size], a.bytes.row(kv, lane >= kPositions, position % size));
}

// Eight neighbouring elements of a key, as bf16. unit: of eight.
template <class T>
__device__ inline uint4 key_unit(const char* keys, uint32_t row, uint32_t unit, uint32_t dim) {
  if constexpr (sizeof(T) == 2) {
    return *reinterpret_cast<const uint4*>(keys + (row * (dim / 8) + permuted<T>(row, unit, dim)) * 16);
  } else {
    const char* at = keys + (row * (dim / 16) + permuted<T>(row, unit / 2, dim)) * 16 + unit % 2 * 8;
    const uint2 bytes = *reinterpret_cast<const uint2*>(at);
    float x[4], y[4];
    to_floats(bytes.x, x), to_floats(bytes.y, y);
    return make_uint4(pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]), pack_bf16(y[0], y[1]), pack_bf16(y[2], y[3]));
  }
}

// N: elements of a head per lane, head_dim / 32. blockIdx.x: split; blockIdx.y: KV head and group; blockIdx.z: row.
template <class T, int N>
__global__ void __launch_bounds__(kThreads) attend_tiles(const __grid_constant__ Attention a, const swy_step* step) {
  extern __shared__ __align__(128) char memory[];
  __shared__ __align__(16) float weights[kWarps][kPositions][kHeads], shrinks[kWarps][kHeads];
  __shared__ float tops[kWarps][kHeads], sums[kWarps][kHeads];
  constexpr uint32_t kDim = N * 32;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, row = blockIdx.z;
  const uint32_t kv = blockIdx.y / a.groups, first_head = kv * a.per_kv() + blockIdx.y % a.groups * kHeads;
  const uint32_t heads = min(kHeads, (kv + 1) * a.per_kv() - first_head);
  uint32_t seq = 0, context = 0;
  if (row < step->rows) {
    seq = step_array<uint32_t>(step, step->row_seq_at)[row];
    const bool active = step_array<uint32_t>(step, step->seq_active_at)[seq] != 0;
    context = active ? step_array<uint32_t>(step, step->row_position_at)[row] + 1 : 0;
  }
  const uint32_t begin = first_read(a, context), count = context - begin;
  const uint32_t per_split = split_positions(count), splits = max((count + per_split - 1) / per_split, 1u);
  release_next();
  const uint32_t last = min(context, begin + (blockIdx.x + 1) * per_split);
  const uint32_t* table = table_of(step, seq);
  char* mine = memory + warp * warp_bytes<T>(kDim);
  float scale = 0, next_scale = 0;  // that bring() gives this lane for the current tile and the next one
  uint32_t at = begin + blockIdx.x * per_split + warp * kPositions;
  const bool early = a.alone && at < last && at + kPositions < context;  // not the row's own position
  if (early) scale = bring<T>(a, step, table, kv, at, last, mine);
  depend();
  if (row >= step->rows || blockIdx.x >= splits) return;
  if (at < last && !early) scale = bring<T>(a, step, table, kv, at, last, mine);
  // Query head g, elements 8 (4 i + t) and on, as bf16.
  uint32_t q[N][4];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float* from = ready_of(a, row, first_head + min(g, heads - 1)) + (4 * i + t) * 8;
    const float4 x = *reinterpret_cast<const float4*>(from), y = *reinterpret_cast<const float4*>(from + 4);
    q[i][0] = pack_bf16(x.x, x.y), q[i][1] = pack_bf16(x.z, x.w);
    q[i][2] = pack_bf16(y.x, y.y), q[i][3] = pack_bf16(y.z, y.w);
  }
  // Four neighbouring elements of the output at a time; their gates are loaded now.
  constexpr uint32_t kOutputs = kHeads * kDim / 4 / kThreads;
  float4 gate[kOutputs];
#pragma unroll
  for (uint32_t j = 0; j < kOutputs; ++j) {
    const uint32_t e = (threadIdx.x + j * kThreads) * 4, h = min(first_head + e / kDim, a.heads - 1);
    gate[j] = a.gated
                  ? *reinterpret_cast<const float4*>(a.q + (uint64_t{row} * a.heads + h) * 2 * kDim + kDim + e % kDim)
                  : make_float4(0, 0, 0, 0);
  }
  float top[2] = {-INFINITY, -INFINITY}, sum[2] = {}, value[kHeads][N] = {};  // heads 2 t and 2 t + 1; all heads
  for (uint32_t buffer = 0; at < last; at += kWarps * kPositions, buffer ^= 1) {
    const uint32_t next = at + kWarps * kPositions;
    if (next < last) {
      next_scale = bring<T>(a, step, table, kv, next, last, mine + (buffer ^ 1) * (warp_bytes<T>(kDim) / kBuffers));
      copies_wait<1>();
    } else {
      copies_wait<0>();
    }
    __syncwarp();
    const char* keys = mine + buffer * (warp_bytes<T>(kDim) / kBuffers);
    const T* values = reinterpret_cast<const T*>(keys) + kPositions * kDim;
    float s[4] = {};
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const uint4 low = key_unit<T>(keys, g, 4 * i + t, kDim), high = key_unit<T>(keys, g + 8, 4 * i + t, kDim);
      const uint32_t first[4] = {low.x, high.x, low.y, high.y}, second[4] = {low.z, high.z, low.w, high.w};
      matrix_multiply(s, first, q[i][0], q[i][1]);
      matrix_multiply(s, second, q[i][2], q[i][3]);
    }
    // s: position g of heads 2 t and 2 t + 1, then position g + 8.
    float value_scale[2];
    if constexpr (sizeof(T) == 1) {
      const float low = __shfl_sync(kAll, scale, g), high = __shfl_sync(kAll, scale, g + 8);
      s[0] *= low, s[1] *= low, s[2] *= high, s[3] *= high;
      value_scale[0] = __shfl_sync(kAll, scale, kPositions + g);
      value_scale[1] = __shfl_sync(kAll, scale, kPositions + g + 8);
      scale = next_scale;
    }
    if (at + g >= last) s[0] = s[1] = -INFINITY;
    if (at + g + 8 >= last) s[2] = s[3] = -INFINITY;
    float shrink[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float best = fmaxf(top[h], fmaxf(s[h], s[2 + h]));
#pragma unroll
      for (int d = 4; d < 32; d *= 2) best = fmaxf(best, __shfl_xor_sync(kAll, best, d));
      shrink[h] = __expf(top[h] - best);
      top[h] = best;
      s[h] = __expf(s[h] - best);
      s[2 + h] = __expf(s[2 + h] - best);
      sum[h] = sum[h] * shrink[h] + s[h] + s[2 + h];
    }
    if constexpr (sizeof(T) == 1) {
      s[0] *= value_scale[0], s[1] *= value_scale[0], s[2] *= value_scale[1], s[3] *= value_scale[1];
    }
    *reinterpret_cast<float2*>(&weights[warp][g][2 * t]) = make_float2(s[0], s[1]);
    *reinterpret_cast<float2*>(&weights[warp][g + 8][2 * t]) = make_float2(s[2], s[3]);
    if (g == 0) *reinterpret_cast<float2*>(&shrinks[warp][2 * t]) = make_float2(shrink[0], shrink[1]);
    __syncwarp();
#pragma unroll
    for (uint32_t h = 0; h < kHeads; ++h) {
#pragma unroll
      for (int i = 0; i < N; ++i) value[h][i] *= shrinks[warp][h];
    }
#pragma unroll 4
    for (uint32_t p = 0; p < kPositions; ++p) {
      float v[N];
      load_kv<N>(values + p * kDim + lane * N, v);
#pragma unroll
      for (uint32_t h = 0; h < kHeads; ++h) {
#pragma unroll
        for (int i = 0; i < N; ++i) value[h][i] = fmaf(weights[warp][p][h], v[i], value[h][i]);
      }
    }
    __syncwarp();
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int d = 4; d < 32; d *= 2) sum[h] += __shfl_xor_sync(kAll, sum[h], d);
    if (g == 0) tops[warp][2 * t + h] = top[h], sums[warp][2 * t + h] = sum[h];
  }
  __syncthreads();
  // Each warp writes its own values [kHeads, dim] over its tiles; then all are added up in the first warp's memory.
  auto* own = reinterpret_cast<float*>(mine);
#pragma unroll
  for (uint32_t h = 0; h < kHeads; ++h) {
    const float best = fmaxf(fmaxf(tops[0][h], tops[1][h]), fmaxf(tops[2][h], tops[3][h]));
    const float share = tops[warp][h] == -INFINITY ? 0.0f : __expf(tops[warp][h] - best);
#pragma unroll
    for (int i = 0; i < N; ++i) own[h * kDim + lane + 32 * i] = value[h][i] * share;  // in an order of its own
  }
  __syncthreads();
  auto* joined = reinterpret_cast<float*>(memory);
  const uint32_t stride = warp_bytes<T>(kDim) / 4;
  float kept[kHeads * kDim / kThreads];
#pragma unroll
  for (uint32_t j = 0; j < kHeads * kDim / kThreads; ++j) {
    const uint32_t e = threadIdx.x + j * kThreads, h = e / kDim, d = e % kDim, from = h * kDim + d / N + 32 * (d % N);
    kept[j] = joined[from] + joined[stride + from] + joined[2 * stride + from] + joined[3 * stride + from];
  }
  __syncthreads();
#pragma unroll
  for (uint32_t j = 0; j < kHeads * kDim / kThreads; ++j) joined[threadIdx.x + j * kThreads] = kept[j];
  if (threadIdx.x < kHeads) {
    const uint32_t h = threadIdx.x;
    const float best = fmaxf(fmaxf(tops[0][h], tops[1][h]), fmaxf(tops[2][h], tops[3][h]));
    float total = 0;
    for (uint32_t w = 0; w < kWarps; ++w)
      total += tops[w][h] == -INFINITY ? 0.0f : sums[w][h] * __expf(tops[w][h] - best);
    joined[kHeads * kDim + h] = best;
    joined[kHeads * kDim + kHeads + h] = total;
  }
  __syncthreads();
  float* y = a.y + (uint64_t{row} * a.heads + first_head) * kDim;
  const auto give = [&](uint32_t j, float4 v) {
    const uint32_t e = (threadIdx.x + j * kThreads) * 4;
    if (e >= heads * kDim) return;
    if (a.gated)
      v.x *= sigmoid(gate[j].x), v.y *= sigmoid(gate[j].y), v.z *= sigmoid(gate[j].z), v.w *= sigmoid(gate[j].w);
    *reinterpret_cast<float4*>(y + e) = v;
  };
  if (splits == 1) {
#pragma unroll
    for (uint32_t j = 0; j < kOutputs; ++j) {
      const uint32_t e = (threadIdx.x + j * kThreads) * 4;
      const float4 v = *reinterpret_cast<const float4*>(joined + e);
      const uint32_t h = e / kDim;
      const float sink = sink_weight(a, min(first_head + h, a.heads - 1), joined[kHeads * kDim + h]);
      const float share = context > 0 ? 1.0f / (joined[kHeads * kDim + kHeads + h] + sink) : 0.0f;
      give(j, make_float4(v.x * share, v.y * share, v.z * share, v.w * share));
    }
    return;
  }
  constexpr uint32_t kStride = kHeads * (kDim + 2);
  const uint64_t unit = uint64_t{row} * gridDim.y + blockIdx.y;
  float* parts = a.parts + unit * a.splits * kStride;
  for (uint32_t i = threadIdx.x; i < kStride / 4; i += kThreads) {
    reinterpret_cast<float4*>(parts + blockIdx.x * kStride)[i] = reinterpret_cast<const float4*>(joined)[i];
  }
  if (!last_of(a.counters + unit, splits)) return;
  join_splits(a, parts, splits, first_head, heads, joined);
  float4 out[kOutputs] = {};
#pragma unroll 8
  for (uint32_t s = 0; s < splits; ++s) {
#pragma unroll
    for (uint32_t j = 0; j < kOutputs; ++j) {
      const uint32_t e = (threadIdx.x + j * kThreads) * 4, h = min(e / kDim, heads - 1);
      const float4 v = __ldcg(reinterpret_cast<const float4*>(parts + s * kStride + e));
      const float share = joined[h * splits + s];
      out[j].x = fmaf(share, v.x, out[j].x), out[j].y = fmaf(share, v.y, out[j].y);
      out[j].z = fmaf(share, v.z, out[j].z), out[j].w = fmaf(share, v.w, out[j].w);
    }
  }
#pragma unroll
  for (uint32_t j = 0; j < kOutputs; ++j) give(j, out[j]);
}

template <class T>
swy_status record_with(const Recording& r, const Attention& a, uint32_t rows) {
  const auto kernel = a.head_dim == 64    ? attend_tiles<T, 2>
                      : a.head_dim == 128 ? attend_tiles<T, 4>
                                          : attend_tiles<T, 8>;
  const size_t tiles = kWarps * warp_bytes<T>(a.head_dim), weights = kHeads * a.splits * sizeof(float);
  return launch(r, kernel, dim3(a.splits, a.kv_heads * a.groups, rows), kThreads, tiles > weights ? tiles : weights, a,
                r.list.step);
}

swy_status record(const Recording& r) {
  const auto rows = static_cast<uint32_t>(swy::tensor(r.op, "q").dims[0]);
  const Attention a = attention_of(r, true);
  if (a.counters == nullptr) return SWY_UNSUPPORTED;  // the message has been set already
  SWY_CUDA_TRY(record_prepare(r, a, rows));
  return a.kv_type == SWY_I8 ? record_with<int8_t>(r, a, rows) : record_with<uint16_t>(r, a, rows);
}

swy_status supports(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  const auto& a = attention_attrs(op);
  SWY_CUDA_TRY(needs_rounded_kv(device, error));
  // With many sessions, bytes are read faster as they are than bf16 that is made of them first.
  const uint32_t most_rows = device.kv_i8 && (bucket.flags & SWY_BUCKET_DECODE) != 0 ? 128 : 64;
  if (bucket.rows > most_rows) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "takes at most %u rows, the bucket has %u", most_rows,
                     bucket.rows);
  }
  if ((a.head_dim == 64 || a.head_dim == 128 || a.head_dim == 256) && a.rotary_dim <= kMostRotary) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "head_dim is %u; it must be 64, 128 or 256", a.head_dim);
}

double cost(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  const auto& a = attention_attrs(op);
  const double rows = 2.0 * bucket.rows * most_read(op, bucket) * a.kv_heads;  // keys and values
  return 12 + device.rates.bytes(rows * kv_row_bytes(device, a.head_dim), 1.5e6);
}

uint64_t workspace(const swy_device&, const swy_op& op, const swy_bucket& bucket) {
  return attention_workspace(op, bucket, true);
}

constexpr Kernel kKernels[] = {{.name = "attention.tiles",
                                .op = SWY_OP_ATTENTION,
                                .flags = kAlways,
                                .activations = SWY_BF16,
                                .supports = supports,
                                .cost = cost,
                                .workspace = workspace,
                                .record = record,
                                .op_revision = 2}};

}  // namespace

std::span<const Kernel> attention_tiles_kernels() { return kKernels; }

}  // namespace gpu
