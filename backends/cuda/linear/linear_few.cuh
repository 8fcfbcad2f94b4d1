// SPDX-License-Identifier: Apache-2.0
// Projections of 2 to 64 rows with 4-bit weights, from 9.0 on, made for memory's rate.
//
// A block requests all of its weights before the previous kernels have ended. The blocks of a cluster share the
// columns, so that each reads only its part of the activations, in fp32. m16n8k16 multiplies 4-bit numbers as they lie
// in memory, read as bf16, with bf16 activations (few_rows.cuh). The sum of each group of 64 is scaled in fp32. Partial
// results of blocks and warps are pushed to the block that adds them up and writes them.
//
// Which column an instruction takes is free as long as both operands agree: lane 4 g + t has 16 neighbouring columns of
// a group, from 16 t on, elements i and i + 4 of each eight as a pair.
#pragma once

#include "common/stamps.cuh"
#include "linear_few_wgmma.cuh"

namespace gpu {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

template <int N, bool kAffine, bool kWgmma>
struct FewProducts : FewBlock<N, kAffine, kWgmma> {
  using Block = FewBlock<N, kAffine, kWgmma>;
  using Block::Block, Block::f, Block::shared, Block::memory, Block::warp, Block::lane, Block::rank, Block::rows,
      Block::first, Block::tiles, Block::plain, Block::column, Block::first_scale, Block::parts, Block::weight_of_tile,
      Block::owned;
  using typename Block::RowChunks;

  // ---- quantized tiles

  // Where a lane's weights and scales of its first tile are.
  struct Places {
    uint32_t words, next_words;  // from `memory` on
    const char *scales, *offsets;
    uint32_t next_scales, eight_scales;  // to the next tile, and to a row that is eight further
  };
  __device__ Places places(uint32_t tile) const {
    const uint32_t row = box_row(), t = lane % 4, scale_row = f.cut.scales * 2;
    Places p;
    p.words = tile * f.cut.slices() * kTileBytes + row * kBoxBytes + t % 2 * 8 + ((t / 2) ^ row) * 16;
    p.scales = memory + f.cut.scales_at() + (tile * kTileRows + row) * scale_row;
    p.offsets = p.scales + f.cut.tiles * kTileRows * scale_row;
    p.next_words = f.cut.team * f.cut.slices() * kTileBytes;
    p.next_scales = f.cut.team * kTileRows * scale_row;
    p.eight_scales = 8 * scale_row;
    return p;
  }

  // total += the products of M tiles, with groups begin to end; consecutive tiles are one team apart.
  template <uint32_t M>
  __device__ void multiply(uint32_t tile, uint32_t begin, uint32_t end, float (&total)[kFewWarpTiles][N * 4]) {
    constexpr int kAtOnce = N == 1 || N == 8 ? 1 : 2;
    const Places p = places(tile);
    const uint32_t first_group = column() / kFewGroup, before = first_scale();
    const char* x = memory + f.cut.x_at() + begin * N * 1024;
    const char* sums = memory + f.cut.sums_at() + begin * N * 64 + lane % 4 * 16;
    RowChunks chunks(*this, begin);
#pragma unroll 1
    for (uint32_t group = begin; group < end;) {
      const uint32_t until = min(chunks.next(), end);
#pragma unroll 1
      for (; group < until; ++group, x += N * 1024, sums += N * 64) {
        const uint32_t slice = group / 4 * kTileBytes, turn = group % 4 * 32;
        const uint32_t scale_at = (((first_group + group) >> f.cut.scale_shift) - before) * 2;
        uint32_t even[M][2][4], odd[M][2][4];
        float scale[M][2], offset[M][2];
#pragma unroll
        for (uint32_t m = 0; m < M; ++m) {
          const char* from = memory + ((p.words + slice + m * p.next_words) ^ turn);
#pragma unroll
          for (uint32_t half = 0; half < 2; ++half) {
            const uint2 q = *reinterpret_cast<const uint2*>(from + half * 8 * kBoxBytes);
            unpack_word(q.x, half, even[m][0], odd[m][0]);
            unpack_word(q.y, half, even[m][1], odd[m][1]);
            const uint32_t at = scale_at + m * p.next_scales + half * p.eight_scales;
            scale[m][half] = half_bits(*reinterpret_cast<const uint16_t*>(p.scales + at));
            if (kAffine) offset[m][half] = half_bits(*reinterpret_cast<const uint16_t*>(p.offsets + at));
          }
        }
#pragma unroll
        for (int n = 0; n < N; n += kAtOnce) {
          float c[kAtOnce][4], d[M][kAtOnce][4];
          multiply_group<M, kAtOnce>(even, odd, x + n * 1024, sums + n * 64, c, d);
#pragma unroll
          for (uint32_t m = 0; m < M; ++m) {
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) add_scaled(total[m], n + i, scale[m], d[m][i], offset[m], c[i]);
          }
        }
      }
    }
  }
  __device__ static void add_scaled(float (&total)[N * 4], int n, const float (&scale)[2], const float (&d)[4],
                                    const float (&offset)[2], const float (&sum)[4]) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      total[4 * n + e] = fmaf(scale[e / 2], d[e], total[4 * n + e]);
      if (kAffine) total[4 * n + e] = fmaf(offset[e / 2], sum[e], total[4 * n + e]);
    }
  }
  // d = the products of a group; without offsets it begins with c.
  template <uint32_t M, int K>
  __device__ static void multiply_group(const uint32_t (&even)[M][2][4], const uint32_t (&odd)[M][2][4], const char* x,
                                        const char* sums, float (&c)[K][4], float (&d)[M][K][4]) {
    float none[4] = {};
#pragma unroll
    for (int i = 0; i < K; ++i) {
      const float4 v = *reinterpret_cast<const float4*>(sums + i * 64);
      c[i][0] = v.x, c[i][1] = v.y, c[i][2] = v.z, c[i][3] = v.w;
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      uint4 b[K];
#pragma unroll
      for (int i = 0; i < K; ++i) b[i] = load_operand(x + i * 1024, j);
#pragma unroll
      for (uint32_t m = 0; m < M; ++m) {
#pragma unroll
        for (int i = 0; i < K; ++i) {
          float(&sum)[4] = d[m][i];
          multiply_onto(sum, even[m][j], b[i].x, b[i].y, j != 0 ? sum : kAffine ? none : c[i]);
        }
      }
#pragma unroll
      for (uint32_t m = 0; m < M; ++m) {
#pragma unroll
        for (int i = 0; i < K; ++i) multiply_onto(d[m][i], odd[m][j], b[i].z, b[i].w, d[m][i]);
      }
    }
  }

  // ---- plain tiles: two terms of the activations

  using Pieces = uint4[kFewPlainGroups][2][2];  // [group][row][half]

  __device__ void load_plain(uint32_t tile, uint32_t begin, uint32_t end, Pieces& pieces) const {
    const uint32_t w = weight_of_tile(first + tile), row0 = (first + tile - f.first[1][w]) * kTileRows + box_row();
    const Weight& weight = f.p.weights[w];
#pragma unroll
    for (uint32_t k = 0; k < kFewPlainGroups; ++k) {
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t row = row0 + i / 2 * 8, at = column() + (begin + k) * kFewGroup + lane % 4 * 16 + i % 2 * 8;
        const bool there = tile < tiles && begin + k < end && row < weight.rows;
        pieces[k][i / 2][i % 2] =
            there ? load_piece(weight.data + (uint64_t{row} * weight.width + at) * 2) : make_uint4(0, 0, 0, 0);
      }
    }
  }
  // Odd columns of two pairs, times 16 (few_rows.cuh).
  __device__ static uint32_t odd_pair(uint32_t first, uint32_t second) {
    const uint32_t pair = __byte_perm(first, second, 0x7632);
    const __nv_bfloat162 v =
        __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&pair), __floats2bfloat162_rn(16.0f, 16.0f));
    return *reinterpret_cast<const uint32_t*>(&v);
  }
  __device__ void multiply_plain(const Pieces& pieces, uint32_t begin, uint32_t end, float (&total)[N * 4]) const {
#pragma unroll
    for (uint32_t k = 0; k < kFewPlainGroups; ++k) {
      if (begin + k >= end) break;
#pragma unroll
      for (uint32_t j = 0; j < 2; ++j) {
        const uint4 p = pieces[k][0][j], q = pieces[k][1][j];
        const uint32_t a[2][4] = {{__byte_perm(p.x, p.z, 0x5410), __byte_perm(q.x, q.z, 0x5410),
                                   __byte_perm(p.y, p.w, 0x5410), __byte_perm(q.y, q.w, 0x5410)},
                                  {odd_pair(p.x, p.z), odd_pair(q.x, q.z), odd_pair(p.y, p.w), odd_pair(q.y, q.w)}};
        const char* low = memory + (begin + k) * N * 1024;
#pragma unroll
        for (int n = 0; n < N; ++n) {
          const uint4 y = load_operand(low + n * 1024, j);
          const uint4 x = load_operand(low + f.cut.x_at() + n * 1024, j);
          float sum[4] = {total[4 * n], total[4 * n + 1], total[4 * n + 2], total[4 * n + 3]};
          multiply_onto(sum, a[0], x.x, x.y, sum);
          multiply_onto(sum, a[0], y.x, y.y, sum);
          multiply_onto(sum, a[1], x.z, x.w, sum);
          multiply_onto(sum, a[1], y.z, y.w, sum);
#pragma unroll
          for (int e = 0; e < 4; ++e) total[4 * n + e] = sum[e];
        }
      }
    }
  }

  // ---- results

  // Waits until all reads of this cluster's shared memory are over.
  __device__ void meet_before_pushing() {
    if (f.cut.apart) return;
    __syncwarp();
    if (lane < f.cut.blocks()) arrive_at_peer(&shared.over, lane);
    barrier_wait(&shared.over, 0);
  }
  __device__ float4* pushed_at(uint32_t source, uint32_t piece) const {
    auto* to = reinterpret_cast<float4*>(memory + f.cut.pushed_at());
    return to + (source * f.cut.owned(plain) + piece) * 32 + lane;
  }
  __device__ void push_tile(uint32_t tile, uint32_t part, const float (&total)[N * 4]) {
    if (tile >= tiles) return;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const uint32_t piece = tile * N + n, to = piece & (f.cut.blocks() - 1);
      push(pushed_at(rank * parts() + part, piece >> f.cut.shift), &shared.pushed, to,
           make_float4(total[4 * n], total[4 * n + 1], total[4 * n + 2], total[4 * n + 3]));
    }
  }
  __device__ float inverse_of(uint32_t m) const {
    float sum = 0;
    for (uint32_t i = 0; i < f.cut.blocks(); ++i) sum += shared.of_peers[i][m];
    return rsqrtf(sum / static_cast<float>(f.p.width) + f.p.eps);
  }
  // Adds up piece i of this block's pieces and writes it: rows 2 t and 2 t + 1 of eight of the activations, two of the
  // weight.
  __device__ void write_piece(uint32_t i) {
    const uint32_t piece = (i << f.cut.shift) + rank, tile = first + piece / N, m0 = piece % N * 8 + lane % 4 * 2;
    const uint32_t w = weight_of_tile(tile), row0 = (tile - f.first[plain][w]) * kTileRows + box_row();
    const uint32_t height = f.p.weights[w].rows;
    float v[4] = {};
    if (f.p.residual != nullptr) {
#pragma unroll
      for (uint32_t e = 0; e < 4; ++e) {
        const uint32_t m = m0 + e % 2, row = row0 + e / 2 * 8;
        if (m < rows && row < height) v[e] = __ldcg(f.p.residual + uint64_t{m} * height + row);
      }
    }
    barrier_wait(&shared.pushed, 0);
    float4 sum = make_float4(0, 0, 0, 0);
    for (uint32_t s = 0; s < f.cut.blocks() * parts(); ++s) {
      const float4 of = *pushed_at(s, i);
      sum.x += of.x, sum.y += of.y, sum.z += of.z, sum.w += of.w;
    }
    const float back = plain ? 1 / kFewUp : kWgmma ? 1 / (kFewUp * kFewWeights) : 1 / (kFewUp * kFewUnit);
    const float by[2] = {f.p.normed ? inverse_of(m0) * back : back, f.p.normed ? inverse_of(m0 + 1) * back : back};
    const float sums[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
    for (uint32_t e = 0; e < 4; ++e) {
      const uint32_t m = m0 + e % 2, row = row0 + e / 2 * 8;
      if (m < rows && row < height) f.p.y[w][uint64_t{m} * height + row] = fmaf(sums[e], by[e % 2], v[e]);
    }
  }

  // ---- the whole

  template <bool kPlain>
  __device__ void meet_rows(const swy_step* step, Stamps& stamps) {
    rows = step_rows(step, f.p.domain);
    stamps.take_place();
    depend();
    stamps.note(kWaited);
    release_next();
    if (f.ready.words != nullptr) {
      this->ask_rows();
      cluster_wait();
      return;
    }
    this->template put_rows<kPlain>();
    if (kWgmma && !kPlain) stores_visible_to_copies();  // and to wgmma
    __syncthreads();
    cluster_wait();  // all blocks have begun, and can be pushed to
    this->push_squares();
  }
  template <uint32_t M>
  __device__ void multiply_tiles(uint32_t tile, uint32_t begin, uint32_t end, float (&total)[kFewWarpTiles][N * 4]) {
    if constexpr (!kWgmma) {
      multiply<M>(tile, begin, end, total);
    } else {
#ifdef SWY_HOPPER
      FewWgmma<N, kAffine, M>(*this, tile).multiply(begin, end, total);
#endif
    }
  }
  __device__ void run_quantized(const swy_step* step, Stamps& stamps) {
    meet_rows<false>(step, stamps);
    stamps.note(kRead);
    const uint32_t team = f.cut.team, tile = warp % team, part = warp / team;
    const uint32_t begin = f.cut.groups * part / f.cut.parts, end = f.cut.groups * (part + 1) / f.cut.parts;
    float total[kFewWarpTiles][N * 4] = {};
    // With wgmma a warpgroup whose last tiles do not exist multiplies as one that has them.
    const uint32_t lowest = kWgmma ? tile / 4 * 4 : tile;
    if (lowest < tiles) barrier_wait(shared_at(&shared.arrived[min(tile, tiles - 1)]), 0);
    stamps.note(kArrived);
    if (lowest + team < tiles) {
      multiply_tiles<2>(tile, begin, end, total);
    } else if (lowest < tiles) {
      multiply_tiles<1>(tile, begin, end, total);
    }
    stamps.note(kMultiplied);
    meet_before_pushing();
#pragma unroll
    for (uint32_t m = 0; m < kFewWarpTiles; ++m) push_tile(tile + m * team, part, total[m]);
  }
  __device__ void run_plain(const swy_step* step, Stamps& stamps) {
    const uint32_t tile = warp % f.cut.plain_tiles, part = warp / f.cut.plain_tiles, parts = f.cut.plain_parts;
    const uint32_t begin = f.cut.groups * part / parts, end = part < parts ? f.cut.groups * (part + 1) / parts : 0;
    Pieces pieces;
    load_plain(tile, begin, end, pieces);
    meet_rows<true>(step, stamps);
    RowChunks(*this, 0).wait_until(f.cut.groups);
    float total[N * 4] = {};
    for (uint32_t group = begin; group < end; group += kFewPlainGroups) {
      if (group != begin) load_plain(tile, group, end, pieces);
      multiply_plain(pieces, group, end, total);
    }
    meet_before_pushing();
    if (part < parts) push_tile(tile, part, total);
  }
  __device__ void run(const FewMaps& maps, const swy_step* step) {
    Stamps stamps(f.p.residual == nullptr ? kStampNormed : kStampPlain);
    if (threadIdx.x == 0) this->begin_barriers();
    __syncthreads();
    cluster_arrive();
    this->ask(maps);
    this->bring_parameters();
    __syncthreads();
    stamps.note(kAsked);
    plain ? run_plain(step, stamps) : run_quantized(step, stamps);
    const uint32_t mine = owned();
    for (uint32_t i = warp; i < mine; i += f.cut.warps()) write_piece(i);
    barrier_wait(&shared.pushed, 0);  // the block must exist as long as others push to it
  }
};

#endif

}  // namespace gpu
