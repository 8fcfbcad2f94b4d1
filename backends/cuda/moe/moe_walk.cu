// SPDX-License-Identifier: Apache-2.0
// MOE and MOE_ADD of three or four rows on Hopper: three kernels, or the last two where the output projection's launch
// gives the router's logits (linear_router.h); gate_up then makes integers of its input itself.
//
//   route     the router's logits, and the shared expert's gate: 8 rows per block (if they are in bf16)
//   gate_up   chooses, then h = silu(gate) * up, as integers: 64 columns of one expert and one row per block; of
//             the shared expert, of all rows
//   down      chooses, then y = sum p_e down_e h_e + sigmoid(mix) * shared (+ residual): 16 columns of all rows per
//   block
//
// A block has more weights than room for them. Each warp walks through the tiles of its columns, with a ring: it
// requests the next tile into a place of it when it has read the current one. So two blocks of gate_up, not three, and
// one of `down` fit a multiprocessor, and memory has requests to serve from the choice to the last tile.
#include "moe_walk.h"

#include "moe_walk.cuh"

namespace gpu {
namespace {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// 1 / rms of a row of the input, or 1 without a norm.
__device__ inline float inverse_of(const MixtureBoxes& b, const UpShared& shared, uint32_t row) {
  return b.normed ? inverse_root(shared.squares[row], b.per_width, b.norm.eps) : 1.0f;
}

// A step's results from the shares of all slices and the input's 1 / rms, by one warp: gate in the first 16 lanes, up
// in the others.
__device__ inline float join_step(const float (&shares)[kBoxWarps][2 * kTileRows], uint32_t slices, float inverse) {
  float sum = 0;
#pragma unroll
  for (uint32_t w = 0; w < kBoxWarps; ++w) sum += w < slices ? shares[w][threadIdx.x % 32] : 0.0f;
  sum *= inverse;
  const float up = __shfl_xor_sync(kAll, sum, kTileRows);
  return quick_silu(sum) * up;
}

// One row's share of a routed expert. Of the block's warps each joins every eighth step.
__device__ inline void walk_row(const Walk& p, const UpRequests& ask, const RowOperand& x, const ScalePlaces& places,
                                bool works, UpShared& shared) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, slices = p.b.m.hidden / kSlice;
  const uint32_t own = shared_at(ask.boxes), in_box = lane_of_box();
  const uint32_t to = lane % 4 / 2 * 8 + lane / 4;
  uint32_t stage = 0, parity = 0;  // of the next tile
  uint32_t b[4][2][2];
  operand_of(x.words, b);
#pragma unroll 1
  for (uint32_t step = 0; step < kSteps; ++step) {
    if (works) {
      const uint32_t slot = step % kUpSlots, scales = places.at + slot * 2 * ask.tile_scales;
      barrier_wait(shared_at(&shared.scales_arrived[slot]), step / kUpSlots & 1);
#pragma unroll 1
      for (uint32_t i = 0; i < 2; ++i) {
        float v[2];
        barrier_wait(shared_at(&shared.arrived[warp][stage]), parity);
        multiply_walked(own + stage * kTileBytes, in_box, places, scales + i * ask.tile_scales, b, x.scale, x.start, v);
        __syncwarp();  // every lane has read the tile
        if (lane == 0 && 2 * step + i + kUpRing < kUpTiles) ask.ask_tile(2 * step + i + kUpRing);
        if (++stage == kUpRing) stage = 0, parity ^= 1;
        const float mine = sum_lanes<2, 2>(v);
        if (lane % 2 == 0) shared.shares[step % 2][warp][i * kTileRows + to] = mine;
      }
    }
    __syncthreads();
    if (threadIdx.x == 0 && step + kUpSlots < kSteps) ask.ask_scales(step + kUpSlots);
    if (step % kBoxWarps != warp) continue;
    const float h = join_step(shared.shares[step % 2], slices, inverse_of(p.b, shared, 0));
    if (lane < kTileRows) shared.h[0][step * kTileRows + lane] = h;
  }
}

// All rows' share of the shared expert.
__device__ inline void walk_rows(const Walk& p, const UpRequests& ask, const QuadOperand& x, const PairPlaces& first,
                                 bool works, UpShared& shared) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, slices = p.b.m.hidden / kSlice;
  const uint32_t own = shared_at(ask.boxes), in_box = lane_of_box();
  const uint32_t to = shared_at(shared.of_rows[warp]) + share_of_lane();
  uint32_t stage = 0, parity = 0;  // of the next tile
#pragma unroll 1
  for (uint32_t step = 0; step < kSteps; ++step) {
    const uint32_t slot = step % kUpSlots;
    if (works) {
      PairPlaces places = first;
      places.at += slot * 2 * ask.tile_scales;
      barrier_wait(shared_at(&shared.scales_arrived[slot]), step / kUpSlots & 1);
#pragma unroll 1
      for (uint32_t i = 0; i < 2; ++i) {
        const uint32_t tile = own + stage * kTileBytes;
        barrier_wait(shared_at(&shared.arrived[warp][stage]), parity);
        multiply_quad<true>(tile, in_box, to + i * kRowsShare - tile, places, i, x);
        __syncwarp();
        if (lane == 0 && 2 * step + i + kUpRing < kUpTiles) ask.ask_tile(2 * step + i + kUpRing);
        if (++stage == kUpRing) stage = 0, parity ^= 1;
      }
    }
    __syncthreads();
    if (threadIdx.x == 0 && step + kUpSlots < kSteps) ask.ask_scales(step + kUpSlots);
    if (warp < kQuad) {  // a row of the activations each; gate in the first 16 lanes, up in the others
      const uint32_t at =
          shared_at(shared.of_rows[0]) + lane / kTileRows * kRowsShare + (warp * kShareStride + lane % kTileRows) * 4;
      float sum = 0;
#pragma unroll
      for (uint32_t w = 0; w < kBoxWarps; ++w) sum += w < slices ? shared_float(at + w * 2 * kRowsShare) : 0.0f;
      sum *= inverse_of(p.b, shared, warp);
      const float up = __shfl_xor_sync(kAll, sum, kTileRows);
      if (lane < kTileRows) shared.h[warp][step * kTileRows + lane] = quick_silu(sum) * up;
    }
    __syncthreads();
  }
}

#endif

// blockIdx.x: 8 experts; behind these the shared expert's gate.
__global__ void __launch_bounds__(kTermThreads, 2)
    route_walk(const __grid_constant__ MixtureBoxes b, const swy_step* step) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(kBoxAlignment) char dynamic[];
  Stamps stamps(kStampRoute);
  const Mixture& m = b.m;
  const uint32_t first = blockIdx.x * kRouteRows;
  const bool routed = first < m.experts;
  const uint32_t count = routed ? min(m.experts - first, kRouteRows) : 1;
  const TermBlock<kRouteRows> block{*reinterpret_cast<TermMemory<kRouteRows>*>(dynamic), m.hidden};
  release_next();  // no multiprocessor gets more than two blocks of gate_up, and the next kernel waits for it
  block.keep(routed ? m.router : m.shared_mix, routed ? first : 0, count);
  block.keep_factors(b.norm.weight, b.normed, b.norm.bias);
  const uint32_t rows = step_rows(step, m.domain), row = threadIdx.x % kRouteRows, x_row = threadIdx.x / kRouteRows;
  __syncthreads();
  stamps.take_place();
  depend();
  stamps.note(kWaited);
  block.multiply(m.x, rows);
  __syncthreads();
  if (x_row >= kQuad || x_row >= rows || row >= count) return;
  float total = block.sum(row, x_row);
  if (b.normed) total *= inverse_root(block.memory.squares[x_row], b.per_width, b.norm.eps);
  if (routed) {
    m.logits[x_row * m.experts + first + row] = total;
  } else {
    m.shared_p[x_row] = sigmoid(total);
  }
#endif
}

__global__ void __launch_bounds__(kBoxThreads, 4)
    gate_up_walk(const __grid_constant__ UpMaps maps, const __grid_constant__ Walk p, const swy_step* step) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(kBoxAlignment) char dynamic[];
  __shared__ UpShared shared;
  Stamps stamps(kStampGateUp);
  const Mixture& m = p.b.m;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, slices = m.hidden / kSlice;
  const UpTask task(p);
  const bool works = warp < slices, exists = threadIdx.x < m.experts;
  const uint32_t step_row_count = step_rows(step, m.domain);
  const uint32_t tile_scales = scales_bytes(m.gate_up, kTileRows);
  UpRequests ask{maps,
                 m,
                 shared,
                 dynamic + warp * kUpRing * kTileBytes,
                 dynamic + kBoxWarps * kUpRing * kTileBytes,
                 tile_scales,
                 task.routed};
  begin_walk(shared, task.routed ? maps.gate_up : maps.shared_gate);
  if (!task.routed) {
    ask.choose_rows(0, task.first);
    ask.begin(works);
  }
  const float* logit_at = m.logits + task.row * m.experts + threadIdx.x;
  const float* from = m.x + task.row * m.hidden + warp * kSlice + lane * 8;
  float norm[8] = {};
  if (works) norm_of(p.b, warp * 32 + lane, norm);
  const uint32_t rows = min(step_row_count, p.rows);
  const uint32_t only = only_row(p, step);
  const bool left_out = task.row >= rows || (only != kAllRows && task.row != only);
  pin(logit_at), pin(from);
  stamps.take_place();
  depend();
  stamps.note(kWaited);
  release_next();  // not earlier: `down` reads the logits without waiting for this kernel
  if (task.routed && left_out) return;
  if (task.routed) {
    const float logit = exists ? __ldcg(logit_at) : 0.0f;
    float v[8] = {}, squares;
    if (works) load_eight_fresh(from, v);
    choose(logit, exists, m.top_k, shared.chosen);
    ask.choose_rows(min(shared.chosen.ids[task.slot], m.experts - 1), task.first);
    ask.begin(works);
    stamps.note(kAsked);
    const RowOperand x(make_normed(v, norm, squares));
    if (lane == 0) shared.squares[0][warp] = squares;
    walk_row(p, ask, x, ScalePlaces(ask.scales, m.gate_up, warp, kTileRows, ask.tile_scales / 2), works, shared);
  } else {
    const QuadOperand x = make_rows_operand(shared, from, m.hidden, works ? rows : 0, norm);
    stamps.note(kRead);
    walk_rows(p, ask, x, PairPlaces(ask.scales, m.gate_up, warp, kTileRows, ask.tile_scales / 2), works, shared);
  }
  stamps.note(kMultiplied);
  __syncthreads();
  if (warp != 0) return;
  const uint32_t row = task.routed ? 0 : lane / 8;
  const auto* h = reinterpret_cast<const float4*>(&shared.h[row][lane % 8 * 8]);
  const float4 a = h[0], b = h[1];
  const float eight[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
  const Piece piece = make_piece(eight);
  if (task.routed ? lane < 8 : row < rows) {
    put_piece(p.h, piece, (task.row + row) * p.b.slots() + task.slot, m.width / 64, task.first / 64);
  }
  if (p.b.inverse != nullptr && task.routed && task.slot == 0 && task.first == 0 && lane == 0) {
    p.b.inverse[task.row] = inverse_of(p.b, shared, 0);
  }
#endif
}

// blockIdx.x: 16 columns of y.
__global__ void __launch_bounds__(kWalkThreads, 2)
    down_walk(const __grid_constant__ DownMaps maps, const __grid_constant__ Walk p, const swy_step* step) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(kBoxAlignment) char dynamic[];
  __shared__ DownShared shared;
  Stamps stamps(kStampDown);
  const Mixture& m = p.b.m;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = blockIdx.x * kTileRows;
  const uint32_t tile_scales = scales_bytes(m.down, kTileRows);
  char* boxes = dynamic + warp * kDownRing * kTileBytes;
  char* scales = dynamic + kWalkWarps * kDownRing * kTileBytes + warp * kDownRing * tile_scales;
  if (lane == 0) {
    for (uint32_t i = 0; i < kDownRing; ++i) shared.arrived[warp][i].init();
    publish_barriers();
    prefetch_map(maps.down);
  }
  // What the router's kernel and earlier ones wrote is ready: gate_up_walk lets this kernel begin only after it has
  // waited for them itself.
  const uint32_t rows = min(step_rows(step, m.domain), p.rows), only = only_row(p, step);
  if (warp < p.rows) {  // without waiting for `rows`; loads take long while memory is busy
    const float mix = m.shared_width != 0 ? __ldcg(m.shared_p + warp) : 0.0f;
    choose_by_warp<kMostExperts / 32, true>(m.logits + warp * m.experts, m.experts, m.top_k, nullptr, shared.ids[warp],
                                            shared.above[warp]);
    if (lane == 0) shared.above[warp][m.top_k] = mix;
  }
  const uint32_t out_row = threadIdx.x / kTileRows, at = out_row * m.hidden + first + threadIdx.x % kTileRows;
  const float residual = out_row < p.rows && m.residual != nullptr ? __ldcg(m.residual + at) : 0.0f;
  __syncthreads();
  const DownItems items(p, rows, only);
  const auto ask = [&](uint32_t i) {
    const uint32_t slice = items.slice(i), slot = slice / items.per_slot, stage = i % kDownRing;
    const bool routed = slot < m.top_k;
    const uint32_t row =
        (routed ? min(static_cast<uint32_t>(shared.ids[items.row][slot]), m.experts - 1) * m.hidden : 0) + first;
    Asked& arrived = shared.arrived[warp][stage];
    arrived.expect(kTileBytes + tile_scales);
    arrived.ask(boxes + stage * kTileBytes, routed ? maps.down : maps.shared_down, slice % items.per_slot * kBoxBytes,
                row);
    arrived.ask_scales(reinterpret_cast<uint16_t*>(scales + stage * tile_scales), routed ? m.down : m.shared_down, row,
                       kTileRows);
  };
  for (uint32_t i = 0; lane == 0 && i < min(items.count, kDownRing); ++i) ask(i);
  stamps.note(kAsked);
  const uint4* words = p.h.words + (uint64_t{items.row} * p.b.h_slices() + items.first) * 32 + lane;
  const float2* of_group = p.h.scales + (uint64_t{items.row} * p.b.h_slices() + items.first) * 4 + lane % 4;
  uint32_t own = shared_at(boxes), in_box = lane_of_box();
  // A lane's factor of h: of a chosen expert or, behind these, of the shared one.
  const bool of_shared = lane == m.top_k;
  const float above = lane < m.top_k ? shared.above[items.row][lane] : -INFINITY;
  const float mix = of_shared ? shared.above[items.row][lane] : 0.0f, weight = choice_weight(above);
  float factor = of_shared ? mix : weight;
  pin(words), pin(of_group), pin(own), pin(in_box), pin(factor);
  stamps.take_place();
  depend();
  stamps.note(kWaited);
  uint4 next = make_uint4(0, 0, 0, 0);
  float2 of = make_float2(0, 0);
  const float inverse = p.b.inverse != nullptr ? __ldcg(p.b.inverse + items.row) : 1.0f;
  if (items.count != 0) next = __ldcg(words), of = __ldcg(of_group);
  if (p.b.inverse != nullptr) factor = factor_of_logits(above, mix, of_shared, inverse);
  float sum[2] = {};
  uint32_t stage = 0, parity = 0;
#pragma unroll 1
  for (uint32_t i = 0; i < items.count; ++i) {
    const uint32_t slice = items.slice(i), slot = slice / items.per_slot;
    const ScalePlaces places(scales + stage * tile_scales, m.down, slice % items.per_slot, kTileRows, 0);
    const float scale = of.x * __shfl_sync(kAll, factor, slot);
    const int start = __float_as_int(of.y);
    uint32_t b[4][2][2];
    operand_of(next, b);
    if (i + 1 < items.count) {
      next = __ldcg(words + (i + 1) * items.each * 32), of = __ldcg(of_group + (i + 1) * items.each * 4);
    }
    if (i == 0) stamps.note(kRead);
    barrier_wait(shared_at(&shared.arrived[warp][stage]), parity);
    if (i == 0) stamps.note(kArrived);
    if (i == p.release) release_next();
    float v[2];
    multiply_walked(own + stage * kTileBytes, in_box, places, places.at, b, scale, start, v);
    sum[0] += v[0], sum[1] += v[1];
    __syncwarp();  // every lane has read the tile
    if (lane == 0 && i + kDownRing < items.count) ask(i + kDownRing);
    if (++stage == kDownRing) stage = 0, parity ^= 1;
  }
  stamps.note(kMultiplied);
  const float mine = sum_lanes<2, 2>(sum);
  if (lane % 2 == 0) shared.parts[warp][lane % 4 / 2 * 8 + lane / 4] = mine;
  __syncthreads();
  if (out_row >= rows || (only != kAllRows && out_row != only)) return;
  float total = residual;
  const uint32_t of_row = only == kAllRows ? out_row * items.each : 0;
  for (uint32_t i = 0; i < items.each; ++i) total += shared.parts[of_row + i][threadIdx.x % kTileRows];
  m.y[at] = total;
#endif
}

uint32_t up_bytes(const Mixture& m) {
  return kBoxWarps * kUpRing * kTileBytes + kUpSlots * 2 * scales_bytes(m.gate_up, kTileRows);
}
uint32_t down_bytes(const Mixture& m) {
  return kWalkWarps * kDownRing * (kTileBytes + scales_bytes(m.down, kTileRows));
}

}  // namespace

bool routes_by_terms(const Mixture& m) {
  return m.router.dtype == SWY_BF16 && (m.shared_width == 0 || m.shared_mix.dtype == SWY_BF16);
}

swy_status record_walk_route(const Recording& r, const MixtureBoxes& b) {
  const uint32_t blocks = ceil_div(b.m.experts, kRouteRows) + (b.m.shared_width != 0 ? 1 : 0);
  return launch(r, route_walk, blocks, kTermThreads, sizeof(TermMemory<kRouteRows>), b, r.list.step);
}

// Products here know plain scales alone (slices_pair.cuh).
bool fits_walk(const swy_device& device, const MixtureBoxes& b) {
  const auto plain = [](const Weight& w) { return w.dtype == SWY_I4 && w.group == 64; };
  return plain(b.m.gate_up) && plain(b.m.down) && b.m.width % kPart == 0 &&
         up_bytes(b.m) <= device.features.block_memory / 2 && down_bytes(b.m) <= device.features.block_memory / 2;
}

swy_status record_walk(const Recording& r, const MixtureBoxes& b, uint32_t rows) {
  const Mixture& m = b.m;
  const uint32_t groups = m.width / 64;
  // With a warp's first tile, the next kernel's requests would be ahead of most of what `down` reads; with its third
  // one, that kernel would still lack requests when `down` ends. With three rows of one sequence `down` is so short
  // that the first tile is best.
  const uint32_t release = r.bucket().seqs == 1 && rows == 3 ? 0 : 1;
  Walk p{b, {}, rows, kWalkWarps / rows, m.shared_width != 0 ? m.width / kPart : 0, release, r.list.tokens};
  // The integers and their scales take the place of h in fp32, half of which they need.
  p.h.words = reinterpret_cast<uint4*>(m.h);
  p.h.scales = reinterpret_cast<float2*>(p.h.words + uint64_t{rows} * b.slots() * groups * 8);
  UpMaps up{};
  DownMaps down{};
  SWY_CUDA_TRY(map_boxes(m.gate_up, kTileRows, &up.gate_up, r.error));
  SWY_CUDA_TRY(map_boxes(m.down, kTileRows, &down.down, r.error));
  if (m.shared_width != 0) {
    SWY_CUDA_TRY(map_boxes(m.shared_gate, kTileRows, &up.shared_gate, r.error));
    SWY_CUDA_TRY(map_boxes(m.shared_up, kTileRows, &up.shared_up, r.error));
    SWY_CUDA_TRY(map_boxes(m.shared_down, kTileRows, &down.shared_down, r.error));
  }
  SWY_CUDA_TRY(launch(r, gate_up_walk, rows * m.top_k * (m.width / kPart) + p.shared_blocks, kBoxThreads, up_bytes(m),
                      up, p, r.list.step));
  return launch(r, down_walk, m.hidden / kTileRows, kWalkThreads, down_bytes(m), down, p, r.list.step);
}

}  // namespace gpu
