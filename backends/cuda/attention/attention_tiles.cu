// SPDX-License-Identifier: Apache-2.0
// ATTENTION of few rows over a long context, keys and values in bf16: a tile of 16 positions per warp.
//
// All query heads of a KV head are the columns of one matrix instruction, and the keys its rows, so every key is read
// once. Asynchronous copies bring keys and values, one tile ahead of the current one.
#include "attention.cuh"
#include "common/tiles.cuh"

namespace gpu {
namespace {

constexpr uint32_t kWarps = 4, kThreads = kWarps * 32, kPositions = 16, kBuffers = 2;

// Shared memory of a warp: keys, then values [kPositions, dim] of each buffer, and the weights of a tile's positions.
__host__ __device__ inline uint32_t warp_bytes(uint32_t dim) { return kBuffers * 2 * kPositions * dim * 2; }

// Copies one tile. The 16-byte units of a key's row are permuted, so that two rows have no bank conflicts.
__device__ inline void bring(const Attention& a, const swy_step* step, const uint32_t* table, uint32_t kv,
                             uint32_t first, uint32_t last, char* to) {
  const uint32_t units = a.head_dim / 8, lane = threadIdx.x % 32, values = step->page_size * a.head_dim;
  for (uint32_t i = lane; i < kPositions * units; i += 32) {
    const uint32_t row = i / units, u = i % units, position = min(first + row, last - 1);
    const uint16_t* key = keys_at<uint16_t>(a, step, table, kv, position) + u * 8;
    copy_later(to + (row * units + (u ^ (row % 2 * 4))) * 16, key, first + row < last);
    copy_later(to + (kPositions * units + i) * 16, key + values, first + row < last);
  }
  copies_end();
}

// N: elements of a head per lane, head_dim / 32. blockIdx.x: split; blockIdx.y: KV head and group; blockIdx.z: row.
template <int N>
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
  char* mine = memory + warp * warp_bytes(kDim);
  uint32_t at = begin + blockIdx.x * per_split + warp * kPositions;
  const bool early = a.alone && at < last && at + kPositions < context;  // not the row's own position
  if (early) bring(a, step, table, kv, at, last, mine);
  depend();
  if (row >= step->rows || blockIdx.x >= splits) return;
  if (at < last && !early) bring(a, step, table, kv, at, last, mine);
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
      bring(a, step, table, kv, next, last, mine + (buffer ^ 1) * (warp_bytes(kDim) / kBuffers));
      copies_wait<1>();
    } else {
      copies_wait<0>();
    }
    __syncwarp();
    const char* keys = mine + buffer * (warp_bytes(kDim) / kBuffers);
    const char* values = keys + kPositions * kDim * 2;
    float s[4] = {};
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const uint32_t unit = (4 * i + t) ^ (g % 2 * 4);  // rows g and g + 8 are both odd, or neither is
      const uint4 low = *reinterpret_cast<const uint4*>(keys + (g * (kDim / 8) + unit) * 16);
      const uint4 high = *reinterpret_cast<const uint4*>(keys + ((g + 8) * (kDim / 8) + unit) * 16);
      const uint32_t first[4] = {low.x, high.x, low.y, high.y}, second[4] = {low.z, high.z, low.w, high.w};
      matrix_multiply(s, first, q[i][0], q[i][1]);
      matrix_multiply(s, second, q[i][2], q[i][3]);
    }
    // s: position g of heads 2 t and 2 t + 1, then position g + 8.
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
      load_kv<N>(reinterpret_cast<const uint16_t*>(values) + p * kDim + lane * N, v);
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
  const uint32_t stride = warp_bytes(kDim) / 4;
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

swy_status record(const Recording& r) {
  const auto rows = static_cast<uint32_t>(swy::tensor(r.op, "q").dims[0]);
  const Attention a = attention_of(r, true);
  if (a.counters == nullptr) return SWY_UNSUPPORTED;  // the message has been set already
  SWY_CUDA_TRY(record_prepare(r, a, rows));
  const auto kernel = a.head_dim == 64 ? attend_tiles<2> : a.head_dim == 128 ? attend_tiles<4> : attend_tiles<8>;
  return launch(r, kernel, dim3(a.splits, a.kv_heads * a.groups, rows), kThreads, kWarps * warp_bytes(a.head_dim), a,
                r.list.step);
}

swy_status supports(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  const auto& a = attention_attrs(op);
  if (!device.kv_bf16) return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_DTYPE, "needs keys and values in bf16");
  if (bucket.rows > 64) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "takes at most 64 rows, the bucket has %u", bucket.rows);
  }
  if ((a.head_dim == 64 || a.head_dim == 128 || a.head_dim == 256) && a.rotary_dim <= kMostRotary) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "head_dim is %u; it must be 64, 128 or 256", a.head_dim);
}

double cost(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  const auto& a = attention_attrs(op);
  return 12 + device.rates.bytes(4.0 * bucket.rows * most_read(op, bucket) * a.head_dim * a.kv_heads, 1.5e6);
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
