// SPDX-License-Identifier: Apache-2.0
// Grouped products of 4-bit weights with activations as bytes (byte_rows.cuh) for cards without wgmma: m16n8k32, and
// stages brought by cp.async. A block walks over tiles of 256 rows of weights and up to 48 of activations.
//
// A nibble in the upper half of a byte, its highest bit flipped, is 16 (q - 8). A weight's group of 64 elements is two
// products, whose sum begins at integers that can be read as floats (kIntegerBits): one instruction scales a sum and
// adds it to the tile's. What the beginning adds is taken off for every span. Activations have one scale a row, but
// for powers of two, by which the tile's sums are multiplied where they change.
//
// Of a tile's rows of weights, each of eight warps has four times eight: lane 4 g + t of warp w has the results
// acc[q / 2][n][2 (q % 2) + e] of slot 32 w + 8 q + g and of row 8 n + 2 t + e of the activations. Work::place says
// which row of the weight is in which slot, so that a thread's results are neighbours in memory.
#pragma once

#include "byte_rows.cuh"
#include "byte_tiles.h"
#include "byte_weights.cuh"

namespace gpu {

// Rows of a weight from `row` on, of which row + last is the last one. Both halves of a tile have the same `last`, and
// as many groups.
struct ByteTileRows {
  const Weight* w;
  uint32_t row, last;
};
struct ByteTile {
  ByteTileRows low, high;    // for slots with q below 2, and the others
  const uint8_t* x;          // panels of the first span
  uint32_t groups, spans;    // groups: of eight rows of activations; 0: there is nothing to do
  uint32_t first_row, rows;  // of the activations
  uint32_t column, of;       // column: of the first slot's result; of: for Work
};

// Four bytes, of which those behind the first `bytes` are zeros.
__device__ inline void copy_word_later(uint32_t to, const void* from, uint32_t bytes = 4) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

// d = a b + c.
__device__ inline void multiply_signed(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                       const int (&c)[4]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, "
      "%13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
}

// The tile that is asked for, in shared memory: one thread writes it, after all have met that read the last one, and
// before they meet again.
struct ByteTileAsked {
  const uint8_t* weights[2];  // the first rows of low and high
  const uint16_t* scales[2];
  const uint8_t* x;
  uint32_t row_bytes, last, spans;
  uint32_t x_bytes, first_row, rows;  // of the activations; x_bytes: of a span
  uint32_t groups, shift, paired;     // of scales: elements of one, 16 as a power of two; whether two are a span's
};
static_assert(sizeof(ByteTileAsked) <= kByteTileAsked);

// A block's stages, and what it will ask for next: all its tiles' spans, one after the other.
template <class Work>
class ByteTileRing {
 public:
  __device__ ByteTileRing(const Work& work, const ByteTileShape& shape, char* shared)
      : total(work.total()),
        work_(work),
        shape_(shape),
        shared_(shared),
        asked_(*reinterpret_cast<ByteTileAsked*>(shared + shape.stages * shape.stage_bytes())),
        number_(blockIdx.x) {
    for (uint32_t i = 0; i + 1 < shape.stages; ++i) {
      __syncthreads();
      request();
    }
  }
  // Waits for the next stage, and asks for one in the place of the last one.
  __device__ const char* next() {
    if (shape_.stages == 2) copies_wait<0>();
    if (shape_.stages == 3) copies_wait<1>();
    if (shape_.stages == 4) copies_wait<2>();
    __syncthreads();
    request();
    return shared_ + to_ * shape_.stage_bytes();  // where the next request goes, once this stage has been read
  }

  const uint32_t total;

 private:
  static constexpr uint32_t kPieces = 4, kRowsAtOnce = kByteTileThreads / kPieces;  // of 16 bytes in a row's span

  __device__ void request() {
    if (left_ == 0) begin_tile();
    if (left_ != 0) {
      char* to = shared_ + to_ * shape_.stage_bytes();
      const uint32_t span = asked_.spans - left_;
      request_weights(to, span);
      request_scales(to + kByteTileWeights, span);
      request_changes(to + kByteTileChanges, span);
      request_x(to + kByteTileX, span);
      --left_;
    }
    to_ = to_ + 1 == shape_.stages ? 0 : to_ + 1;
    copies_end();
  }
  __device__ static uint32_t half_of(uint32_t slot) { return Work::kHalves ? slot / 16 % 2 : 0; }
  __device__ void request_weights(char* to, uint32_t span) const {
    const uint32_t row = threadIdx.x / kPieces, piece = threadIdx.x % kPieces, place = Work::place(row);
    const uint32_t at = span * (kSpan / 2) + piece * 16, row_bytes = asked_.row_bytes;
    const uint8_t* from = asked_.weights[half_of(row)] + at;
    to += row * (kSpan / 2) + (piece ^ (row / 2 % 2 * 2)) * 16;
#pragma unroll
    for (uint32_t i = 0; i < kPieces; ++i) {
      copy_later(to + i * kByteTileThreads * 16, from + uint64_t{min(i * Work::kStep + place, asked_.last)} * row_bytes,
                 at < row_bytes);
    }
  }
  // The scales of a slot's two groups of 64.
  __device__ void request_scales(char* to, uint32_t span) const {
    const uint32_t row = threadIdx.x / kRowsAtOnce * Work::kStep + Work::place(threadIdx.x % kRowsAtOnce);
    const uint16_t* from = asked_.scales[half_of(threadIdx.x)] + uint64_t{min(row, asked_.last)} * asked_.groups;
    to += threadIdx.x * 4;
    if (asked_.paired) return copy_word_later(shared_at(to), from + span * 2);
    uint32_t two[2];
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      two[i] = __ldg(from + min((span * 2 + i) * (kByteGroup / 16) >> asked_.shift, asked_.groups - 1));
    }
    *reinterpret_cast<uint32_t*>(to) = two[0] | two[1] << 16;
  }
  // Of the scales of two rows: zeros of rows that are not there, and within 256 elements.
  __device__ void request_changes(char* to, uint32_t span) const {
    if (threadIdx.x >= kMostByteTileRows / 2) return;
    const ByteScales& scales = work_.scales();
    const uint32_t rows = span % 2 == 0 ? asked_.rows : 0, row = threadIdx.x * 2;
    const uint16_t* from = scales.changes + span / 2 * scales.rows + asked_.first_row;
    copy_word_later(shared_at(to) + row * 2, from + (row < rows ? row : 0), row < rows ? min(rows - row, 2) * 2 : 0);
  }
  __device__ void request_x(char* to, uint32_t span) const {
    const uint8_t* from = asked_.x + span * work_.span_stride();
#pragma unroll
    for (uint32_t i = 0; i < (kMostByteTileRows * kSpan / 16 + kByteTileThreads - 1) / kByteTileThreads; ++i) {
      const uint32_t at = (i * kByteTileThreads + threadIdx.x) * 16;
      if (at < asked_.x_bytes) copy_later(to + at, from + at, true);
    }
  }
  // Leaves left_ at 0 if there is no more.
  __device__ void begin_tile() {
    while (number_ < total) {
      const ByteTile t = work_.tile(number_);
      number_ += gridDim.x;
      if (t.groups == 0) continue;
      left_ = t.spans;
      if (threadIdx.x == 0) ask(t);
      __syncthreads();
      return;
    }
  }
  __device__ void ask(const ByteTile& t) {
    const Weight &low = *t.low.w, &high = *t.high.w;
    asked_.weights[0] = low.data + uint64_t{t.low.row} * low.row_bytes;
    asked_.weights[1] = high.data + uint64_t{t.high.row} * high.row_bytes;
    asked_.scales[0] = low.scales + uint64_t{t.low.row} * low.groups;
    asked_.scales[1] = high.scales + uint64_t{t.high.row} * high.groups;
    asked_.x = t.x, asked_.x_bytes = t.groups * kBytePanel, asked_.spans = t.spans;
    asked_.first_row = t.first_row, asked_.rows = t.rows;
    asked_.row_bytes = low.row_bytes, asked_.last = t.low.last;
    asked_.groups = low.groups, asked_.shift = low.half_shift;
    asked_.paired = low.half_shift == 2 && low.groups % 2 == 0;
  }

  const Work& work_;
  const ByteTileShape& shape_;
  char* shared_;
  ByteTileAsked& asked_;
  uint32_t to_ = 0, number_, left_ = 0;  // slot; the next tile; spans of this one
};

// A tile's sums. NT: groups of eight rows.
template <int NT>
struct ByteTileSums {
  float acc[2][NT][4] = {};

  // Adds a span's products.
  __device__ __forceinline__ void multiply(const char* stage) {
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, slot = threadIdx.x / 32 * 32 + g;
    const char* quants = stage + slot * (kSpan / 2) + lane % 4 * 8;
    const auto* scales = reinterpret_cast<const uint32_t*>(stage + kByteTileWeights) + slot;
    const uint32_t x = shared_at(stage + kByteTileX) + lane % 8 * kSpan;
    const UpperNibbles upper;
    constexpr int kBegin = static_cast<int>(kIntegerBits);
    const int begin[4] = {kBegin, kBegin, kBegin, kBegin};
    uint32_t two[4];
#pragma unroll
    for (uint32_t q = 0; q < 4; ++q) two[q] = scales[q * 8];
    change(reinterpret_cast<const uint32_t*>(stage + kByteTileChanges));
    settle(two);
#pragma unroll 1
    for (uint32_t u = 0; u < 2; ++u) {
      uint32_t a[2][2][4];  // [q / 2][step]
      float scale[4];
#pragma unroll
      for (uint32_t q = 0; q < 4; ++q) {
        const uint2 w = *reinterpret_cast<const uint2*>(quants + q * 8 * (kSpan / 2) + (u ^ g / 2 % 2) * 32);
        a[q / 2][0][q % 2] = upper.of(w.x << 4), a[q / 2][0][2 + q % 2] = upper.of(w.x);
        a[q / 2][1][q % 2] = upper.of(w.y << 4), a[q / 2][1][2 + q % 2] = upper.of(w.y);
        scale[q] = half_bits(static_cast<uint16_t>(two[q] >> u * 16));
      }
#pragma unroll
      for (int n = 0; n < NT; ++n) {
        uint32_t b[4];
        if (n % 2 == 0) __syncwarp();
        load_matrices(b, x + n * kBytePanel + ((u * 4 + lane / 8) ^ (lane % 8)) * 16);
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          int half[4], sum[4];
          multiply_signed(half, a[m][0], b[0], b[1], begin);
          multiply_signed(sum, a[m][1], b[2], b[3], half);
#pragma unroll
          for (int i = 0; i < 4; ++i) acc[m][n][i] = fmaf(__int_as_float(sum[i]), scale[2 * m + i / 2], acc[m][n][i]);
        }
      }
    }
  }
  // Takes off what a span's sums began with.
  __device__ __forceinline__ void settle(const uint32_t (&two)[4]) {
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const float begun = half_bits(static_cast<uint16_t>(two[q])) + half_bits(static_cast<uint16_t>(two[q] >> 16));
#pragma unroll
      for (int n = 0; n < NT; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& sum = acc[q / 2][n][q % 2 * 2 + e];
          sum = fmaf(-kIntegerBase, begun, sum);
        }
      }
    }
  }
  // Of the scales of rows 2 l and 2 l + 1, in word l (ByteScales).
  __device__ __forceinline__ void change(const uint32_t* changes) {
    const uint32_t lane = threadIdx.x % 32;
    if (__any_sync(kAll, lane < NT * 4 && changes[lane] != 0) == 0) return;
    const auto power = [](uint32_t change) { return __uint_as_float((127 + (change & 0xff) - (change >> 8)) << 23); };
#pragma unroll
    for (int n = 0; n < NT; ++n) {
      const uint32_t two = changes[n * 4 + lane % 4];
      const float by[2] = {power(two & 0xffff), power(two >> 16)};
#pragma unroll
      for (int i = 0; i < 8; ++i) acc[i / 4][n][i % 4] *= by[i % 2];
    }
  }
  // Makes results of the sums.
  __device__ __forceinline__ void finish(const ByteTile& tile, const ByteScales& scales) {
#pragma unroll
    for (int n = 0; n < NT; ++n) {
      const uint32_t row = n * 8 + threadIdx.x % 4 * 2;
      float2 scale = {};
      if (row < tile.rows) scale = *reinterpret_cast<const float2*>(scales.last + tile.first_row + row);
      const float by[2] = {scale.x * (1.0f / 16), scale.y * (1.0f / 16)};  // nibbles are in the upper halves of bytes
#pragma unroll
      for (int i = 0; i < 8; ++i) acc[i / 4][n][i % 4] *= by[i % 2];
    }
  }
  // Of row 8 n + 2 t + e, by q.
  __device__ __forceinline__ float4 four(int n, int e) const {
    return make_float4(acc[0][n][e], acc[0][n][2 + e], acc[1][n][e], acc[1][n][2 + e]);
  }
};

// Work::place where a thread's four results have neighbouring columns, and the first of them.
__device__ inline uint32_t four_of_slot(uint32_t slot) { return slot / 32 * 32 + slot % 8 * 4 + slot / 8 % 4; }
__device__ inline uint32_t column_of_fours() { return threadIdx.x / 32 * 32 + threadIdx.x % 32 / 4 * 4; }

// Tile i, which has so many spans.
template <int NT, class Work>
__device__ __forceinline__ void multiply_byte_tile(const Work& work, uint32_t i, uint32_t spans,
                                                   ByteTileRing<Work>& ring) {
  ByteTileSums<NT> sums;
  for (uint32_t left = spans; left != 0; --left) sums.multiply(ring.next());
  asm volatile("" : "+r"(i));  // found again, rather than kept in registers
  const ByteTile same = work.tile(i);
  sums.finish(same, work.scales());
  work.template store<NT>(same, sums);
}

// A kernel's work. `work` has
//   kHalves          whether slots with q below 2 have rows of another weight than the others
//   kStep, place(s)  where slot s of the first 64 has its row, and how much further those of the next 64 are
//   total(), tile(i)
//   span_stride()    bytes from one span's panels to the next one's
//   scales()         of the activations
//   store<NT>(tile, sums)
template <class Work>
__device__ inline void product_of_byte_tiles(const Work& work, const ByteTileShape& shape, char* shared) {
  ByteTileRing<Work> ring(work, shape, shared);
  for (uint32_t i = blockIdx.x; i < ring.total; i += gridDim.x) {
    const ByteTile tile = work.tile(i);
    if (tile.groups > 4) {
      multiply_byte_tile<6>(work, i, tile.spans, ring);
    } else if (tile.groups > 2) {
      multiply_byte_tile<4>(work, i, tile.spans, ring);
    } else if (tile.groups != 0) {
      multiply_byte_tile<2>(work, i, tile.spans, ring);
    }
  }
}

}  // namespace gpu
