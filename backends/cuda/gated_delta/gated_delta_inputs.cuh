// SPDX-License-Identifier: Apache-2.0
// GATED_DELTA for prompts: what becomes of its inputs. Convolution, SiLU and norms of q and k, a chunk at a time; and
// the last inputs, which are kept for the next step.
#pragma once

#include "common/matrix.cuh"
#include "gated_delta_chunks.cuh"

namespace gpu {

constexpr uint32_t kTaps = 4;                                              // of the convolution at most
constexpr uint32_t kInputThreads = 128, kInputWarps = kInputThreads / 32;  // of a block that has a chunk
constexpr uint32_t kWarpRows = kChunk / kInputWarps;                       // of a chunk

struct Four {
  float x[4];
};
__device__ inline Four load_four(const float* p) {
  const float4 v = *reinterpret_cast<const float4*>(p);
  return {v.x, v.y, v.z, v.w};
}

// Channels that a block convolves: a head of q or k, or 128 columns of v. Each lane has four neighbours.
enum class Kind : uint32_t { query, key, value };
struct Unit {
  uint32_t channel;  // of this lane
  bool there, normed, query;
  char* to;              // this lane's tile in slot 0
  uint32_t slot_bytes;   // from slot to slot
  uint32_t units, unit;  // of a row of the tile; this lane's, of which it has the first or second half
};
inline uint32_t value_units(const Delta& d) { return ceil_div(d.values(), 128); }
__device__ inline Unit unit_of(const Chunks& c, Kind kind, uint32_t number) {
  const Delta& d = c.d;
  const uint32_t lane = threadIdx.x % 32;
  Unit u;
  u.query = kind == Kind::query;
  u.normed = kind != Kind::value;
  if (u.normed) {
    const uint32_t tile = kChunk * d.key_dim * 2;
    u.channel = (u.query ? 0 : d.keys()) + number * d.key_dim + lane * 4;
    u.there = lane * 4 < d.key_dim;
    u.to = reinterpret_cast<char*>(u.query ? c.q : c.k) + number * tile;
    u.slot_bytes = d.key_heads * tile;
    u.units = d.key_dim / 8, u.unit = lane / 2;
  } else {
    const uint32_t column = number * 128 + lane * 4, in = column % d.value_dim;
    u.channel = 2 * d.keys() + column;
    u.there = u.channel < d.channels();
    u.to = reinterpret_cast<char*>(c.v) + (column / d.value_dim * c.slices() + in / kSlice) * (kChunk * kSlice * 2);
    u.slot_bytes = d.value_heads * c.slices() * (kChunk * kSlice * 2);
    u.units = kSlice / 8, u.unit = in % kSlice / 8;
  }
  u.to += lane % 2 * 8;
  return u;
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

// silu(x) of kRows rows of a chunk from row `begin` on, normed if they are of q or k, where the next kernels read them.
// to: the chunk's tile. near: the same tile in shared memory, or null. Only `rows` of the chunk's rows are there; the
// others are zeros in shared memory. All rows take each step together: a block's few warps do not hide the latencies of
// one row's steps.
template <uint32_t kRows>
__device__ __forceinline__ void put(const Delta& d, const Unit& u, uint32_t begin, uint32_t rows, Four (&x)[kRows],
                                    char* to, char* near) {
#pragma unroll
  for (uint32_t i = 0; i < kRows; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) x[i].x[j] = fast_silu(x[i].x[j]);
  }
  if (u.normed) {
    float scale[kRows];
#pragma unroll
    for (uint32_t i = 0; i < kRows; ++i) {
      const float(&v)[4] = x[i].x;
      scale[i] = u.there ? fmaf(v[0], v[0], fmaf(v[1], v[1], fmaf(v[2], v[2], v[3] * v[3]))) : 0.0f;
    }
#pragma unroll
    for (uint32_t lanes = 16; lanes > 0; lanes /= 2) {
#pragma unroll
      for (uint32_t i = 0; i < kRows; ++i) scale[i] += __shfl_xor_sync(kAll, scale[i], lanes);
    }
    const float by = u.query ? rsqrtf(static_cast<float>(d.key_dim)) : 1.0f;
#pragma unroll
    for (uint32_t i = 0; i < kRows; ++i) {
      scale[i] = rsqrtf(scale[i] + d.l2_eps) * by;
#pragma unroll
      for (int j = 0; j < 4; ++j) x[i].x[j] *= scale[i];
    }
  }
  if (!u.there) return;
#pragma unroll
  for (uint32_t i = 0; i < kRows; ++i) {
    const uint32_t row = begin + i, turn = u.units >= 8 ? row % 8 : row / 2 % 4;  // tile_at of matrix.cuh
    const uint32_t at = (row * u.units + (u.unit ^ turn)) * 16;
    const bool there = row < rows;
    const uint2 four =
        there ? make_uint2(pack_bf16(x[i].x[0], x[i].x[1]), pack_bf16(x[i].x[2], x[i].x[3])) : make_uint2(0, 0);
    if (there) *reinterpret_cast<uint2*>(to + at) = four;
    if (near != nullptr) *reinterpret_cast<uint2*>(near + threadIdx.x % 2 * 8 + at) = four;
  }
}

// A warp's share of a chunk's rows, for a unit. All rows are requested before the first one is used.
template <bool kPends>
__device__ __forceinline__ void convolve(const Chunks& c, const Unit& u, const Run& s, const Part& chunk, char* near) {
  constexpr uint32_t kAhead = kTaps - 1, kGroup = 8;  // kGroup: rows of one pass through the code
  const Delta& d = c.d;
  const uint32_t begin = threadIdx.x / 32 * kWarpRows, channels = d.channels(), channel = u.there ? u.channel : 0;
  if (begin >= chunk.rows && near == nullptr) return;
  const int first = static_cast<int>(chunk.first - s.first + begin) - static_cast<int>(kAhead);  // of the sequence
  const float* x = d.qkv + uint64_t{s.first} * channels + channel;
  Four window[kWarpRows + kAhead];
#pragma unroll
  for (uint32_t i = 0; i < kWarpRows + kAhead; ++i) {
    const int row = first + static_cast<int>(i);
    if (i < kAhead && row < 0) {
      const int nth = static_cast<int>(s.kept) + row;
      const bool in = u.there && nth + static_cast<int>(d.kernel) > 0;  // not before what is kept
#pragma unroll
      for (uint32_t j = 0; j < 4; ++j) window[i].x[j] = in ? input_of<kPends>(d, s, nth, channel + j) : 0.0f;
    } else {
      window[i] = load_four(x + uint64_t{min(static_cast<uint32_t>(row), s.rows - 1)} * channels);
    }
  }
  float tap[kTaps][4];
  load_taps(d, channel, tap);
  char* to = u.to + uint64_t{part_number(s.first, chunk.seq, kChunk) + (chunk.first - s.first) / kChunk} * u.slot_bytes;
#pragma unroll 1
  for (uint32_t group = 0; group < kWarpRows; group += kGroup) {
    Four sums[kGroup] = {};
#pragma unroll
    for (uint32_t t = 0; t < kTaps; ++t) {
#pragma unroll
      for (uint32_t i = 0; i < kGroup; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[i].x[j] = fmaf(window[i + t].x[j], tap[t][j], sums[i].x[j]);
      }
    }
    put(d, u, begin + group, chunk.rows, sums, to, near);
#pragma unroll
    for (uint32_t i = 0; i < kWarpRows + kAhead - kGroup; ++i) window[i] = window[i + kGroup];
  }
}

// The last kernel - 1 inputs of a sequence without pending rows. The blocks of its last rows share the channels, in the
// operation's last kernel: its first one has read what is overwritten here, if the slot stays the same.
struct KeptInputs {
  Sequence s;
  uint32_t part, parts;

  // Of the block of a row of the step; of the step only.
  __device__ KeptInputs(const swy_step* step, uint32_t row) {
    constexpr uint32_t kMostParts = 16;
    s = sequence_of(step, step_array<uint32_t>(step, step->row_seq_at)[row]);
    parts = min(kMostParts, s.rows);
    part = s.first + s.rows - 1 - row;
  }
  // All threads of the block call this. All inputs of a channel are read before one is written.
  __device__ void keep(const Delta& d) const {
    constexpr uint32_t kMost = kTaps - 1, kAtOnce = 4;
    if (!s.active || part >= parts) return;
    const uint32_t channels = d.channels(), keep = d.kernel - 1, stride = parts * blockDim.x;
    const float* from = d.conv_state + s.read * channels * keep;
    float* to = d.conv_state + s.write * channels * keep;
    for (uint32_t base = part * blockDim.x + threadIdx.x; base < channels; base += kAtOnce * stride) {
      float x[kAtOnce][kMost];
#pragma unroll
      for (uint32_t n = 0; n < kAtOnce; ++n) {
        const uint32_t channel = base + n * stride;
#pragma unroll
        for (uint32_t t = 0; t < kMost; ++t) {
          const uint32_t at = t + s.rows;  // among the old inputs and then the rows
          x[n][t] = 0;
          if (t >= keep || channel >= channels) continue;
          if (at >= keep) {
            x[n][t] = d.qkv[uint64_t{s.first + at - keep} * channels + channel];
          } else if (!s.fresh) {
            x[n][t] = from[uint64_t{channel} * keep + at];
          }
        }
      }
#pragma unroll
      for (uint32_t n = 0; n < kAtOnce; ++n) {
        const uint32_t channel = base + n * stride;
#pragma unroll
        for (uint32_t t = 0; t < kMost; ++t) {
          if (t < keep && channel < channels) to[uint64_t{channel} * keep + t] = x[n][t];
        }
      }
    }
  }
};

}  // namespace gpu
