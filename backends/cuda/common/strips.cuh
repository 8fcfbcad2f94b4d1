// SPDX-License-Identifier: Apache-2.0
// Products with one row of activations on Hopper, at the speed of memory.
//
// Each warp has a ring of stages in shared memory. It requests whole rows of a weight from the copy engine as soon as a
// stage is free. So several hundred kilobytes are in transfer per multiprocessor without registers, and the first
// stages are requested before the previous kernels have ended. The activations stay in registers (vector.cuh describes
// their form).
#pragma once

#include "copy_engine.cuh"
#include "host/kernels.h"
#include "vector.cuh"

namespace gpu {

constexpr uint32_t kBlocksPerProcessor = 2;

// As many blocks as fill the device once.
inline uint32_t strip_blocks(const swy_device& device) {
  return static_cast<uint32_t>(device.processors) * kBlocksPerProcessor;
}

// The rings of a block: as many stages per warp as it has strips, at most four.
struct RingShape {
  uint32_t stage_bytes, log_count;

  __host__ __device__ uint32_t count() const { return 1u << log_count; }
  __host__ __device__ uint32_t bytes() const { return kVectorWarps * count() * (stage_bytes + 8); }
};
inline RingShape most_ring(uint32_t stage_bytes) { return {(stage_bytes + 127) / 128 * 128, 2}; }
inline RingShape ring_shape(uint32_t stage_bytes, uint32_t strips, uint32_t blocks) {
  const uint32_t each = ceil_div(strips, blocks * kVectorWarps);
  return {most_ring(stage_bytes).stage_bytes, each <= 1 ? 0u : each <= 2 ? 1u : 2u};
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// The ring of one warp.
struct Ring {
  char* stages;
  uint64_t* arrived;  // [count of stages]
  const RingShape& shape;

  __device__ Ring(char* memory, const RingShape& of) : shape(of) {
    const uint32_t warp = threadIdx.x / 32, count = of.count();
    stages = memory + warp * count * of.stage_bytes;
    arrived = reinterpret_cast<uint64_t*>(memory + kVectorWarps * count * of.stage_bytes) + warp * count;
    if (threadIdx.x % 32 == 0) {
      for (uint32_t s = 0; s < count; ++s) {
        barrier_init(shared_at(arrived + s), 1);
      }
      publish_barriers();
    }
    __syncwarp();
  }
  __device__ uint32_t place(uint32_t i) const { return i & (shape.count() - 1); }
  __device__ char* stage(uint32_t i) const { return stages + place(i) * shape.stage_bytes; }
  // Announces how many bytes the stage of item i will receive; then the lanes may request them.
  __device__ void expect(uint32_t i, uint32_t bytes) const {
    if (threadIdx.x % 32 == 0) {
      barrier_expect(shared_at(arrived + place(i)), bytes);
    }
    __syncwarp();
  }
  __device__ void copy(uint32_t i, uint32_t offset, const void* from, uint32_t bytes) const {
    copy_in(shared_at(stage(i) + offset), from, bytes, shared_at(arrived + place(i)));
  }
  __device__ void wait(uint32_t i) const { barrier_wait(shared_at(arrived + place(i)), (i >> shape.log_count) & 1); }
};

#endif

// Bytes of scales of one row; whether the copy engine can take them.
__host__ __device__ inline uint32_t scale_bytes(const Weight& w) { return w.groups * 2; }
inline bool in_strips(const Weight& w) {
  return is_quantized(w.dtype) && w.width % 32 == 0 && w.row_bytes % 16 == 0 && w.groups % 8 == 0;
}
__host__ __device__ inline uint32_t strip_bytes(const Weight& w, uint32_t rows) {
  return rows * (w.row_bytes + scale_bytes(w) * (w.offsets != nullptr ? 2 : 1));
}

// The activations that belong to one piece of a weight.
template <bool kNibbles>
struct PieceX;
template <>
struct PieceX<true> {
  uint32_t high[8], low[8];
  float scale, sum;
};
template <>
struct PieceX<false> {
  uint32_t high[4], low[4];
  float scale;
};

__device__ inline void load_piece_x(const Activations& x, uint32_t p, PieceX<true>& to) {
  const uint32_t chunks = x.width / 32;
  const uint4* planes = x.nibbles + p;
  const uint4 h0 = planes[0], h1 = planes[chunks], l0 = planes[2 * chunks], l1 = planes[3 * chunks];
  const float2 s = x.scales[p];
  to.high[0] = h0.x, to.high[1] = h0.y, to.high[2] = h0.z, to.high[3] = h0.w;
  to.high[4] = h1.x, to.high[5] = h1.y, to.high[6] = h1.z, to.high[7] = h1.w;
  to.low[0] = l0.x, to.low[1] = l0.y, to.low[2] = l0.z, to.low[3] = l0.w;
  to.low[4] = l1.x, to.low[5] = l1.y, to.low[6] = l1.z, to.low[7] = l1.w;
  to.scale = s.x, to.sum = s.y;
}
__device__ inline void load_piece_x(const Activations& x, uint32_t p, PieceX<false>& to) {
  const uint32_t chunks = x.width / 32;
  const uint4* planes = x.bytes + (p % 2) * chunks + p / 2;
  const uint4 h = planes[0], l = planes[2 * chunks];
  to.high[0] = h.x, to.high[1] = h.y, to.high[2] = h.z, to.high[3] = h.w;
  to.low[0] = l.x, to.low[1] = l.y, to.low[2] = l.z, to.low[3] = l.w;
  to.scale = x.scales[p / 2].x;
}

// sum + piece times activations, with the same roundings as vector.cuh.
__device__ inline float dot_piece(const uint4& w, float scale, float offset, const PieceX<true>& x, float sum) {
  const uint32_t q[4] = {w.x, w.y, w.z, w.w};
  int high[2] = {}, low[2] = {};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const uint32_t even = q[j] & 0x0f0f0f0fu, odd = (q[j] >> 4) & 0x0f0f0f0fu;
    high[0] = dp4a_us(even, x.high[2 * j], high[0]);
    low[0] = dp4a_uu(even, x.low[2 * j], low[0]);
    high[1] = dp4a_us(odd, x.high[2 * j + 1], high[1]);
    low[1] = dp4a_uu(odd, x.low[2 * j + 1], low[1]);
  }
  const float dot = static_cast<float>((high[0] + high[1]) * 256 + low[0] + low[1]);
  return fmaf(x.scale, fmaf(scale, dot, offset * x.sum), sum);
}
__device__ inline float dot_piece(const uint4& w, float scale, float, const PieceX<false>& x, float sum) {
  const int high =
      dp4a_ss(w.w, x.high[3], dp4a_ss(w.z, x.high[2], dp4a_ss(w.y, x.high[1], dp4a_ss(w.x, x.high[0], 0))));
  const int low = dp4a_su(w.w, x.low[3], dp4a_su(w.z, x.low[2], dp4a_su(w.y, x.low[1], dp4a_su(w.x, x.low[0], 0))));
  return fmaf(x.scale * scale, static_cast<float>(high * 256 + low), sum);
}

// Row `row` of a stage of `rows` rows in the layout of lanes, once all of it has arrived: data, scales, offsets.
template <bool kNibbles>
__device__ inline float strip_piece(const char* stage, const Weight& w, uint32_t rows, uint32_t row, uint32_t p,
                                    const PieceX<kNibbles>& x, float sum) {
  const uint4 q = *reinterpret_cast<const uint4*>(stage + row * w.row_bytes + p * 16);
  const auto* scales = reinterpret_cast<const uint16_t*>(stage + rows * w.row_bytes + row * scale_bytes(w));
  const uint32_t g = p >> w.piece_shift;
  const float s = half_bits(scales[g]);
  const float o = !kNibbles ? 0.0f : w.offsets == nullptr ? -8.0f * s : half_bits(scales[rows * w.groups + g]);
  return dot_piece(q, s, o, x, sum);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
// Requests R consecutive rows: a copy takes the copy engine at least as long as 512 bytes do.
template <int R>
__device__ inline void ask_run(const Ring& ring, uint32_t i, const Weight& w, uint64_t row) {
  const uint32_t lane = threadIdx.x % 32, scales = scale_bytes(w);
  ring.expect(i, strip_bytes(w, R));
  if (lane == 0) ring.copy(i, 0, w.data + row * w.row_bytes, R * w.row_bytes);
  if (lane == 1) ring.copy(i, R * w.row_bytes, w.scales + row * w.groups, R * scales);
  if (lane == 2 && w.offsets != nullptr)
    ring.copy(i, R * (w.row_bytes + scales), w.offsets + row * w.groups, R * scales);
}

// Requests R rows of weights of one shape; the lanes share the copies.
template <int R>
__device__ inline void ask(const Ring& ring, uint32_t i, const Weight& w0, uint64_t row0, const Weight& w1,
                           uint64_t row1) {
  static_assert(R <= 2);
  const uint32_t lane = threadIdx.x % 32, r = lane % R, what = lane / R;
  const Weight& w = r == 0 ? w0 : w1;
  const uint64_t row = r == 0 ? row0 : row1;
  ring.expect(i, strip_bytes(w0, R));
  if (what == 0) ring.copy(i, r * w.row_bytes, w.data + row * w.row_bytes, w.row_bytes);
  if (what == 1) ring.copy(i, R * w.row_bytes + r * scale_bytes(w), w.scales + row * w.groups, scale_bytes(w));
  if (what == 2 && w.offsets != nullptr) {
    ring.copy(i, R * (w.row_bytes + scale_bytes(w)) + r * scale_bytes(w), w.offsets + row * w.groups, scale_bytes(w));
  }
}
#endif

}  // namespace gpu
