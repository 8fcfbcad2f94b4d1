// SPDX-License-Identifier: Apache-2.0
// Device functions of attention.decode for the heads of a block's row (attention_decode.cu explains how they work
// together): its query heads, normed and rotated; its key and value, which are also appended to their page; and those
// of the sequence's earlier rows of the step.
#pragma once

#include "attention_ring_bytes.cuh"
#include "common/pin.cuh"

namespace gpu {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// N consecutive floats.
template <int N>
__device__ inline void load_floats(const float* from, bool in, float (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) x[i] = 0;
  if (in) load_kv<N>(from, x);
}

// N elements in bf16, aligned to their size.
template <int N>
__device__ inline void store_packed(void* to, const float (&x)[N]) {
  uint32_t w[N / 2];
#pragma unroll
  for (int i = 0; i < N / 2; ++i) w[i] = pack_bf16(x[2 * i], x[2 * i + 1]);
  if constexpr (N == 8) {
    *static_cast<uint4*>(to) = make_uint4(w[0], w[1], w[2], w[3]);
  } else if constexpr (N == 4) {
    *static_cast<uint2*>(to) = make_uint2(w[0], w[1]);
  } else {
    *static_cast<uint32_t*>(to) = w[0];
  }
}

// N bytes, aligned to N.
template <int N>
__device__ inline void store_words(void* to, const uint32_t (&w)[(N + 3) / 4]) {
  if constexpr (N == 8) {
    *static_cast<uint2*>(to) = make_uint2(w[0], w[1]);
  } else if constexpr (N == 4) {
    *static_cast<uint32_t*>(to) = w[0];
  } else {
    *static_cast<uint16_t*>(to) = static_cast<uint16_t>(w[0]);
  }
}

// The largest absolute value of a head.
template <int N>
__device__ inline float largest_of(const float (&x)[N]) {
  float most = 0;
#pragma unroll
  for (float v : x) most = larger_of(most, v);
  return largest_of_warp(most);
}

// A key or a value, of which a lane has kLane elements, as shared memory and its page have it.
template <class F>
struct Rounded {
  uint32_t words[(F::kLane + 3) / 4];
  float scale;

  __device__ explicit Rounded(const float (&x)[F::kLane]) {
    const ByteScale s(largest_of(x));
    scale = s.scale;
#pragma unroll
    for (int i = 0; i < F::kLane; i += 4) {
      const auto at = [&](int k) { return k < F::kLane ? x[k] : 0.0f; };
      words[i / 4] = to_bytes(s, x[i], x[i + 1], at(i + 2), at(i + 3));
    }
  }
  __device__ void store(char* row, float* to) const {
    const uint32_t lane = threadIdx.x % 32;
    store_words<F::kLane>(row + lane * F::kLane, words);
    if (lane == 0) *to = scale;
  }
  // In shared memory.
  __device__ void store(char* row) const { store(row, reinterpret_cast<float*>(row + F::kScale)); }
};

// Stores a key or a value in shared memory.
template <class F>
__device__ inline void store_row(char* to, const float (&x)[F::kLane]) {
  if constexpr (F::kBytes) {
    Rounded<F>(x).store(to);
  } else {
    store_packed(to + threadIdx.x % 32 * 2 * F::kLane, x);
  }
}

// Stores a query head as the high and then the low bytes of integers, which are signed, and their scale.
template <class F>
__device__ inline void store_query(char* to, const float (&x)[F::kLane]) {
  constexpr float kMost = 127 * 256;
  const uint32_t lane = threadIdx.x % 32;
  const float most = largest_of(x), inverse = most < 1e-30f ? 0.0f : __fdividef(kMost, most);
  uint32_t high[(F::kLane + 3) / 4], low[(F::kLane + 3) / 4];
#pragma unroll
  for (int i = 0; i < F::kLane; i += 4) {
    uint32_t q[4] = {};
#pragma unroll
    for (int j = 0; j < 4 && i + j < F::kLane; ++j) q[j] = __float_as_uint(fmaf(x[i + j], inverse, 12582912.0f));
    low[i / 4] = __byte_perm(__byte_perm(q[0], q[1], 0x0040), __byte_perm(q[2], q[3], 0x0040), 0x5410);
#pragma unroll
    for (uint32_t& v : q) v += 128;
    high[i / 4] = __byte_perm(__byte_perm(q[0], q[1], 0x0051), __byte_perm(q[2], q[3], 0x0051), 0x5410);
  }
  store_words<F::kLane>(to + lane * F::kLane, high);
  store_words<F::kLane>(to + F::kDim + lane * F::kLane, low);
  if (lane == 0) *reinterpret_cast<float*>(to + F::kQueryScale) = most * (1 / kMost);
}

// Norms and rotates a head; a lane has N of its elements. turn: cosine and sine per pair of elements, shared memory.
template <int N>
__device__ inline void prepare_head(const Attention& a, const float (&norm)[N], const float2* turn, float factor,
                                    float (&x)[N]) {
  const uint32_t lane = threadIdx.x % 32, lanes = a.rotary / 2 / N;  // between the elements of a pair
  const bool lower = lane < lanes, turns = lane < 2 * lanes;
  const uint32_t other = lower ? lane + lanes : lane - lanes;
  const float2* mine = turn + (turns ? (lower ? lane : other) * N : 0);
  float squares = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) squares = fmaf(x[i], x[i], squares);
  const float scale = rsqrtf(warp_sum(squares) / static_cast<float>(32 * N) + a.eps) * factor;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float y = x[i] * scale * norm[i], z = __shfl_sync(kAll, y, other);
    const float2 t = turns ? mine[i] : make_float2(1, 0);
    x[i] = turns ? fmaf(y, t.x, z * (lower ? -t.y : t.y)) : y;
  }
}

// The cosine and sine of a position for pair i of elements.
__device__ inline float2 make_turn(const Attention& a, uint32_t position, uint32_t i) {
  const double turns = position * a.turns[i];  // the fraction of a turn is exact
  float s, c;
  sincospif(static_cast<float>(2 * (turns - rint(turns))), &s, &c);
  return make_float2(c, s);
}

// Rows of the step that belong to the block's sequence and lie before the block's row: row 0 is the one just before it.
// Their keys and values are not in their pages yet, or are being written there by other blocks. So each block makes
// those that it needs: one row per warp, from the last warp but one downwards.
template <class F>
struct Earlier {
  char* base;
  uint32_t count, own;  // own: the row of this warp; kNone: none

  static constexpr uint32_t kNone = 0xffffffffu;

  __device__ char* key(uint32_t i) const { return base + i * F::kBoth; }
  __device__ char* value(uint32_t i) const { return key(i) + 2 * F::kDim; }
  // Of a row whose key and value are not there yet.
  __device__ float2* turn(uint32_t i) const { return reinterpret_cast<float2*>(key(i)); }

  // rows: the most in a step.
  __device__ Earlier(const Attention& a, const Share& share, const Memory<F>& memory, uint32_t rows_before,
                     uint32_t rows)
      : base(earlier_behind(rows) ? memory.base + memory_bytes<F>(a.rotary) : reinterpret_cast<char*>(memory.inbox())),
        count(min(rows_before, rows - 1)) {
    const uint32_t i = kWorkers - 2 - threadIdx.x / 32, position = share.context - 2 - i;
    own = i < count && position >= share.first && position < share.last ? i : kNone;
    for (uint32_t u = threadIdx.x; u < count * (a.rotary / 2); u += kThreads) {
      const uint32_t row = u / (a.rotary / 2), pair = u % (a.rotary / 2);
      turn(row)[pair] = make_turn(a, share.context - 2 - row, pair);
    }
  }
  // Copies their keys or values into a tile that ends `left` positions before the block's row does.
  __device__ void put(uint32_t stage, uint32_t left, bool values, uint32_t part) const {
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t row = left - 2 - i;  // in the tile, if it is small
      if (row < F::kTile) put_own<F>(stage, row, (values ? value(i) : key(i)) + part * F::kOfStage * 128);
    }
  }
  __device__ void put_scales(float* slot, uint32_t left) const {
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t row = left - 2 - i;
      if (row < F::kTile) put_own_scales<F>(slot, row, key(i), value(i));
    }
  }
};

// Index of a block's row and group of query heads, and of their KV head, over all rows.
struct OwnHeads {
  uint32_t count;
  uint64_t query, kv;

  __device__ explicit OwnHeads(const Attention& a) {
    const uint32_t row = blockIdx.z, kv_head = blockIdx.y / a.groups;
    const uint32_t first = kv_head * a.per_kv() + blockIdx.y % a.groups * kHeads;
    count = min(kHeads, (kv_head + 1) * a.per_kv() - first);
    query = uint64_t{row} * a.heads + first, kv = uint64_t{row} * a.kv_heads + kv_head;
  }
};

// Elements of a norm's weight, with its bias.
template <class F>
__device__ inline void load_norm(const Attention& a, const Weight& weight, float (&norm)[F::kLane]) {
#pragma unroll
  for (int i = 0; i < F::kLane; ++i) norm[i] = a.bias + plain_at(weight, threadIdx.x % 32 * F::kLane + i);
}

// Stores a query head in shared memory.
template <class F>
__device__ inline void prepare_query(const Attention& a, const Memory<F>& memory, const float (&norm)[F::kLane],
                                     float (&x)[F::kLane]) {
  prepare_head(a, norm, memory.small().turn, a.scale * 1.44269504f, x);
  if constexpr (F::kBytes) {
    store_query<F>(memory.head(threadIdx.x / 32), x);
  } else {
    store_packed(memory.head(threadIdx.x / 32) + threadIdx.x % 32 * 2 * F::kLane, x);
  }
}

// As append, with a key that has been normed and rotated.
template <class F>
__device__ inline void append_bytes(const Attention& a, const Share& share, const Memory<F>& memory,
                                    const float (&key)[F::kLane], const float (&value)[F::kLane]) {
  const Rounded<F> k(key), v(value);
  k.store(memory.own(false)), v.store(memory.own(true));
  if (blockIdx.y % a.groups != 0) return;
  const uint32_t position = share.context - 1, page = share.table[position >> share.shift];
  const BytePlaces places(a, share);
  const uint32_t row = places.row(page, position);
  char* to = static_cast<char*>(a.pages) + uint64_t{row} * F::kDim;
  float* scale = places.scale(page, row);
  k.store(to, scale), v.store(to + (F::kDim << share.shift), scale + (1u << share.shift));
}

// Stores the row's own key and value in shared memory and in their page.
template <class F>
__device__ inline void append(const Attention& a, const Share& share, const Memory<F>& memory,
                              const float (&norm)[F::kLane], float (&key)[F::kLane], const float (&value)[F::kLane]) {
  const uint32_t lane = threadIdx.x % 32, position = share.context - 1;
  prepare_head(a, norm, memory.small().turn, 1, key);
  if constexpr (F::kBytes) {
    append_bytes<F>(a, share, memory, key, value);
    return;
  }
  store_packed(memory.own(false) + lane * 2 * F::kLane, key);
  store_packed(memory.own(true) + lane * 2 * F::kLane, value);
  if (blockIdx.y % a.groups != 0) return;
  const uint32_t page = share.table[position >> share.shift];
  auto* pages = static_cast<uint16_t*>(a.pages) + lane * F::kLane;
  store_packed(pages + uint64_t{share.row(page, false, position)} * F::kDim, key);
  store_packed(pages + uint64_t{share.row(page, true, position)} * F::kDim, value);
}

// Where a lane's elements of its warp's query head and of the row's own key and value are read.
template <class F>
struct Sources {
  const float *query, *key, *value;
  bool in;  // the warp has a head

  __device__ Sources(const Attention& a, const OwnHeads& own) {
    const uint32_t warp = threadIdx.x / 32, at = threadIdx.x % 32 * F::kLane;
    query = a.q + (own.query + warp) * F::kDim * (a.gated ? 2 : 1) + at;
    key = a.k + own.kv * F::kDim + at, value = a.v + own.kv * F::kDim + at;
    in = warp < own.count;
    pin(query), pin(key), pin(value);
  }
};

// Heads of the row. In the block that has the row's position also its key and value, by the last warp; and those of an
// earlier row by the warp that has one.
template <class F, uint32_t kRows>
__device__ inline void prepare(const Attention& a, const Sources<F>& from, const Share& share, const Memory<F>& memory,
                               const Earlier<F>& earlier, bool appends, const float (&query_norm)[F::kLane],
                               const float (&key_norm)[F::kLane]) {
  float query[F::kLane];
  load_floats(from.query, from.in, query);
  const bool before = kRows > 1 && earlier.own != Earlier<F>::kNone;
  if (!appends && !before) {
    prepare_query<F>(a, memory, query_norm, query);
    return;
  }
  float key[F::kLane], value[F::kLane];
  const uint64_t back = before ? uint64_t{earlier.own + 1} * a.kv_heads * F::kDim : 0;
  load_floats(from.key - back, true, key);
  load_floats(from.value - back, true, value);
  prepare_query<F>(a, memory, query_norm, query);
  if (!before) {
    append<F>(a, share, memory, key_norm, key, value);
    return;
  }
  prepare_head(a, key_norm, earlier.turn(earlier.own), 1, key);
  __syncwarp();  // the cosines and sines have been read
  store_row<F>(earlier.key(earlier.own), key);
  store_row<F>(earlier.value(earlier.own), value);
}

#endif

}  // namespace gpu
