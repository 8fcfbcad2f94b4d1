// RMS_NORM_LINEAR, LINEAR and LINEAR_ADD of one row on Hopper (boxes.cuh).
//
// A block has some tiles of 16 rows, and all of their columns in shared memory before the previous kernels have ended.
// Further blocks have up to 16 rows of a plain weight each (the gates of the delta rule).
#include "linear_boxes.h"

#include <algorithm>

#include "projection.cuh"
#include "slices.cuh"

namespace gpu {
namespace {

constexpr uint32_t kMostTiles = 8, kPlainRows = 16;  // of a block
constexpr uint32_t kPlainWarps = kSliceWarps / 2;    // with different columns
constexpr uint32_t kMostWeights = 4;                 // quantized ones

__host__ __device__ inline uint32_t plain_blocks(uint32_t rows) { return (rows + kPlainRows - 1) / kPlainRows; }

struct Boxes {
  Projection p;  // first_task counts tiles, of quantized weights alone
  HeadNorm heads;
  uint32_t tiles;        // of a block
  uint32_t tile_blocks;  // the blocks before those of plain rows
  uint32_t scale_bytes;  // of a tile
  float per_dim;         // 1 over the elements that a norm is over
  Weight like;           // one of the quantized weights; all have the same encoding
  bool quantized[SWY_LINEAR_MAX_WEIGHTS];
  uint32_t map[SWY_LINEAR_MAX_WEIGHTS];

  __host__ __device__ uint32_t slices() const { return p.width / kSlice; }
};
__host__ __device__ inline uint32_t teams_of(uint32_t slices) { return slices <= kSliceWarps / 2 ? 2 : 1; }
struct Maps {
  CUtensorMap of[kMostWeights];
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Factors of this lane's eight elements of a slice; they need no input of the step.
template <bool kHeads>
__device__ inline void factors_of(const Boxes& b, uint32_t slice, float (&factors)[8]) {
  const uint32_t lane = threadIdx.x % 32;
  if constexpr (kHeads) {
    plain_eight(b.heads.weight, lane % (b.heads.dim / 8), factors);
  } else {
#pragma unroll
    for (int j = 0; j < 8; ++j) factors[j] = 1.0f - b.p.bias;
    if (b.p.normed) plain_eight(b.p.norm, slice * 32 + lane, factors);
#pragma unroll
    for (int j = 0; j < 8; ++j) factors[j] += b.p.bias;
  }
}

// The eight elements in the form that products need; adds the squares of the whole slice to `squares`.
template <bool kHeads>
__device__ inline void finish_eight(const Boxes& b, const float (&factors)[8], const float (&z)[8], float (&v)[8],
                                    float& squares) {
  float sum = 0, scale = 1;
#pragma unroll
  for (int j = 0; j < 8; ++j) sum = fmaf(v[j], v[j], sum);
  if constexpr (kHeads) {
#pragma unroll
    for (uint32_t d = 1; d < 32; d *= 2) {
      if (d < b.heads.dim / 8) sum += __shfl_xor_sync(kAll, sum, d);
    }
    scale = rsqrtf(fmaf(sum, b.per_dim, b.heads.eps));
  } else if (b.p.normed) {
    squares += warp_sum(sum);
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    v[j] *= factors[j];
    if (kHeads) v[j] *= scale * quick_silu(z[j]);
  }
}

// The work of a warp: one slice of some of the block's tiles. With few slices, two teams of warps have half of the
// tiles each.
template <uint32_t kTeams>
struct Share {
  static constexpr uint32_t kColumns = kSliceWarps / kTeams;
  uint32_t slice, begin, count;

  __device__ Share(uint32_t slices, uint32_t tiles) {
    const uint32_t warp = threadIdx.x / 32, half = (tiles + kTeams - 1) / kTeams;
    slice = warp % kColumns;
    begin = min(warp / kColumns * half, tiles);
    count = min(half, tiles - begin);
    exists = slice < slices;
  }
  bool exists;  // the slice
};

// A warp's requests: `count` tiles from `tile` on, of its slice, to `boxes`.
struct SliceBoxes {
  char* boxes;
  uint32_t slice, tile, count;
  Asked& arrived;

  __device__ void ask(const Maps& maps, const Boxes& b, uint32_t i) const {
    const uint32_t w = weight_of_task(b.p, tile + i);
    arrived.expect(kTileBytes);
    arrived.ask(boxes + i * kTileBytes, maps.of[b.map[w]], slice * kBoxBytes,
                (tile + i - b.p.first_task[w]) * kTileRows);
  }
};

// Each warp requests its first tile, the first warp also the scales of all.
__device__ inline void begin_tiles(const Maps& maps, const Boxes& b, const SliceBoxes& own, uint32_t first,
                                   uint32_t tiles, char* scales, Asked& scales_arrived) {
  const Projection& p = b.p;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (lane == 0) {
    own.arrived.init();
    if (warp == 0) scales_arrived.init();
    publish_barriers();
    if (own.count != 0) own.ask(maps, b, 0);
    if (warp == 0) scales_arrived.expect(tiles * b.scale_bytes);
  }
  __syncwarp();
  if (warp == 0 && lane < tiles) {
    const uint32_t w = weight_of_task(p, first + lane);
    scales_arrived.ask_scales(reinterpret_cast<uint16_t*>(scales + lane * b.scale_bytes), p.weights[w],
                              uint64_t{first + lane - p.first_task[w]} * kTileRows, kTileRows);
  }
  __syncthreads();  // all barriers are initialised
}
// Requests each further tile when the previous one has arrived: with all of them in transfer, the previous kernel's
// reads of activations would be delayed.
__device__ inline void ask_for_others(const Maps& maps, const Boxes& b, const SliceBoxes& own) {
#pragma unroll 1
  for (uint32_t i = 1; i < own.count; ++i) {
    barrier_wait(shared_at(&own.arrived), (i - 1) & 1);
    __syncwarp();
    if (threadIdx.x % 32 == 0) own.ask(maps, b, i);
  }
}

// The output that thread 4 r writes row r of the block to; null for other threads.
__device__ inline float* place_of_row(const Boxes& b, uint32_t first, uint32_t tiles) {
  const uint32_t row = threadIdx.x / 4;
  if (threadIdx.x % 4 != 0 || row >= tiles * kTileRows) return nullptr;
  const uint32_t w = weight_of_task(b.p, first + row / kTileRows);
  return b.p.y[w] + ((first - b.p.first_task[w]) * kTileRows + row);  // the block's rows may begin before it
}

template <bool kHeads, uint32_t kTeams>
__device__ void multiply_block(const Maps& maps, const Boxes& b, const swy_step* step, char* dynamic) {
  __shared__ Asked arrived[kSliceWarps], scales_arrived;
  __shared__ __align__(16) float squares_of[kSliceWarps];
  const Projection& p = b.p;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t first = blockIdx.x * b.tiles, tiles = min(b.tiles, p.first_task[p.count] - first);
  const Share<kTeams> mine(b.slices(), tiles);
  Stamps stamps(kHeads ? kStampHeads : p.normed ? kStampNormed : kStampPlain);
  char* boxes = first_box(dynamic);  // [slice][tile]
  char* scales = boxes + Share<kTeams>::kColumns * b.tiles * kTileBytes;
  const SliceBoxes asked{boxes + (mine.slice * b.tiles + mine.begin) * kTileBytes, mine.slice, first + mine.begin,
                         mine.exists ? mine.count : 0, arrived[warp]};
  if (!kHeads) release_next();
  begin_tiles(maps, b, asked, first, tiles, scales, scales_arrived);
  stamps.note(kAsked);
  const bool empty = step_rows(step, p.domain) == 0;  // writes nothing, but requested data must arrive
  float factors[8];
  if (mine.exists) factors_of<kHeads>(b, mine.slice, factors);
  float* to = empty ? nullptr : place_of_row(b, first, tiles);
  const float* added =
      to == nullptr || p.residual == nullptr ? nullptr : p.residual + first * kTileRows + threadIdx.x / 4;
  const float* from = p.x + mine.slice * kSlice + lane * 8;
  const float* gate = kHeads ? b.heads.z + mine.slice * kSlice + lane * 8 : from;
  uint32_t own = shared_at(boxes) + (mine.slice * b.tiles + mine.begin) * kTileBytes, in_box = lane_of_box();
  uint32_t share = share_of_lane(), joined = shares_of_row(shared_at(boxes)), apart = b.tiles * kTileBytes;
  uint32_t count = mine.exists ? mine.count : 0, tiles_at = shared_at(&arrived[warp]),
           scales_at = shared_at(&scales_arrived);
  const ScalePlaces places(scales + mine.begin * b.scale_bytes, b.like, mine.slice, kTileRows, b.scale_bytes / 2);
  if (!mine.exists) clear_shares(own, share, mine.count);
  pin(own), pin(in_box), pin(share), pin(joined), pin(apart), pin(count), pin(tiles_at), pin(scales_at);
  pin(to), pin(added), pin(from), pin(gate);
  if (kHeads) release_next();  // earlier, the router would take the room that gate_up needs
  ask_for_others(maps, b, asked);
  stamps.take_place();
  depend();
  stamps.note(kWaited);
  float squares = 0;
  const float residual = added != nullptr ? __ldcg(added) : 0.0f;
  if (count != 0) {
    float v[8], z[8] = {};
    load_eight_fresh(from, v);
    if (kHeads) load_eight_fresh(gate, z);
    barrier_wait(scales_at, 0);
    LaneScales<1> of;
    of.load(places, 0);
    barrier_wait(tiles_at, (count - 1) & 1);
    stamps.note(kArrived);
    finish_eight<kHeads>(b, factors, z, v, squares);
    const Operand x = make_operand(v, 1.0f);
    stamps.note(kRead);
#pragma unroll 1
    for (uint32_t i = 0; i < count; ++i) {
      if (i != 0) of.load(places, i);
      multiply_slice<1>(own + i * kTileBytes, in_box, share, of, places, i, x, 1);
    }
  }
  stamps.note(kMultiplied);
  if (!kHeads && lane == 0) squares_of[warp] = warp < Share<kTeams>::kColumns ? squares : 0.0f;
  __syncthreads();
  if (threadIdx.x / 4 >= tiles * kTileRows) return;  // whole warps
  const float sum = join_shares<Share<kTeams>::kColumns>(joined, apart);
  if (to != nullptr) {
    *to = fmaf(sum, !kHeads && p.normed ? inverse_root(squares_of, b.per_dim, p.eps) : 1.0f, residual);
  }
  stamps.end();
}

// Up to 16 rows of one plain weight. Warps share the columns as above; the second half of the warps has the second half
// of the rows.
__device__ void multiply_plain(const Boxes& b, const swy_step* step) {
  constexpr uint32_t kWarpRows = kPlainRows / 2;
  __shared__ float part[kPlainWarps * kPlainRows];
  __shared__ __align__(16) float squares_of[kSliceWarps];
  const Projection& p = b.p;
  const uint32_t warp = threadIdx.x / 32 % kPlainWarps, half = threadIdx.x / 32 / kPlainWarps, lane = threadIdx.x % 32;
  Stamps stamps(kStampGates);
  uint32_t w = 0, block = blockIdx.x - b.tile_blocks;
  while (b.quantized[w] || block >= plain_blocks(p.weights[w].rows)) {
    if (!b.quantized[w]) block -= plain_blocks(p.weights[w].rows);
    ++w;
  }
  const Weight& weight = p.weights[w];
  const uint32_t first = block * kPlainRows, rows = min(kPlainRows, weight.rows - first), own = half * kWarpRows;
  const bool works = warp < b.slices(), early = weight.dtype == SWY_BF16;
  uint4 pieces[kWarpRows] = {};
#pragma unroll
  for (uint32_t r = 0; r < kWarpRows; ++r) {
    if (works && early && own + r < rows)
      pieces[r] = load_piece(weight.data + ((first + own + r) * p.width / 8 + warp * 32 + lane) * 16);
  }
  float factors[8] = {}, v[8] = {};  // 0 for slices that do not exist
  if (works) factors_of<false>(b, warp, factors);
  const bool empty = step_rows(step, p.domain) == 0;
  release_next();
  stamps.take_place();
  depend();
  stamps.note(kWaited);
  if (works && !empty) load_eight_fresh(p.x + warp * kSlice + lane * 8, v);
  float squares = 0, sum[kWarpRows];
  const float none[8] = {};
  finish_eight<false>(b, factors, none, v, squares);
#pragma unroll
  for (uint32_t r = 0; r < kWarpRows; ++r) {
    float of[8] = {};
    if (early) {
      unpack_eight(pieces[r], of);
    } else if (works && own + r < rows) {
      plain_eight(weight, (first + own + r) * p.width / 8 + warp * 32 + lane, of);
    }
    sum[r] = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) sum[r] = fmaf(v[j], of[j], sum[r]);
  }
  const float mine = sum_lanes<kWarpRows, 16>(sum);
  if (lane % 4 == 0) part[warp * kPlainRows + own + lane / 4] = mine;
  if (lane == 0) squares_of[threadIdx.x / 32] = half == 0 ? squares : 0.0f;
  __syncthreads();
  if (threadIdx.x >= rows || empty) return;
  const float residual = p.residual == nullptr ? 0.0f : __ldcg(p.residual + first + threadIdx.x);
  float total = 0;
#pragma unroll
  for (uint32_t i = 0; i < kPlainWarps; ++i) total += part[i * kPlainRows + threadIdx.x];
  p.y[w][first + threadIdx.x] = fmaf(total, p.normed ? inverse_root(squares_of, b.per_dim, p.eps) : 1.0f, residual);
  stamps.end();
}
#endif

template <bool kHeads, uint32_t kTeams>
__global__ void __launch_bounds__(kBesideThreads, 2)
    linear_boxes(const __grid_constant__ Maps maps, const __grid_constant__ Boxes b, const swy_step* step) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ char dynamic[];
  if (blockIdx.x < b.tile_blocks) {
    multiply_block<kHeads, kTeams>(maps, b, step, dynamic);
  } else if constexpr (!kHeads && kTeams == 2) {
    multiply_plain(b, step);
  }
#endif
}

// Tiles per block: as many as it takes for all blocks to run at once.
uint32_t tiles_per_block(const swy_device& device, uint32_t tiles, uint32_t others) {
  const auto all = static_cast<uint32_t>(device.processors);
  return ceil_div(tiles, all > others ? all - others : 1);
}

uint32_t shared_bytes(uint32_t slices, uint32_t tiles, uint32_t scale_bytes) {
  return 1024 + (kSliceWarps / teams_of(slices) * kTileBytes + scale_bytes) * tiles;
}

double cost(const swy_op& op, const swy_bucket&) {
  double bytes = 0;
  for (uint32_t i = 0; i < op.weight_count; ++i) bytes += weight_bytes(*op.weights[i]);
  return 2.0 + bytes / 3.6e6;
}

swy_status supports(const swy_device& device, const swy_op& op, const swy_bucket&, swy_error* error) {
  return supports_boxes(device, op, op.id == SWY_OP_RMS_NORM_LINEAR ? 1 : 0, error);
}
swy_status record(const Recording& r) { return record_boxes(r, linear_projection(r), nullptr); }

constexpr Kernel kernel(const char* name, uint32_t op) {
  return {name, op, kAlways, SWY_BF16, supports, cost, nullptr, record};
}
constexpr Kernel kKernels[] = {kernel("linear.boxes", SWY_OP_LINEAR), kernel("linear_add.boxes", SWY_OP_LINEAR_ADD),
                               kernel("rms_norm_linear.boxes", SWY_OP_RMS_NORM_LINEAR)};

}  // namespace

swy_status supports_boxes(const swy_device& device, const swy_op& op, uint32_t first_weight, swy_error* error) {
  if (op.inputs[0]->dims[0] != 1) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "serves steps with one row");
  }
  if (!is_hopper(device)) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "needs tensor maps (compute capability 9.0)");
  }
  const auto width = static_cast<uint32_t>(op.inputs[0]->dims[1]);
  uint32_t tiles = 0, others = 0, quantized = 0;
  Weight like{};
  for (uint32_t i = first_weight; i < op.weight_count; ++i) {
    const Weight w = weight_of(*op.weights[i], nullptr);
    if (!is_quantized(w.dtype)) {
      others += plain_blocks(w.rows);
      continue;
    }
    if (quantized++ == 0) like = w;
    if (!in_boxes(w) || w.dtype != like.dtype || w.groups != like.groups) {
      return swy::fail(
          error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
          "weight %u (%u x %u) is not, like the others, of 4 bits in tiles of 16 x 256 and groups of 64 or "
          "a multiple",
          i, w.rows, w.width);
    }
    tiles += w.rows / kTileRows;
  }
  const uint32_t each = tiles_per_block(device, tiles, others);
  if (quantized == 0 || quantized > kMostWeights || each > kMostTiles || width > kSliceWarps * kSlice ||
      (others != 0 && width > kPlainWarps * kSlice) ||
      shared_bytes(width / kSlice, each, scales_bytes(like, kTileRows)) > device.block_memory / 2) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                     "%u tiles of 16 rows of %u columns, and %u blocks of plain rows, do not fit the device", tiles,
                     width, others);
  }
  return SWY_OK;
}

swy_status record_boxes(const Recording& r, const Projection& p, const HeadNorm* heads) {
  Boxes b{};
  Maps maps{};
  b.p = p;
  if (heads != nullptr) b.heads = *heads;
  uint32_t next = 0, others = 0;
  for (uint32_t i = 0; i < p.count; ++i) {
    const Weight& w = p.weights[i];
    b.quantized[i] = is_quantized(w.dtype);
    b.p.first_task[i + 1] = b.p.first_task[i] + (b.quantized[i] ? w.rows / kTileRows : 0);
    if (!b.quantized[i]) {
      others += plain_blocks(w.rows);
      continue;
    }
    b.like = w;
    b.scale_bytes = scales_bytes(w, kTileRows);
    b.map[i] = next;
    SWY_CUDA_TRY(map_boxes(w, kTileRows, &maps.of[next++], r.error));
  }
  const uint32_t tiles = b.p.first_task[p.count];
  b.tiles = tiles_per_block(r.device(), tiles, others);
  b.per_dim = 1.0f / static_cast<float>(heads != nullptr ? heads->dim : p.width);
  b.tile_blocks = ceil_div(tiles, b.tiles);
  const uint32_t blocks = b.tile_blocks + others;
  const uint32_t needed = shared_bytes(b.slices(), b.tiles, b.scale_bytes), shared = std::max(needed, kAlone);
  const auto go = [&](auto kernel) { return launch(r, kernel, blocks, kSliceThreads, shared, maps, b, r.list.step); };
  const auto teams = [&]<bool kHeads>() {
    return teams_of(b.slices()) == 2 ? go(linear_boxes<kHeads, 2>) : go(linear_boxes<kHeads, 1>);
  };
  return heads != nullptr ? teams.template operator()<true>() : teams.template operator()<false>();
}

std::span<const Kernel> linear_boxes_kernels() { return kKernels; }

}  // namespace gpu
