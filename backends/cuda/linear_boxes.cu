// RMS_NORM_LINEAR, LINEAR and LINEAR_ADD of one row on Hopper (boxes.cuh).
//
// A block has some tiles of 16 rows, and all of their columns in shared memory before the kernels in front have ended.
// The blocks behind those have up to 16 rows of a plain weight each (the gates of the delta rule).
#include "linear_boxes.h"

#include <algorithm>

#include "boxes.cuh"
#include "projection.cuh"

namespace gpu {
namespace {

constexpr uint32_t kMostTiles = 8, kPlainRows = 16;  // of a block
constexpr uint32_t kMostWeights = 4;                 // quantized ones

__host__ __device__ inline uint32_t plain_blocks(uint32_t rows) { return (rows + kPlainRows - 1) / kPlainRows; }

struct Boxes {
  Projection p;  // first_task counts tiles, of quantized weights alone
  HeadNorm heads;
  uint32_t tiles;        // of a block
  uint32_t tile_blocks;  // the blocks before those of plain rows
  uint32_t scale_bytes;  // of a tile
  Weight like;           // one of the quantized weights: all are of one encoding
  bool quantized[SWY_LINEAR_MAX_WEIGHTS];
  uint32_t map[SWY_LINEAR_MAX_WEIGHTS];

  __host__ __device__ uint32_t slices() const { return p.width / kSlice; }
};
struct Maps {
  CUtensorMap of[kMostWeights];
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// What this lane's eight elements of a slice are multiplied by, before anything is known of them.
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

// The eight elements as the product takes them; adds their squares to `squares`.
template <bool kHeads>
__device__ inline void finish_eight(const Boxes& b, const float (&factors)[8], const float (&z)[8], float (&v)[8],
                                    float& squares) {
  float sum = 0, scale = 1;
#pragma unroll
  for (int j = 0; j < 8; ++j) sum = fmaf(v[j], v[j], sum);
  squares += sum;
  if constexpr (kHeads) {
    for (uint32_t d = 1; d < b.heads.dim / 8; d *= 2) sum += __shfl_xor_sync(kAll, sum, d);
    scale = rsqrtf(sum / static_cast<float>(b.heads.dim) + b.heads.eps);
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    v[j] *= factors[j];
    if (kHeads) v[j] *= scale * fast_silu(z[j]);
  }
}

// Adds up what the warps have of the block's rows, and writes them: rows from `row` on of output w.
template <bool kHeads>
__device__ inline void write_rows(const Boxes& b, const float* part, uint32_t stride, const float (&squares)[kBoxWarps],
                                  uint32_t w, uint32_t row, float residual) {
  float sum = 0, total = 0;
#pragma unroll
  for (uint32_t i = 0; i < kBoxWarps; ++i) {
    if (i < b.slices()) sum += part[i * stride + threadIdx.x];
    total += squares[i];
  }
  const bool normed = !kHeads && b.p.normed;
  const float inverse = normed ? rsqrtf(total / static_cast<float>(b.p.width) + b.p.eps) : 1.0f;
  b.p.y[w][row] = fmaf(sum, inverse, residual);
}

// Each warp asks for its slices of all tiles, the first one for the scales as well.
__device__ inline void ask_for_tiles(const Maps& maps, const Boxes& b, uint32_t first, uint32_t tiles, char* boxes,
                                     char* scales, Asked (&arrived)[kBoxWarps], Asked& scales_arrived) {
  const Projection& p = b.p;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, slices = b.slices();
  if (threadIdx.x == 0) {
    for (uint32_t w = 0; w < kBoxWarps; ++w) arrived[w].init();
    scales_arrived.init();
    publish_barriers();
  }
  __syncthreads();
  const uint32_t mine = warp < slices ? (slices - warp + kBoxWarps - 1) / kBoxWarps : 0;
  if (lane == 0) arrived[warp].expect(mine * tiles * kTileBytes);
  if (threadIdx.x == 0) scales_arrived.expect(tiles * b.scale_bytes);
  __syncwarp();
  for (uint32_t i = lane; i < mine * tiles; i += 32) {
    const uint32_t slice = warp + i / tiles * kBoxWarps, tile = i % tiles, w = weight_of_task(p, first + tile);
    arrived[warp].ask(boxes + (slice * b.tiles + tile) * kTileBytes, maps.of[b.map[w]], slice * kBoxBytes,
                      (first + tile - p.first_task[w]) * kTileRows);
  }
  for (uint32_t i = lane; warp == 0 && i < tiles; i += 32) {
    const uint32_t w = weight_of_task(p, first + i);
    scales_arrived.ask_scales(reinterpret_cast<uint16_t*>(scales + i * b.scale_bytes), p.weights[w],
                              uint64_t{first + i - p.first_task[w]} * kTileRows, kTileRows);
  }
}

template <bool kHeads, int N>
__device__ void multiply_block(const Maps& maps, const Boxes& b, const swy_step* step, char* dynamic) {
  __shared__ Asked arrived[kBoxWarps], scales_arrived;
  __shared__ float squares_of[kBoxWarps];
  __shared__ uint4 scratch[kBoxWarps][32];
  const Projection& p = b.p;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, slices = b.slices();
  const uint32_t first = blockIdx.x * b.tiles, tiles = min(b.tiles, p.first_task[p.count] - first);
  Stamps stamps(kHeads ? kStampHeads : p.normed ? kStampNormed : kStampPlain);
  char* boxes = first_box(dynamic);  // [slice][tile]
  char* scales = boxes + slices * b.tiles * kTileBytes;
  auto* part = reinterpret_cast<float*>(scales + b.tiles * b.scale_bytes);  // [warp][row]
  ask_for_tiles(maps, b, first, tiles, boxes, scales, arrived, scales_arrived);
  stamps.note(kAsked);
  const bool empty = step_rows(step, p.domain) == 0;  // nothing is given out, but what was asked for must come
  float factors[8];
  if (warp < slices) factors_of<kHeads>(b, warp, factors);
  release_next();
  stamps.take_place();
  depend();
  stamps.note(kWaited);
  const float* from = p.x + lane * 8;
  float squares = 0;
  const bool added = p.residual != nullptr && threadIdx.x < tiles * kTileRows && !empty;
  const float residual = added ? __ldcg(p.residual + first * kTileRows + threadIdx.x) : 0.0f;
#pragma unroll 1
  for (uint32_t slice = warp; slice < slices; slice += kBoxWarps) {
    float v[8] = {}, z[8] = {};
    if (!empty) {
      load_eight_fresh(from + slice * kSlice, v);
      if (kHeads) load_eight_fresh(b.heads.z + slice * kSlice + lane * 8, z);
    }
    if (!kHeads && slice != warp) factors_of<kHeads>(b, slice, factors);
    finish_eight<kHeads>(b, factors, z, v, squares);
    const SliceX x = make_slice(v, 1.0f, scratch[warp]);
    if (slice == warp) {
      stamps.note(kRead);
      arrived[warp].wait();
      scales_arrived.wait();
      stamps.note(kArrived);
    }
    TileScales of(scales, b.like, slice, kTileRows, b.scale_bytes / 2);
#pragma unroll 1
    for (uint32_t i = 0; i < tiles; i += N, of.scales += N * of.next) {
      float sum[N][2];
      multiply_tiles<N>(boxes + (slice * b.tiles + i) * kTileBytes, of, x, sum);
      give<N>(sum, part + (warp * b.tiles + i) * kTileRows, tiles - i, slice != warp);
    }
  }
  stamps.note(kMultiplied);
  keep_square(squares, squares_of);
  __syncthreads();
  if (threadIdx.x >= tiles * kTileRows || empty) return;
  const uint32_t w = weight_of_task(p, first + threadIdx.x / kTileRows);
  write_rows<kHeads>(b, part, b.tiles * kTileRows, squares_of, w, (first - p.first_task[w]) * kTileRows + threadIdx.x,
                     residual);
  stamps.end();
}

// Up to 16 rows of one plain weight; warps share the columns, as above.
__device__ void multiply_plain(const Boxes& b, const swy_step* step) {
  __shared__ float part[kBoxWarps * kPlainRows], squares_of[kBoxWarps];
  const Projection& p = b.p;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Stamps stamps(kStampGates);
  uint32_t w = 0, block = blockIdx.x - b.tile_blocks;
  while (b.quantized[w] || block >= plain_blocks(p.weights[w].rows)) {
    if (!b.quantized[w]) block -= plain_blocks(p.weights[w].rows);
    ++w;
  }
  const Weight& weight = p.weights[w];
  const uint32_t first = block * kPlainRows, rows = min(kPlainRows, weight.rows - first);
  const bool works = warp < b.slices(), early = weight.dtype == SWY_BF16;
  uint4 pieces[kPlainRows] = {};
#pragma unroll
  for (uint32_t r = 0; r < kPlainRows; ++r) {
    if (works && early && r < rows)
      pieces[r] = load_piece(weight.data + ((first + r) * p.width / 8 + warp * 32 + lane) * 16);
  }
  float factors[8], v[8] = {};
  if (works) factors_of<false>(b, warp, factors);
  const bool empty = step_rows(step, p.domain) == 0;
  stamps.take_place();
  depend();
  stamps.note(kWaited);
  release_next();
  if (works && !empty) load_eight_fresh(p.x + warp * kSlice + lane * 8, v);
  float squares = 0, sum[kPlainRows];
  const float none[8] = {};
  finish_eight<false>(b, factors, none, v, squares);
#pragma unroll
  for (uint32_t r = 0; r < kPlainRows; ++r) {
    float of[8] = {};
    if (early) {
      unpack_eight(pieces[r], of);
    } else if (works && r < rows) {
      plain_eight(weight, (first + r) * p.width / 8 + warp * 32 + lane, of);
    }
    sum[r] = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) sum[r] = fmaf(v[j], of[j], sum[r]);
  }
  const float mine = sum_lanes<kPlainRows, 16>(sum);
  if (lane % 2 == 0) part[warp * kPlainRows + lane / 2] = mine;
  squares = warp_sum(squares);
  if (lane == 0) squares_of[warp] = squares;
  __syncthreads();
  if (threadIdx.x >= rows || empty) return;
  const float residual = p.residual == nullptr ? 0.0f : __ldcg(p.residual + first + threadIdx.x);
  write_rows<false>(b, part, kPlainRows, squares_of, w, first + threadIdx.x, residual);
  stamps.end();
}
#endif

template <bool kHeads, int N>
__global__ void __launch_bounds__(kBoxThreads, 2)
    linear_boxes(const __grid_constant__ Maps maps, const __grid_constant__ Boxes b, const swy_step* step) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ char dynamic[];
  if (blockIdx.x < b.tile_blocks) {
    multiply_block<kHeads, N>(maps, b, step, dynamic);
  } else {
    multiply_plain(b, step);
  }
#endif
}

// Tiles per block: as many as let all blocks be there at once.
uint32_t tiles_per_block(const swy_device& device, uint32_t tiles, uint32_t others) {
  const auto all = static_cast<uint32_t>(device.processors);
  return ceil_div(tiles, all > others ? all - others : 1);
}

// Tiles that a warp multiplies at once: products of one alone wait for each other.
uint32_t at_once(uint32_t tiles) { return std::min(tiles == 4 ? 2 : tiles, 3u); }

uint32_t shared_bytes(uint32_t slices, uint32_t tiles, uint32_t scale_bytes) {
  const uint32_t beyond = (at_once(tiles) - tiles % at_once(tiles)) % at_once(tiles);  // is read, and dropped
  return 1024 + (slices * tiles + beyond) * kTileBytes + (tiles + beyond) * scale_bytes +
         kBoxWarps * tiles * kTileRows * 4;
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
  if (quantized == 0 || quantized > kMostWeights || each > kMostTiles || (others != 0 && width > kBoxWarps * kSlice) ||
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
  b.tile_blocks = ceil_div(tiles, b.tiles);
  const uint32_t blocks = b.tile_blocks + others;
  const uint32_t needed = shared_bytes(b.slices(), b.tiles, b.scale_bytes), shared = std::max(needed, kAlone);
  const auto go = [&](auto kernel) { return launch(r, kernel, blocks, kBoxThreads, shared, maps, b, r.list.step); };
  const uint32_t n = at_once(b.tiles);
  if (heads != nullptr)
    return n == 1 ? go(linear_boxes<true, 1>) : n == 2 ? go(linear_boxes<true, 2>) : go(linear_boxes<true, 3>);
  return n == 1 ? go(linear_boxes<false, 1>) : n == 2 ? go(linear_boxes<false, 2>) : go(linear_boxes<false, 3>);
}

std::span<const Kernel> linear_boxes_kernels() { return kKernels; }

}  // namespace gpu
