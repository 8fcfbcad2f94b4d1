// SPDX-License-Identifier: Apache-2.0
// GATED_DELTA for prompts: the walk through the chunks of a sequence.
//
// A block has some tiles of 16 value columns of one head, two warps per tile. The first warp keeps the state's columns,
// transposed, as the sums of its products; their layout is that of the next product's first operand. So the chain S ->
// U -> S never leaves its registers. The second warp works one chunk later and computes O. A fifth warp requests the
// chunks for both.
#include <type_traits>

#include "common/matrix.cuh"
#include "gated_delta_chunks.cuh"

namespace gpu {
namespace {

constexpr uint32_t kTileBytes = kChunkTile * 2;

constexpr uint32_t kTiles = kSlice / 16, kWalkThreads = kTiles * 64 + 32;

// A block's shared memory. Buffers of the first warp: k, inverse, v, decay of a chunk; of the second: q, within, decay
// of the previous chunk. The first warp hands its operands to the second in the layout of its lanes.
template <int kDim, int kStages>
struct Places {
  static constexpr uint32_t kKeys = kChunk * kDim * 2, kValues = kChunk * kSlice * 2, kDecay = kChunk * 8;
  static constexpr uint32_t kInverse = kKeys, kV = kInverse + kTileBytes, kD = kV + kValues, kFirst = kD + kDecay;
  static constexpr uint32_t kWithin = kKeys, kE = kWithin + kTileBytes, kSecond = kE + kDecay;
  static constexpr uint32_t kOwn = kDim / 16 * 512, kHand = kOwn + 4 * 512;  // state, then U
  static constexpr uint32_t kHands = kStages * (kFirst + kSecond), kBarriers = kHands + 2 * kTiles * kHand;
  static constexpr uint32_t kBytes = kBarriers + kStages * 8;
  static __device__ uint32_t first(uint32_t turn) { return turn % kStages * kFirst; }
  static __device__ uint32_t second(uint32_t turn) { return kStages * kFirst + turn % kStages * kSecond; }
  static __device__ uint32_t hand(uint32_t n, uint32_t tile) { return kHands + (n % 2 * kTiles + tile) * kHand; }
  static __device__ uint32_t barrier(uint32_t turn) { return kBarriers + turn % kStages * 8; }
};

// What a block walks through: the chunks of one sequence, for one head and a range of columns.
struct Walk {
  Run s;
  uint32_t slot, chunks, head, slice;  // slot of the first chunk
  uint32_t turn;                       // of the first chunk: how often buffers were filled before
};

// The copies of one turn. On Hopper the copy engine makes them, requested by one lane, and a barrier counts their
// bytes. Elsewhere all lanes of the warp copy, and the warp waits.
struct Copies {
  uint32_t barrier, bytes = 0;
  __device__ void add(char* to, const void* from, uint32_t size) {
    const uint32_t lane = threadIdx.x % 32;
#if __CUDA_ARCH__ >= 900
    if (lane == 0) {
      asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(size) : "memory");
      copy_in(shared_at(to), from, size, barrier);
    }
#else
    for (uint32_t i = lane * 16; i < size; i += 512) copy_later(to + i, static_cast<const char*>(from) + i, true);
#endif
  }
  __device__ void end() const {
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
#else
    copies_end();
#endif
  }
};

__device__ inline void fill_zero(char* from, char* to) {
  for (char* p = from + threadIdx.x % 32 * 16; p < to; p += 512) *reinterpret_cast<uint4*>(p) = make_uint4(0, 0, 0, 0);
}

// A warp requests the inputs of chunk n for the first warps, and those of chunk n - 1 for the second ones. Rows beyond
// a short chunk have weight 0 but must be numbers: those of k and v are filled with zeros.
template <int kDim, int kStages>
__device__ inline void bring(const Chunks& c, const Walk& w, uint32_t n, char* memory) {
  using P = Places<kDim, kStages>;
  if (n > w.chunks) return;
  const Delta& d = c.d;
  const uint32_t key_head = w.head / (d.value_heads / d.key_heads), turn = w.turn + n;
  Copies copies{shared_at(memory + P::barrier(turn))};
  if (n < w.chunks) {
    char* to = memory + P::first(turn);
    const uint32_t rows = min(kChunk, w.s.rows - n * kChunk), slot = w.slot + n;
    const uint64_t at = uint64_t{slot} * d.value_heads + w.head;
    copies.add(to, c.k + (uint64_t{slot} * d.key_heads + key_head) * kChunk * kDim, rows * kDim * 2);
    copies.add(to + P::kInverse, c.inverse + at * kChunkTile, kTileBytes);
    copies.add(to + P::kV, c.v + (at * c.slices() + w.slice) * (kChunk * kSlice), rows * kSlice * 2);
    copies.add(to + P::kD, c.decay + at * kChunk, P::kDecay);
    if (rows < kChunk) {
      fill_zero(to + rows * kDim * 2, to + P::kKeys);
      fill_zero(to + P::kV + rows * kSlice * 2, to + P::kV + P::kValues);
#if __CUDA_ARCH__ >= 900
      stores_visible_to_copies();
#endif
    }
  }
  if (n > 0) {
    char* to = memory + P::second(turn);
    const uint32_t slot = w.slot + n - 1;
    const uint64_t at = uint64_t{slot} * d.value_heads + w.head;
    copies.add(to, c.q + (uint64_t{slot} * d.key_heads + key_head) * kChunk * kDim,
               min(kChunk, w.s.rows - (n - 1) * kChunk) * kDim * 2);
    copies.add(to + P::kWithin, c.within + at * kChunkTile, kTileBytes);
    copies.add(to + P::kE, c.decay + at * kChunk, P::kDecay);
  }
  copies.end();
}

// Waits until a turn's copies have arrived, and all warps are done with those of the previous turn.
template <int kDim, int kStages>
__device__ inline void next_turn(uint32_t turn, char* memory) {
#if __CUDA_ARCH__ >= 900
  barrier_wait(shared_at(memory + Places<kDim, kStages>::barrier(turn)), turn / kStages % 2);
#else
  copies_wait<0>();
#endif
  __syncthreads();
}

// sums [16, 64] += x [16, 64] tile^T, by the lower 16 x 16 blocks of `tile` [64, 64].
__device__ inline void multiply_lower(float (&sums)[8][4], const uint32_t (&x)[4], uint32_t tile, uint32_t k) {
  uint32_t b[4];
#pragma unroll
  for (uint32_t n = 0; n < 4; ++n) {
    if (n < k) continue;
    second_operand<8>(b, tile, n * 16, k * 16);
    matrix_multiply(sums[2 * n], x, b[0], b[1]);
    matrix_multiply(sums[2 * n + 1], x, b[2], b[3]);
  }
}

__device__ inline void hand_over(char* to, const uint32_t (&a)[4]) {
  *reinterpret_cast<uint4*>(to) = make_uint4(a[0], a[1], a[2], a[3]);
}

// Element e of tile n of a product: column g or g + 8 of the values (e / 2), row 8 n + 2 t or the next one (e % 2).

// The state as operands, and r = S^T K^T [16, 64].
template <int kDim>
__device__ inline void multiply_keys(const float (&s)[kDim / 8][4], uint32_t keys, uint32_t (&state)[kDim / 16][4],
                                     float (&r)[8][4]) {
#pragma unroll
  for (uint32_t k = 0; k < kDim / 16; ++k) {
    uint32_t(&a)[4] = state[k], b[4];
    as_operand(a, s[2 * k], s[2 * k + 1]);
#pragma unroll
    for (uint32_t m = 0; m < 4; ++m) {
      second_operand<kDim / 8>(b, keys, m * 16, k * 16);
      matrix_multiply(r[2 * m], a, b[0], b[1]);
      matrix_multiply(r[2 * m + 1], a, b[2], b[3]);
    }
  }
}

// s += (exp(G_64 - G) U)^T K.
template <int kDim>
__device__ inline void add_keys(float (&s)[kDim / 8][4], const uint32_t (&scaled)[4][4], uint32_t keys) {
#pragma unroll
  for (uint32_t k = 0; k < 4; ++k) {
#pragma unroll
    for (uint32_t m = 0; m < kDim / 16; ++m) {
      uint32_t b[4];
      second_transposed<kDim / 8>(b, keys, k * 16, m * 16);
      matrix_multiply(s[2 * m], scaled[k], b[0], b[1]);
      matrix_multiply(s[2 * m + 1], scaled[k], b[2], b[3]);
    }
  }
}

// The first warp of a tile: S^T [16, kDim] through one chunk.
template <int kDim, int kStages>
__device__ inline void advance(float (&s)[kDim / 8][4], uint32_t turn, uint32_t tile, char* memory) {
  using P = Places<kDim, kStages>;
  const uint32_t lane = threadIdx.x % 32, t = lane % 4;
  const char* place = memory + P::first(turn);
  const uint32_t keys = shared_at(place);
  char* hand = memory + P::hand(turn, tile) + lane * 16;
  // Nothing is written to shared memory while fragments are read: a store would hold up later reads.
  float r[8][4] = {};
  uint32_t state[kDim / 16][4];
  multiply_keys<kDim>(s, keys, state, r);
  // V - exp(G) K S, and its product with the inverse.
  const auto* decay = reinterpret_cast<const float4*>(place + P::kD);  // two rows each
  float u[8][4] = {};
#pragma unroll
  for (uint32_t k = 0; k < 4; ++k) {
    uint32_t v[4], a[4];
    load_transposed(v, keys + P::kV + across_first<kTiles * 2>(k * 16, tile * 16));
    const float4 low = decay[k * 8 + t], high = decay[k * 8 + 4 + t];
    const float(&x)[4] = r[2 * k], (&y)[4] = r[2 * k + 1];
    a[0] = pack_bf16(fmaf(-low.x, x[0], low_of(v[0])), fmaf(-low.z, x[1], high_of(v[0])));
    a[1] = pack_bf16(fmaf(-low.x, x[2], low_of(v[1])), fmaf(-low.z, x[3], high_of(v[1])));
    a[2] = pack_bf16(fmaf(-high.x, y[0], low_of(v[2])), fmaf(-high.z, y[1], high_of(v[2])));
    a[3] = pack_bf16(fmaf(-high.x, y[2], low_of(v[3])), fmaf(-high.z, y[3], high_of(v[3])));
    multiply_lower(u, a, keys + P::kInverse, k);
  }
#pragma unroll
  for (uint32_t k = 0; k < kDim / 16; ++k) hand_over(hand + k * 512, state[k]);
  const float left = reinterpret_cast<const float2*>(place + P::kD)[kChunk - 1].x;
#pragma unroll
  for (uint32_t i = 0; i < kDim / 8; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) s[i][e] *= left;
  }
  uint32_t scaled[4][4];
#pragma unroll
  for (uint32_t k = 0; k < 4; ++k) {
    uint32_t(&a)[4] = scaled[k];
    as_operand(a, u[2 * k], u[2 * k + 1]);
    hand_over(hand + P::kOwn + k * 512, a);
    const float4 low = decay[k * 8 + t], high = decay[k * 8 + 4 + t];
    const float(&x)[4] = u[2 * k], (&y)[4] = u[2 * k + 1];
    a[0] = pack_bf16(x[0] * low.y, x[1] * low.w), a[1] = pack_bf16(x[2] * low.y, x[3] * low.w);
    a[2] = pack_bf16(y[0] * high.y, y[1] * high.w), a[3] = pack_bf16(y[2] * high.y, y[3] * high.w);
  }
  add_keys<kDim>(s, scaled, keys);
}

// The second warp of a tile, one turn later than the first: O of chunk n, written over V.
template <int kDim, int kStages>
__device__ inline void give_out(const Chunks& c, const Walk& w, uint32_t n, uint32_t tile, const char* memory) {
  using P = Places<kDim, kStages>;
  constexpr uint32_t kUnits = kDim / 8;
  const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const char* place = memory + P::second(w.turn + n + 1);
  const uint32_t queries = shared_at(place);
  const char* hand = memory + P::hand(w.turn + n, tile) + lane * 16;
  float o[8][4] = {};
#pragma unroll
  for (uint32_t k = 0; k < kDim / 16; ++k) {
    const uint4 x = *reinterpret_cast<const uint4*>(hand + k * 512);
    const uint32_t a[4] = {x.x, x.y, x.z, x.w};
    uint32_t b[4];
#pragma unroll
    for (uint32_t m = 0; m < 4; ++m) {
      second_operand<kUnits>(b, queries, m * 16, k * 16);
      matrix_multiply(o[2 * m], a, b[0], b[1]);
      matrix_multiply(o[2 * m + 1], a, b[2], b[3]);
    }
  }
  const auto* decay = reinterpret_cast<const float4*>(place + P::kE);
#pragma unroll
  for (uint32_t i = 0; i < 8; ++i) {
    const float4 e = decay[i * 4 + t];
    o[i][0] *= e.x, o[i][1] *= e.z, o[i][2] *= e.x, o[i][3] *= e.z;
  }
#pragma unroll
  for (uint32_t k = 0; k < 4; ++k) {
    const uint4 x = *reinterpret_cast<const uint4*>(hand + P::kOwn + k * 512);
    const uint32_t a[4] = {x.x, x.y, x.z, x.w};
    multiply_lower(o, a, queries + P::kWithin, k);
  }
  const uint32_t rows = min(kChunk, w.s.rows - n * kChunk);
  const uint64_t at = (uint64_t{w.slot + n} * c.d.value_heads + w.head) * c.slices() + w.slice;
  char* to = reinterpret_cast<char*>(c.v + at * (kChunk * kSlice)) + 4 * t;
#pragma unroll
  for (uint32_t i = 0; i < 8; ++i) {
    const uint32_t low = transpose(pack_bf16(o[i][0], o[i][1])), high = transpose(pack_bf16(o[i][2], o[i][3]));
    if (i * 8 + g >= rows) continue;
    *reinterpret_cast<uint32_t*>(to + tile_at<kSlice / 8>(i * 8 + g, tile * 2)) = low;
    *reinterpret_cast<uint32_t*>(to + tile_at<kSlice / 8>(i * 8 + g, tile * 2 + 1)) = high;
  }
}

// One warp's columns of the state, in the layout of `advance`: read, or written. A lane has two keys of each eight of
// two columns.
template <int kDim, bool kI16, bool kRead>
__device__ inline void move_state(const Chunks& c, const Walk& w, uint32_t tile, float (&s)[kDim / 8][4]) {
  const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, column = w.slice * kSlice + tile * 16;
  const bool in_head = column < c.d.value_dim, there = in_head && !(kRead && w.s.fresh);
  const uint64_t slot = kRead ? begins_in(w.s) : w.s.write;
#pragma unroll
  for (uint32_t of = 0; of < 2; ++of) {
    const uint32_t at = w.head * c.d.value_dim + (in_head ? column + g + of * 8 : 0);
    auto* pairs = reinterpret_cast<std::conditional_t<kI16, uint32_t, float2>*>(c.d.states.column<kI16>(slot, at)) + t;
    float scale = 0, inverse = 0;
    if (kI16 && kRead && there) scale = *c.d.states.scale(slot, at);
    if (kI16 && !kRead) {
      float largest = 0;
#pragma unroll
      for (uint32_t i = 0; i < kDim / 8; ++i) {
        largest = fmaxf(largest, fmaxf(fabsf(s[i][2 * of]), fabsf(s[i][2 * of + 1])));
      }
      largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, 2));
      scale = scale_of(largest), inverse = inverse_of_power(scale);
      if (there && t == 0) *c.d.states.scale(slot, at) = scale;
    }
#pragma unroll
    for (uint32_t i = 0; i < kDim / 8; ++i) {
      float &x = s[i][2 * of], &y = s[i][2 * of + 1];
      if constexpr (kI16 && kRead) {
        floats_of(there ? pairs[i * 4] : kTwoZeros, scale, x, y);
      } else if constexpr (kI16) {
        if (there) pairs[i * 4] = bits_of(x, y, inverse);
      } else if constexpr (kRead) {
        const float2 pair = there ? pairs[i * 4] : make_float2(0, 0);
        x = pair.x, y = pair.y;
      } else if (there) {
        pairs[i * 4] = make_float2(x, y);
      }
    }
  }
}

// blockIdx.x: slice; blockIdx.y: value head; blockIdx.z: every gridDim.z-th sequence. kPends: with pending rows.
template <int kDim, int kStages, bool kPends, bool kI16>
__global__ void __launch_bounds__(kWalkThreads, 1) walk(const __grid_constant__ Chunks c, const swy_step* step) {
  extern __shared__ __align__(128) char memory[];
  const uint32_t warp = threadIdx.x / 32, tile = warp % kTiles;
  const bool first = warp < kTiles, loads = warp == 2 * kTiles;
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x < kStages) {
    barrier_init(shared_at(memory + Places<kDim, kStages>::barrier(threadIdx.x)), 1);
    publish_barriers();
  }
  __syncthreads();
#endif
  release_next();
  // States are written by earlier steps only, so they are read before the previous kernels end; but not with rows that
  // stand.
  bool waited = kPends;
  if (kPends) depend();
  uint32_t turn = 0;
  for (uint32_t seq = blockIdx.z; seq < step->seqs; seq += gridDim.z) {
    Walk w;
    w.s = run_of<kPends>(step, seq);
    if (!w.s.active || w.s.rows <= c.few) continue;
    w.slot = part_number(w.s.first, seq, kChunk);
    w.chunks = (w.s.rows + kChunk - 1) / kChunk;
    w.head = blockIdx.y, w.slice = blockIdx.x, w.turn = turn;
    turn += w.chunks + 1;
    float s[kDim / 8][4];
    if (first) move_state<kDim, kI16, true>(c, w, tile, s);
    if (!waited) depend();
    waited = true;
#pragma unroll
    for (uint32_t n = 0; n + 1 < kStages; ++n) {
      if (loads) bring<kDim, kStages>(c, w, n, memory);
    }
    for (uint32_t n = 0; n <= w.chunks; ++n) {
      next_turn<kDim, kStages>(w.turn + n, memory);
      if (loads) {
        bring<kDim, kStages>(c, w, n + kStages - 1, memory);
      } else if (first) {
        if (n < w.chunks) advance<kDim, kStages>(s, w.turn + n, tile, memory);
      } else if (n > 0) {
        give_out<kDim, kStages>(c, w, n - 1, tile, memory);
      }
    }
    if (first && !w.s.pends) move_state<kDim, kI16, false>(c, w, tile, s);
    __syncthreads();
  }
  if (!waited && blockIdx.x + blockIdx.y + blockIdx.z == 0) depend();  // one waits for all that have nothing to do
}

template <int kDim, int kStages, bool kPends>
auto walk_of(const Chunks& c) {
  return c.d.states.i16 ? walk<kDim, kStages, kPends, true> : walk<kDim, kStages, kPends, false>;
}
template <int kDim, int kStages>
swy_status record_walk(const Recording& r, const Chunks& c) {
  const uint32_t blocks = c.slices() * c.d.value_heads, seqs = r.bucket().seqs;
  const uint32_t processors = r.device().processors, teams = processors < 2 * blocks ? 1 : processors / blocks;
  const dim3 grid(c.slices(), c.d.value_heads, teams < seqs ? teams : seqs);
  return launch(r, c.pends() ? walk_of<kDim, kStages, true>(c) : walk_of<kDim, kStages, false>(c), grid, kWalkThreads,
                Places<kDim, kStages>::kBytes, c, r.list.step);
}

}  // namespace

uint32_t least_block_memory() { return Places<128, 2>::kBytes; }

swy_status record_chunks(const Recording& r, const Chunks& c) {
  const bool roomy = r.device().features.block_memory >= Places<128, 3>::kBytes;
  switch (c.d.key_dim) {
    case 32:
      return record_walk<32, 3>(r, c);
    case 64:
      return record_walk<64, 3>(r, c);
    default:
      return roomy ? record_walk<128, 3>(r, c) : record_walk<128, 2>(r, c);
  }
}

}  // namespace gpu
