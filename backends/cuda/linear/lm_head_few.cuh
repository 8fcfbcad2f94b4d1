// SPDX-License-Identifier: Apache-2.0
// LM_HEAD of 2 to 32 rows with 4-bit weights on Hopper, made for memory's rate.
//
// A small kernel writes the wanted rows in the order of a second operand, as bf16; every block copies them to its
// shared memory. A block has three warpgroups, each with its own tiles of 64 ids and its own ring, which a warp fills
// with boxes of 64 ids and 256 columns. None waits for another. Weights go through registers to wgmma.
//
// A nibble in the lowest bits of a bf16 is that number times 2^-133, in the next four bits times 2^-129. One AND, and
// one fma with scale and offset (rounded to bf16 for this), make it 2^-22 of a weight.
//
// Which column an instruction takes is free as long as both operands agree: in each half of a box lane 4 g + t has 32
// neighbouring columns, from 32 t on, eight (a word) at a time: elements 0 4, 2 6 in one instruction, 1 5, 3 7 in the
// next.
#pragma once

#include "common/device_code.cuh"
#include "common/pin.cuh"
#include "common/stamps.cuh"
#include "common/wgmma.cuh"
#include "host/kernels.h"
#include "host/tensor_map.h"

namespace gpu {

constexpr uint32_t kHeadTeams = 3, kHeadTeamWarps = 4, kHeadWarps = kHeadTeams * kHeadTeamWarps;
constexpr uint32_t kHeadReaders = 32 * kHeadWarps, kHeadThreads = kHeadReaders + 32 * kHeadTeams;
constexpr uint32_t kHeadTile = 64, kHeadBoxBytes = kHeadTile * kBoxBytes, kHeadBoxColumns = 2 * kBoxBytes;
constexpr uint32_t kHeadMostSlots = 8, kHeadMostRows = 32, kHeadMostBoxes = 8, kHeadGroup = 64;

struct HeadFew {
  const float* x;  // [rows, width]
  uint4* operand;  // [columns / 64][n][64] bf16, n: rows that fit; pieces permuted as in boxes
  Weight w;
  uint32_t tiles, slots;  // slots: boxes of a ring
};

// N: rows of activations that fit.
__host__ __device__ constexpr uint32_t head_rows_bytes(uint32_t width, uint32_t n) { return width * n * 2; }
__host__ __device__ constexpr uint32_t head_staging_bytes(uint32_t n) { return kHeadTile * kHeadTeams * n * 4; }

#ifdef SWY_HOPPER

// Of a tile's 16 ids in a warp, the one that lanes 4 g and on multiply first; the other is 8 more. So 8 lanes that read
// at once have no bank conflicts.
__device__ inline uint32_t head_id(uint32_t g) { return g % 2 * 4 + g / 2; }

// Shared memory by its address, which is computed once and kept (pin.cuh).
__device__ inline uint4 read_piece(uint32_t at) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(at)
               : "memory");
  return v;
}

constexpr uint32_t kEmptyAfter = kHeadTeams * kHeadMostSlots * 8;  // from a box's barrier to that of its slot
struct HeadFewShared {
  uint64_t full[kHeadTeams][kHeadMostSlots], empty[kHeadTeams][kHeadMostSlots];
  uint64_t rows[kHeadMostBoxes];  // activations of a box's columns

  __device__ void init(uint32_t slots) {
    for (uint32_t team = 0; team < kHeadTeams; ++team) {
      for (uint32_t i = 0; i < slots; ++i) {
        barrier_init(shared_at(&full[team][i]), 1);
        barrier_init(shared_at(&empty[team][i]), kHeadTeamWarps);
      }
    }
    for (uint64_t& b : rows) barrier_init(shared_at(&b), 1);
    publish_barriers();
  }
};

// Scales, or offsets, of a tile in a lane: of rows head_id(g) and 8 more, for boxes t and t + 4.
struct HeadScales {
  uint2 of[2][2];

  __device__ void load(const uint16_t* from, const Weight& w, uint32_t tile) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32 % kHeadTeamWarps;
    const uint32_t row = tile * kHeadTile + warp * 16 + head_id(lane / 4), boxes = w.width / kHeadBoxColumns;
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      const auto* at = reinterpret_cast<const uint2*>(from + uint64_t{min(row + 8 * h, w.rows - 1)} * w.groups);
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i) of[h][i] = __ldg(at + min(lane % 4 + 4 * i, boxes - 1));
    }
  }
  // Those of row h and this lane's groups of a box: of its first half, and of its second. `lane4`: the first lane with
  // row g.
  __device__ void in_box(uint32_t h, uint32_t box, uint32_t lane4, uint32_t shift, float (&out)[2]) const {
    const bool later = box >= 4;
    const uint32_t first = __shfl_sync(kAll, later ? of[h][1].x : of[h][0].x, lane4 + box % 4);
    const uint32_t second = __shfl_sync(kAll, later ? of[h][1].y : of[h][0].y, lane4 + box % 4);
    out[0] = half_bits(static_cast<uint16_t>(first >> shift));
    out[1] = half_bits(static_cast<uint16_t>(second >> shift));
  }
};

// The factors that turn nibbles of one group into weights.
struct HeadFactors {
  __nv_bfloat162 scales;  // of nibbles in the lowest bits, and in the next
  __nv_bfloat162 offset;  // twice

  __device__ explicit HeadFactors(float scale) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(scale, scale);
    scales = __hmul2(both, __floats2bfloat162_rn(0x1p111f, 0x1p107f));
    offset = __hmul2(both, __floats2bfloat162_rn(-0x1p-19f, -0x1p-19f));  // offsets of the nibbles less 8
  }
  __device__ HeadFactors(float scale, float offset_of_nibbles) : HeadFactors(scale) {
    offset =
        __hmul2(__floats2bfloat162_rn(offset_of_nibbles, offset_of_nibbles), __floats2bfloat162_rn(0x1p-22f, 0x1p-22f));
  }

  // Eight nibbles: (0 4), (2 6) for one instruction, (1 5), (3 7) for the next.
  __device__ void unpack(uint32_t word, uint32_t half, uint32_t (&first)[4], uint32_t (&second)[4]) const {
    const __nv_bfloat162 low = __low2bfloat162(scales), high = __high2bfloat162(scales);
    first[half] = weights(word & 0x000f000fu, low), first[2 + half] = weights((word >> 8) & 0x000f000fu, low);
    second[half] = weights(word & 0x00f000f0u, high), second[2 + half] = weights((word >> 8) & 0x00f000f0u, high);
  }

 private:
  __device__ uint32_t weights(uint32_t nibbles, __nv_bfloat162 scale) const {
    const __nv_bfloat162 v = __hfma2(*reinterpret_cast<const __nv_bfloat162*>(&nibbles), scale, offset);
    return *reinterpret_cast<const uint32_t*>(&v);
  }
};

// Elements 8 i to 8 i + 7 of row m as the second operand. n: rows that fit.
__device__ inline void put_eight(const HeadFew& h, uint32_t n, uint32_t m, uint32_t i, const float4& a,
                                 const float4& b) {
  const uint32_t u = i % 4, t = i / 4 % 4;
  char* row = reinterpret_cast<char*>(h.operand) + ((i / 16 * 2 + u / 2) * n + m) * 128 + t * 4;
  const auto put = [&](uint32_t piece, float low, float high) {
    *reinterpret_cast<__nv_bfloat162*>(row + ((u % 2 * 4 + piece) ^ m % 8) * 16) = __floats2bfloat162_rn(low, high);
  };
  put(0, a.x, b.x), put(1, a.z, b.z), put(2, a.y, b.y), put(3, a.w, b.w);
}

// One block. N: 8, 16 or 32 rows of activations, of which `rows` exist.
template <int N, bool kAffine>
struct HeadBlock {
  const HeadFew& h;
  HeadFewShared& shared;
  char *x, *ring;  // the operand; [teams][slots] boxes
  float* staging;  // [16][N], this warp's
  uint32_t warp, lane, team, boxes, first;

  __device__ HeadBlock(const HeadFew& few, HeadFewShared& s, char* dynamic)
      : h(few), shared(s), warp(threadIdx.x / 32), lane(threadIdx.x % 32) {
    x = dynamic + (1024 - shared_at(dynamic) % 1024) % 1024;
    ring = x + head_rows_bytes(h.w.width, N);
    staging = reinterpret_cast<float*>(ring + kHeadTeams * h.slots * kHeadBoxBytes) + warp * 16 * N;
    team = warp < kHeadWarps ? warp / kHeadTeamWarps : warp - kHeadWarps;
    boxes = h.w.width / kHeadBoxColumns;
    first = team * gridDim.x + blockIdx.x;
  }
  __device__ static uint32_t tiles_apart() { return kHeadTeams * gridDim.x; }
  __device__ char* slot_at(uint32_t slot) const { return ring + (team * h.slots + slot) * kHeadBoxBytes; }

  // One thread of each team calls this: requests the team's boxes.
  __device__ void ask(const CUtensorMap& map) const {
    uint32_t slot = 0, parity = 1;
    for (uint32_t tile = first; tile < h.tiles; tile += tiles_apart()) {
      for (uint32_t box = 0; box < boxes; ++box) {
        barrier_wait(shared_at(&shared.empty[team][slot]), parity);
        const uint32_t full = shared_at(&shared.full[team][slot]);
        barrier_expect(full, kHeadBoxBytes);
        copy_box(shared_at(slot_at(slot)), map, box * kBoxBytes, tile * kHeadTile, full);
        if (++slot == h.slots) slot = 0, parity ^= 1;
      }
    }
  }

  // One thread calls this: requests the activations.
  __device__ void ask_rows() const {
    for (uint32_t box = 0; box < boxes; ++box) {
      constexpr uint32_t kBytes = head_rows_bytes(kHeadBoxColumns, N);
      const uint32_t full = shared_at(&shared.rows[box]);
      barrier_expect(full, kBytes);
      copy_in(shared_at(x + box * kBytes), h.operand + box * (kBytes / 16), kBytes, full);
    }
  }

  // acc = 2^-22 of a tile's product, in the layout of matrix_product, with row g standing for head_id(g).
  __device__ void multiply(const HeadScales& scales, const HeadScales& offsets, bool first_tile, uint32_t& slot,
                           uint32_t& parity, float (&acc)[N / 2]) const {
    constexpr uint32_t kBox = N * 512 / 16;  // a box's columns of the operand, in pieces
    const uint32_t t = lane % 4, row = warp % kHeadTeamWarps * 16 + head_id(lane / 4);
    uint32_t ring_at = shared_at(ring) + team * h.slots * kHeadBoxBytes + row * kBoxBytes + (t ^ (row % 8)) * 16;
    uint32_t full = shared_at(shared.full[team]), rows = shared_at(shared.rows), lane4 = lane / 4 * 4,
             shift = t / 2 * 16;
    pin(ring_at), pin(full), pin(rows), pin(lane4), pin(shift);
    uint64_t operand = rows_descriptor(shared_at(x), 1024);
    uint32_t a[2][4][4];
#pragma unroll
    for (int i = 0; i < N / 2; ++i) acc[i] = 0;
#pragma unroll 1
    for (uint32_t box = 0; box < boxes; ++box, operand += kBox) {
      uint4 q[2][2];
      float s[2][2], o[2][2];
#pragma unroll
      for (uint32_t k = 0; k < 2; ++k) {
        scales.in_box(k, box, lane4, shift, s[k]);
        if (kAffine) offsets.in_box(k, box, lane4, shift, o[k]);
      }
      if (first_tile) barrier_wait(rows + box * 8, 0);
      barrier_wait(full + slot * 8, parity);
      const uint32_t at = ring_at + slot * kHeadBoxBytes;
#pragma unroll
      for (uint32_t k = 0; k < 2; ++k) {
        q[0][k] = read_piece(at + k * 8 * kBoxBytes);
        q[1][k] = read_piece((at ^ 64) + k * 8 * kBoxBytes);
      }
      __syncwarp();
      if (lane == 0) barrier_arrive(full + kEmptyAfter + slot * 8);
      if (++slot == h.slots) slot = 0, parity ^= 1;
#pragma unroll
      for (uint32_t part = 0; part < 4; ++part) {
        unpack_part(part, q[part / 2], s, o, a[part % 2]);
        multiply_part(acc, a[part % 2], operand + part * (kBox / 4));
        products_wait<1>();
        keep_part(a[(part + 1) % 2]);
      }
    }
    products_wait<0>();
    keep_part(a[1]);
    keep(acc);
  }

  // Writes the warp's logits to its staging memory: id j of 16 (see id_of) and row m at [j][m ^ turn_of(j)].
  __device__ void stage(const float (&acc)[N / 2]) const {
    const uint32_t g = lane / 4, t = lane % 4;
    __syncwarp();
#pragma unroll
    for (uint32_t i = 0; i < N / 8; ++i) {
#pragma unroll
      for (uint32_t k = 0; k < 2; ++k) {
        const uint32_t at = (g + 8 * k) * N + ((8 * i) ^ turn_of(g)) + 2 * t;
        *reinterpret_cast<float2*>(staging + at) =
            make_float2(acc[4 * i + 2 * k] * 0x1p22f, acc[4 * i + 2 * k + 1] * 0x1p22f);
      }
    }
    __syncwarp();
  }
  __device__ static uint32_t turn_of(uint32_t j) { return j % (N / 8) * 8; }
  __device__ float staged(uint32_t j, uint32_t m) const { return staging[j * N + (m ^ turn_of(j))]; }
  __device__ uint32_t id_of(uint32_t tile, uint32_t j) const {
    return tile * kHeadTile + warp % kHeadTeamWarps * 16 + head_id(j % 8) + j / 8 * 8;
  }

  // Writes the staged logits of the rows whose bit is set in `rows`: y [rows, vocab].
  __device__ void write(float* y, uint32_t tile, uint32_t rows) const {
    const uint32_t c = lane % 4, vocab = h.w.rows, id = tile * kHeadTile + warp % kHeadTeamWarps * 16 + 4 * c;
    for (uint32_t m = lane / 4; m < N; m += 8) {
      if ((rows >> m & 1) == 0) continue;
      float v[4];
#pragma unroll
      for (uint32_t e = 0; e < 4; ++e) v[e] = staged(2 * e + c % 2 + c / 2 * 8, m);
      float* to = y + uint64_t{m} * vocab + id;
      if (vocab % 4 == 0 && id < vocab) {
        *reinterpret_cast<float4*>(to) = make_float4(v[0], v[1], v[2], v[3]);
        continue;
      }
#pragma unroll
      for (uint32_t e = 0; e < 4; ++e) {
        if (id + e < vocab) to[e] = v[e];
      }
    }
  }

  // The work of a block. Each warp calls give(tile) for each staged tile.
  template <class Give>
  __device__ void run(const CUtensorMap& map, Stamps& stamps, Give give) {
    if (threadIdx.x == kHeadReaders) shared.init(h.slots);
    __syncthreads();
    release_next();
    if (warp >= kHeadWarps) {
      if (lane == 0) ask(map);
      return;
    }
    stamps.take_place();
    HeadScales scales, offsets;
    if (first < h.tiles) load_scales(first, scales, offsets);
    depend();
    stamps.note(kWaited);
    if (threadIdx.x == 0) ask_rows();
    uint32_t slot = 0, parity = 0;
    for (uint32_t tile = first; tile < h.tiles; tile += tiles_apart()) {
      const HeadScales now = scales, now_offsets = offsets;
      if (tile + tiles_apart() < h.tiles) load_scales(tile + tiles_apart(), scales, offsets);
      float acc[N / 2];
      multiply(now, now_offsets, tile == first, slot, parity, acc);
      if (tile == first) stamps.note(kArrived);
      stage(acc);
      give(tile);
      __syncwarp();
    }
    stamps.note(kMultiplied);
  }

 private:
  __device__ void load_scales(uint32_t tile, HeadScales& scales, HeadScales& offsets) const {
    scales.load(h.w.scales, h.w, tile);
    if (kAffine) offsets.load(h.w.offsets, h.w, tile);
  }
  // A quarter of a box's columns as first operands, from a lane's parts of the half's two rows.
  __device__ static void unpack_part(uint32_t part, const uint4 (&words)[2], const float (&scale)[2][2],
                                     const float (&offset)[2][2], uint32_t (&a)[4][4]) {
    const uint32_t half = part / 2;
#pragma unroll
    for (uint32_t k = 0; k < 2; ++k) {
      const HeadFactors f = kAffine ? HeadFactors(scale[k][half], offset[k][half]) : HeadFactors(scale[k][half]);
      f.unpack(part % 2 == 0 ? words[k].x : words[k].z, k, a[0], a[1]);
      f.unpack(part % 2 == 0 ? words[k].y : words[k].w, k, a[2], a[3]);
    }
  }
  __device__ static void multiply_part(float (&acc)[N / 2], uint32_t (&a)[4][4], uint64_t operand) {
    keep_part(a);
    products_begin();
#pragma unroll
    for (uint32_t s = 0; s < 4; ++s) matrix_product<N>(acc, a[s], operand + 2 * s);
    products_commit();
  }
  __device__ static void keep_part(uint32_t (&a)[4][4]) {
#pragma unroll
    for (uint32_t s = 0; s < 4; ++s) keep(a[s]);
  }
};

#endif

}  // namespace gpu
