// GATED_DELTA for prompts, what stands before and behind the rule: convolution, SiLU and norms of q and k; gated norm.
#include "gated_delta_chunks.cuh"
#include "tiles.cuh"

namespace gpu {
namespace {

constexpr uint32_t kTaps = 4, kGroup = 8, kWarps = 8;  // rows of a warp; warps of a block

struct Four {
  float x[4];
};
__device__ inline Four load_four(const float* p) {
  const float4 v = *reinterpret_cast<const float4*>(p);
  return {v.x, v.y, v.z, v.w};
}

// silu to some units in the last place: what it gives is rounded to bf16, or multiplied by what was.
__device__ inline float fast_silu(float x) { return __fdividef(x, 1.0f + __expf(-x)); }

// Byte offset of element column of row i in a chunk's tile, whose rows have `units` units (tile_at of matrix.cuh).
__device__ inline uint32_t in_tile(uint32_t i, uint32_t column, uint32_t units) {
  const uint32_t turn = units >= 8 ? i % 8 : units == 4 ? i / 2 % 4 : i / 4 % 2;
  return (i * units + ((column / 8) ^ turn)) * 16 + column % 8 * 2;
}

// What a warp works on: a head of q or k, or 128 columns of v; each lane has four neighbouring channels.
struct Unit {
  uint32_t head;     // of q, then of k; others: v
  uint32_t channel;  // of this lane
  bool there, normed;
};
__device__ inline Unit unit_of(const Delta& d, uint32_t unit) {
  const uint32_t lane = threadIdx.x % 32, heads = 2 * d.key_heads;
  Unit u;
  u.head = unit;
  u.normed = unit < heads;
  u.channel = (u.normed ? unit * d.key_dim : 2 * d.keys() + (unit - heads) * 128) + lane * 4;
  u.there = u.normed ? lane * 4 < d.key_dim : u.channel < d.channels();
  return u;
}

// Writes one row's u = silu(sum) for this lane's channels, where the kernels behind look for it.
__device__ inline void put(const Chunks& c, const Unit& u, uint32_t row, uint32_t first, uint32_t seq, const Four& sum) {
  const Delta& d = c.d;
  Four v;
  float squares = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    v.x[j] = u.there ? fast_silu(sum.x[j]) : 0.0f;
    squares = fmaf(v.x[j], v.x[j], squares);
  }
  float scale = 1;
  if (u.normed) {
    scale = rsqrtf(warp_sum(squares) + d.l2_eps);
    if (u.head < d.key_heads) scale *= rsqrtf(static_cast<float>(d.key_dim));
  }
  if (!u.there) return;
  const uint2 packed = make_uint2(pack_bf16(v.x[0] * scale, v.x[1] * scale), pack_bf16(v.x[2] * scale, v.x[3] * scale));
  if (!u.normed) {
    *reinterpret_cast<uint2*>(c.v + uint64_t{row} * d.values() + (u.channel - 2 * d.keys())) = packed;
    return;
  }
  const bool query = u.head < d.key_heads;
  const uint32_t i = row - first, slot = part_number(first, seq, kChunk) + i / kChunk;
  const uint64_t tile = uint64_t{slot} * d.key_heads + (query ? u.head : u.head - d.key_heads);
  char* to = reinterpret_cast<char*>(query ? c.q : c.k) + tile * kChunk * d.key_dim * 2;
  *reinterpret_cast<uint2*>(to + in_tile(i % kChunk, threadIdx.x % 32 * 4, d.key_dim / 8)) = packed;
}

// The last kTaps weights of this lane's channels; where there are fewer, those before are zero.
__device__ inline void load_taps(const Delta& d, uint32_t channel, float (&tap)[kTaps][4]) {
  const uint32_t taps = d.kernel;
  if (taps == kTaps && d.conv.dtype == SWY_BF16) {
    const auto* from = reinterpret_cast<const uint2*>(d.conv.data) + channel;
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) {
      const uint2 w = __ldg(from + j);
      tap[0][j] = bf16_bits(w.x & 0xffffu), tap[1][j] = bf16_bits(w.x >> 16);
      tap[2][j] = bf16_bits(w.y & 0xffffu), tap[3][j] = bf16_bits(w.y >> 16);
    }
    return;
  }
#pragma unroll
  for (uint32_t t = 0; t < kTaps; ++t) {
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) {
      tap[t][j] = t + taps >= kTaps ? plain_at(d.conv, uint64_t{channel + j} * taps + t + taps - kTaps) : 0.0f;
    }
  }
}

// blockIdx.x: units, one per warp; blockIdx.y: kGroup rows. Lane i looks for the sequence of row i.
__global__ void __launch_bounds__(kWarps * 32, 3) mix(const __grid_constant__ Chunks c, const swy_step* step) {
  const Delta& d = c.d;
  const Unit u = unit_of(d, blockIdx.x * kWarps + threadIdx.x / 32);
  const uint32_t channel = u.there ? u.channel : 0, channels = d.channels(), taps = d.kernel;
  float tap[kTaps][4];
  load_taps(d, channel, tap);
  release_next();
  depend();
  const uint32_t rows = step->rows, begin = blockIdx.y * kGroup, end = min(begin + kGroup, rows);
  if (begin >= end || (!u.normed && !u.there)) return;
  Four window[kGroup + kTaps - 1];  // rows begin - 3 and on, whoever's they are
#pragma unroll
  for (uint32_t i = 0; i < kGroup + kTaps - 1; ++i) {
    const uint32_t row = begin + i < kTaps - 1 ? 0 : min(begin + i - (kTaps - 1), rows - 1);
    window[i] = load_four(d.qkv + channel + uint64_t{row} * channels);
  }
  const uint32_t own = step_array<uint32_t>(step, step->row_seq_at)[min(begin + threadIdx.x % kGroup, end - 1)];
  const Sequence s = sequence_of(step, own);
  const uint32_t how = (s.active ? 1 : 0) + (s.fresh ? 2 : 0), slot = static_cast<uint32_t>(s.read);
#pragma unroll
  for (uint32_t i = 0; i < kGroup; ++i) {
    const uint32_t seq = __shfl_sync(kAll, own, i), first = __shfl_sync(kAll, s.first, i);
    const uint32_t state = __shfl_sync(kAll, how, i), read = __shfl_sync(kAll, slot, i);
    if (begin + i >= end || (state & 1) == 0) continue;
    const uint32_t before = begin + i - first;  // rows of the sequence
    Four sum{};
#pragma unroll
    for (uint32_t t = 0; t < kTaps; ++t) {
      const uint32_t back = kTaps - 1 - t;
      Four x = window[i + t];
      if (back > before) {
        const bool in = (state & 2) == 0 && back < taps;
        const float* old = d.conv_state + (uint64_t{read} * channels + channel) * (taps - 1) + (taps - 1 + before - back);
#pragma unroll
        for (int j = 0; j < 4; ++j) x.x[j] = in ? old[j * (taps - 1)] : 0.0f;
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) sum.x[j] = fmaf(x.x[j], tap[t][j], sum.x[j]);
    }
    put(c, u, begin + i, first, seq, sum);
  }
}

// A warp: kHeads heads of a row, four columns per lane and head. blockIdx.y: rows.
constexpr uint32_t kHeadsOfWarp = 4;
__global__ void __launch_bounds__(kWarps * 32) gated_norm(const __grid_constant__ Chunks c, const swy_step* step) {
  const Delta& d = c.d;
  const uint32_t lane = threadIdx.x % 32, first = (blockIdx.x * kWarps + threadIdx.x / 32) * kHeadsOfWarp;
  const bool in = lane * 4 < d.value_dim;
  float w[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) w[j] = in ? plain_at(d.norm, lane * 4 + j) : 0.0f;
  release_next();
  depend();
  if (first >= d.value_heads) return;
  for (uint32_t row = blockIdx.y; row < step->rows; row += gridDim.y) {
    const bool active =
        step_array<uint32_t>(step, step->seq_active_at)[step_array<uint32_t>(step, step->row_seq_at)[row]] != 0;
    uint2 o[kHeadsOfWarp];
    Four z[kHeadsOfWarp];
#pragma unroll
    for (uint32_t h = 0; h < kHeadsOfWarp; ++h) {
      const uint64_t at = uint64_t{row} * d.values() + (first + h) * d.value_dim + lane * 4;
      const bool there = in && active && first + h < d.value_heads;
      o[h] = there ? *reinterpret_cast<const uint2*>(c.v + at) : make_uint2(0, 0);
      z[h] = there ? load_four(d.z + at) : Four{};
    }
#pragma unroll
    for (uint32_t h = 0; h < kHeadsOfWarp; ++h) {
      const float v[4] = {bf16_bits(o[h].x & 0xffffu), bf16_bits(o[h].x >> 16), bf16_bits(o[h].y & 0xffffu),
                          bf16_bits(o[h].y >> 16)};
      float squares = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) squares = fmaf(v[j], v[j], squares);
      const float scale = rsqrtf(warp_sum(squares) / static_cast<float>(d.value_dim) + d.norm_eps);
      if (!in || first + h >= d.value_heads) continue;
      float y[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) y[j] = v[j] * scale * w[j] * fast_silu(z[h].x[j]);
      *reinterpret_cast<float4*>(d.y + uint64_t{row} * d.values() + (first + h) * d.value_dim + lane * 4) =
          make_float4(y[0], y[1], y[2], y[3]);
    }
  }
}

}  // namespace

swy_status record_mix(const Recording& r, const Chunks& c) {
  const uint32_t units = 2 * c.d.key_heads + ceil_div(c.d.values(), 128);
  return launch(r, mix, dim3(ceil_div(units, kWarps), ceil_div(r.bucket().rows, kGroup)), kWarps * 32, 0, c, r.list.step);
}

swy_status record_gated_norm(const Recording& r, const Chunks& c) {
  const uint32_t rows = r.bucket().rows;
  return launch(r, gated_norm, dim3(ceil_div(c.d.value_heads, kWarps * kHeadsOfWarp), rows < 65535 ? rows : 65535),
                kWarps * 32, 0, c, r.list.step);
}

}  // namespace gpu
