// SPDX-License-Identifier: Apache-2.0
// GATED_DELTA for prompts, before and after the rule: convolution, SiLU and norms of q and k; gated norm.
#include "common/matrix.cuh"
#include "gated_delta_chunks.cuh"

namespace gpu {
namespace {

constexpr uint32_t kTaps = 4, kGroup = 8;                                       // rows at a time
constexpr uint32_t kMixWarps = 4, kMixBlocks = 5, kWarps = 8, kNormBlocks = 4;  // of a block

struct Four {
  float x[4];
};
__device__ inline Four load_four(const float* p) {
  const float4 v = *reinterpret_cast<const float4*>(p);
  return {v.x, v.y, v.z, v.w};
}

// The work of a warp: a head of q or k, or 128 columns of v. Each lane has four neighbouring channels.
struct Unit {
  uint32_t channel;  // of this lane
  bool there, normed, query;
  char* to;              // this lane's tile in slot 0
  uint32_t slot_bytes;   // from slot to slot
  uint32_t units, unit;  // of a row of the tile; this lane's, of which it has the first or second half
};
__device__ inline Unit unit_of(const Chunks& c, uint32_t number) {
  const Delta& d = c.d;
  const uint32_t lane = threadIdx.x % 32, heads = 2 * d.key_heads;
  Unit u;
  u.normed = number < heads;
  u.query = number < d.key_heads;
  if (u.normed) {
    const uint32_t tile = kChunk * d.key_dim * 2;
    u.channel = number * d.key_dim + lane * 4;
    u.there = lane * 4 < d.key_dim;
    u.to = reinterpret_cast<char*>(u.query ? c.q : c.k) + (u.query ? number : number - d.key_heads) * tile;
    u.slot_bytes = d.key_heads * tile;
    u.units = d.key_dim / 8, u.unit = lane / 2;
  } else {
    const uint32_t column = (number - heads) * 128 + lane * 4, in = column % d.value_dim;
    u.channel = 2 * d.keys() + column;
    u.there = u.channel < d.channels();
    u.to = reinterpret_cast<char*>(c.v) + (column / d.value_dim * c.slices() + in / kSlice) * (kChunk * kSlice * 2);
    u.slot_bytes = d.value_heads * c.slices() * (kChunk * kSlice * 2);
    u.units = kSlice / 8, u.unit = in % kSlice / 8;
  }
  u.to += lane % 2 * 8;
  return u;
}

// Writes one row's silu(sum) for this lane's channels, where the next kernels read it. before: rows of earlier
// sequences; slot: of the sequence's first chunk.
__device__ inline void put(const Delta& d, const Unit& u, uint32_t before, uint32_t slot, const Four& sum) {
  Four v;
  float squares = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    v.x[j] = fast_silu(sum.x[j]);
    squares = fmaf(v.x[j], v.x[j], squares);
  }
  if (u.normed) {
    const float scale = rsqrtf(warp_sum(u.there ? squares : 0.0f) + d.l2_eps);
#pragma unroll
    for (int j = 0; j < 4; ++j) v.x[j] *= u.query ? scale * rsqrtf(static_cast<float>(d.key_dim)) : scale;
  }
  if (!u.there) return;
  const uint32_t i = before % kChunk, turn = u.units >= 8 ? i % 8 : i / 2 % 4;  // tile_at of matrix.cuh
  *reinterpret_cast<uint2*>(u.to + uint64_t{slot + before / kChunk} * u.slot_bytes +
                            (i * u.units + (u.unit ^ turn)) * 16) =
      make_uint2(pack_bf16(v.x[0], v.x[1]), pack_bf16(v.x[2], v.x[3]));
}

// The last kTaps weights of this lane's channels; missing ones are zero.
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

// Rows of several sequences, or the first ones of one. Lane i has the sequence of row i.
template <bool kPends>
__device__ inline void mix_ragged(const Chunks& c, const Unit& u, const Four (&window)[kGroup + kTaps - 1],
                                  const float (&tap)[kTaps][4], uint32_t begin, uint32_t end, uint32_t own,
                                  const Run& s) {
  const Delta& d = c.d;
  const uint32_t how = (s.active ? 1 : 0) + (s.fresh ? 2 : 0), from = static_cast<uint32_t>(s.read), taps = d.kernel;
#pragma unroll
  for (uint32_t i = 0; i < kGroup; ++i) {
    const uint32_t seq = __shfl_sync(kAll, own, i), first = __shfl_sync(kAll, s.first, i);
    const uint32_t state = __shfl_sync(kAll, how, i), read = __shfl_sync(kAll, from, i);
    const uint32_t kept = kPends ? __shfl_sync(kAll, s.kept, i) : 0;
    if (begin + i >= end || (state & 1) == 0) continue;
    const uint32_t before = begin + i - first;
    Four sum{};
#pragma unroll
    for (uint32_t t = 0; t < kTaps; ++t) {
      const uint32_t back = kTaps - 1 - t;
      Four x = window[i + t];
      if (kPends && back > before && back - before <= kept) {
        const float* row = d.pending_row(read, kept + before - back) + u.channel;
#pragma unroll
        for (int j = 0; j < 4; ++j) x.x[j] = u.there ? row[j] : 0.0f;
      } else if (back > before) {
        const bool in = (state & 2) == 0 && back < taps && u.there;
        const float* old =
            d.conv_state + (uint64_t{read} * d.channels() + u.channel) * (taps - 1) + (taps - 1 + kept + before - back);
#pragma unroll
        for (int j = 0; j < 4; ++j) x.x[j] = in ? old[j * (taps - 1)] : 0.0f;
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) sum.x[j] = fmaf(x.x[j], tap[t][j], sum.x[j]);
    }
    put(d, u, before, part_number(first, seq, kChunk), sum);
  }
}

// blockIdx.x: units, one per warp; blockIdx.y: `groups` times kGroup rows. kPends: with pending rows.
template <bool kPends>
__global__ void __launch_bounds__(kMixWarps * 32, kMixBlocks)
    mix(const __grid_constant__ Chunks c, uint32_t groups, const swy_step* step) {
  const Delta& d = c.d;
  const Unit u = unit_of(c, blockIdx.x * kMixWarps + threadIdx.x / 32);
  const uint32_t channel = u.there ? u.channel : 0, channels = d.channels();
  float tap[kTaps][4];
  load_taps(d, channel, tap);
  release_next();
  const uint32_t rows = step->rows, start = blockIdx.y * groups * kGroup;
  uint32_t known = 0, own = 0;  // rows before `known` are of the sequence that the last look was for
  Run s{};
  const auto look = [&](uint32_t begin) {
    own = step_array<uint32_t>(step, step->row_seq_at)[min(begin + threadIdx.x % kGroup, rows - 1)];
    s = run_of<kPends>(step, own);
    const bool alone = __all_sync(kAll, own == __shfl_sync(kAll, own, 0));
    known = alone ? s.first + s.rows : 0;
  };
  if (start < rows) look(start);
  depend();
  if (!__any_sync(kAll, u.there)) return;
  Four window[kGroup + kTaps - 1];  // rows begin - 3 and on, whoever's they are
  for (uint32_t group = 0; group < groups; ++group) {
    const uint32_t begin = start + group * kGroup, end = min(begin + kGroup, rows);
    if (begin >= end) return;
#pragma unroll
    for (uint32_t i = 0; i < kGroup + kTaps - 1; ++i) {
      if (i < kTaps - 1 && group > 0) {
        window[i] = window[i + kGroup];
        continue;
      }
      const uint32_t row = begin + i < kTaps - 1 ? 0 : min(begin + i - (kTaps - 1), rows - 1);
      window[i] = load_four(d.qkv + channel + uint64_t{row} * channels);
    }
    if (group > 0 && begin + kGroup > known) look(begin);
    if (begin + kGroup > known || begin < s.first + kTaps - 1) {
      mix_ragged<kPends>(c, u, window, tap, begin, end, own, s);
      continue;
    }
    if (!s.active) continue;
    const uint32_t slot = part_number(s.first, own, kChunk);
#pragma unroll
    for (uint32_t i = 0; i < kGroup; ++i) {
      Four sum{};
#pragma unroll
      for (uint32_t t = 0; t < kTaps; ++t) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sum.x[j] = fmaf(window[i + t].x[j], tap[t][j], sum.x[j]);
      }
      put(d, u, begin + i - s.first, slot, sum);
    }
  }
}

// Where a lane's four columns of a row's first head lie, and whether they exist.
struct Place {
  uint64_t tile;  // of the first head
  uint32_t inside;
  bool active;
};
__device__ inline Place place_of(const Chunks& c, const swy_step* step, uint32_t row) {
  const uint32_t lane = threadIdx.x % 32, seq = step_array<uint32_t>(step, step->row_seq_at)[row];
  const uint32_t start = step_array<uint32_t>(step, step->row_start_at)[seq], i = row - start;
  Place p;
  p.active = step_array<uint32_t>(step, step->seq_active_at)[seq] != 0;
  p.tile = uint64_t{part_number(start, seq, kChunk) + i / kChunk} * c.d.value_heads;
  p.inside = lane / 8 * (kChunk * kSlice) + tile_at<kSlice / 8>(i % kChunk, lane % 8 / 2) / 2 + lane % 2 * 4;
  return p;
}

// A warp: some heads of a row, four columns per lane and head. blockIdx.y: rows. kPends: with pending rows.
constexpr uint32_t kHeadsOfWarp = 4;
template <bool kPends>
__global__ void __launch_bounds__(kWarps * 32, kNormBlocks)
    gated_norm(const __grid_constant__ Chunks c, const swy_step* step) {
  const Delta& d = c.d;
  const uint32_t lane = threadIdx.x % 32, first = (blockIdx.x * kWarps + threadIdx.x / 32) * kHeadsOfWarp;
  const bool in = lane * 4 < d.value_dim;
  float w[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) w[j] = in ? plain_at(d.norm, lane * 4 + j) : 0.0f;
  release_next();
  uint32_t row = blockIdx.y;
  Place p = row < step->rows ? place_of(c, step, row) : Place{};
  depend();
  for (uint32_t r = row; kPends && r < step->rows; r += gridDim.y) keep_row(d, step, r);
  if (first >= d.value_heads) return;
  while (row < step->rows) {
    const uint64_t at = uint64_t{row} * d.values() + first * d.value_dim + lane * 4;
    uint2 o[kHeadsOfWarp];
    Four z[kHeadsOfWarp];
#pragma unroll
    for (uint32_t h = 0; h < kHeadsOfWarp; ++h) {
      const bool there = in && p.active && first + h < d.value_heads;
      const uint64_t from = (p.tile + first + h) * c.slices() * (kChunk * kSlice) + p.inside;
      o[h] = there ? *reinterpret_cast<const uint2*>(c.v + from) : make_uint2(0, 0);
      z[h] = there ? load_four(d.z + at + h * d.value_dim) : Four{};
    }
    const Place next = row + gridDim.y < step->rows ? place_of(c, step, row + gridDim.y) : Place{};
#pragma unroll
    for (uint32_t h = 0; h < kHeadsOfWarp; ++h) {
      const float v[4] = {low_of(o[h].x), high_of(o[h].x), low_of(o[h].y), high_of(o[h].y)};
      float squares = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) squares = fmaf(v[j], v[j], squares);
      const float scale = rsqrtf(warp_sum(squares) / static_cast<float>(d.value_dim) + d.norm_eps);
      if (!in || first + h >= d.value_heads) continue;
      float y[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) y[j] = v[j] * scale * w[j] * fast_silu(z[h].x[j]);
      *reinterpret_cast<float4*>(d.y + at + h * d.value_dim) = make_float4(y[0], y[1], y[2], y[3]);
    }
    row += gridDim.y;
    p = next;
  }
}

}  // namespace

// What a warp loads at its start (weights, its sequence) should serve more rows than one group has: as many groups as
// fill the device once, or for long prompts several times.
swy_status record_mix(const Recording& r, const Chunks& c) {
  constexpr uint32_t kResident = kMixBlocks * kMixWarps, kMostGroups = 4;  // warps of a multiprocessor
  const uint32_t units = 2 * c.d.key_heads + ceil_div(c.d.values(), 128), rows = r.bucket().rows;
  const uint64_t work = uint64_t{units} * ceil_div(rows, kGroup), warps = uint64_t{kResident} * r.device().processors;
  const uint32_t waves = ceil_div(work, warps * kMostGroups), groups = ceil_div(work, warps * waves);
  return launch(r, c.pends() ? mix<true> : mix<false>,
                dim3(ceil_div(units, kMixWarps), ceil_div(rows, kGroup * groups)), kMixWarps * 32, 0, c, groups,
                r.list.step);
}

swy_status record_gated_norm(const Recording& r, const Chunks& c) {
  const uint32_t rows = r.bucket().rows, x = ceil_div(c.d.value_heads, kWarps * kHeadsOfWarp);
  return launch(r, c.pends() ? gated_norm<true> : gated_norm<false>, dim3(x, rows < 65535 ? rows : 65535), kWarps * 32,
                0, c, r.list.step);
}

}  // namespace gpu
