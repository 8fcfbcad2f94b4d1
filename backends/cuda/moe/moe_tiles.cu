// SPDX-License-Identifier: Apache-2.0
// MOE, MOE_ADD and EXPERTS for many rows, on tensor cores (tiles.cuh): the pairs of a row and an expert are sorted by
// expert on the device, and each expert multiplies its rows in tiles.
#include "common/tiles.cuh"
#include "moe.cuh"

namespace gpu {
namespace {

constexpr int kPairs = 32;  // rows of activations per tile
constexpr uint32_t kSortThreads = 1024, kMostExperts = 1024;

struct Sorted {
  uint32_t* row;    // [pairs]: the row that a sorted pair belongs to
  uint32_t* place;  // [rows, top_k]: where a pair went
  uint4* tiles;     // expert, first sorted pair, pairs
  uint32_t* count;  // of tiles
};

struct TileMixture {
  Mixture m;
  Sorted sorted;
  const uint16_t* x;   // [rows, permuted hidden]
  uint16_t* h;         // [pairs, permuted width]
  uint16_t* h_shared;  // [rows, permuted shared width]
  float* pairs;        // [pairs, hidden]
  float* shared;       // [rows, hidden]
};

// One block: counts, where each expert's pairs begin, its tiles, and the pairs' places.
__global__ void __launch_bounds__(kSortThreads)
    sort_pairs(const __grid_constant__ TileMixture p, const swy_step* step) {
  __shared__ uint32_t counts[kMostExperts], begins[kMostExperts], tiles[kMostExperts];
  depend();
  release_next();
  const uint32_t pairs = step_rows(step, p.m.domain) * p.m.top_k;
  for (uint32_t e = threadIdx.x; e < p.m.experts; e += kSortThreads) counts[e] = 0;
  __syncthreads();
  const auto expert_of = [&](uint32_t i) { return min(static_cast<uint32_t>(p.m.ids[i]), p.m.experts - 1); };
  for (uint32_t i = threadIdx.x; i < pairs; i += kSortThreads) atomicAdd(counts + expert_of(i), 1u);
  __syncthreads();
  if (threadIdx.x < 32) {  // one warp sums up
    uint32_t begin = 0, tile = 0;
    for (uint32_t first = 0; first < p.m.experts; first += 32) {
      const uint32_t e = first + threadIdx.x, n = e < p.m.experts ? counts[e] : 0, k = (n + kPairs - 1) / kPairs;
      uint32_t sum = n, sum_tiles = k;
#pragma unroll
      for (int d = 1; d < 32; d *= 2) {
        const uint32_t a = __shfl_up_sync(kAll, sum, d), b = __shfl_up_sync(kAll, sum_tiles, d);
        if (threadIdx.x >= static_cast<uint32_t>(d)) sum += a, sum_tiles += b;
      }
      if (e < p.m.experts) begins[e] = begin + sum - n, tiles[e] = tile + sum_tiles - k;
      begin += __shfl_sync(kAll, sum, 31);
      tile += __shfl_sync(kAll, sum_tiles, 31);
    }
    if (threadIdx.x == 0) *p.sorted.count = tile;
  }
  __syncthreads();
  for (uint32_t e = threadIdx.x; e < p.m.experts; e += kSortThreads) {
    for (uint32_t i = 0; i * kPairs < counts[e]; ++i) {
      p.sorted.tiles[tiles[e] + i] =
          make_uint4(e, begins[e] + i * kPairs, min(counts[e] - i * kPairs, static_cast<uint32_t>(kPairs)), 0);
    }
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < pairs; i += kSortThreads) {
    const uint32_t at = atomicAdd(begins + expert_of(i), 1u);
    p.sorted.row[at] = i / p.m.top_k;
    p.sorted.place[i] = at;
  }
}

// The work of a block: a tile of the table, or of all rows for the shared expert.
__device__ inline uint4 tile_of(const TileMixture& p, bool routed, const swy_step* step) {
  if (routed) return blockIdx.y < *p.sorted.count ? p.sorted.tiles[blockIdx.y] : make_uint4(0, 0, 0, 0);
  const uint32_t rows = step_rows(step, p.m.domain), first = blockIdx.y * kPairs;
  return make_uint4(0, first, first < rows ? min(rows - first, static_cast<uint32_t>(kPairs)) : 0, 0);
}

// h = act(gate, up). blockIdx.x: 64 rows of gate and of up; blockIdx.y: tile.
template <swy_dtype kDtype>
__global__ void __launch_bounds__(kTileThreads)
    gate_up_tiles(const __grid_constant__ TileMixture p, bool routed, const swy_step* step) {
  extern __shared__ uint4 shared[];
  __shared__ uint32_t source[kPairs];
  depend();
  release_next();
  const uint4 tile = tile_of(p, routed, step);
  if (tile.z == 0) return;
  if (threadIdx.x < kPairs) {
    const uint32_t at = tile.y + min(threadIdx.x, tile.z - 1);
    source[threadIdx.x] = routed ? p.sorted.row[at] : at;
  }
  __syncthreads();
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const uint32_t width = routed ? p.m.width : p.m.shared_width, base = blockIdx.x * 64 + warp * 16;
  const Weight &gate = routed ? p.m.gate_up : p.m.shared_gate, &up = routed ? p.m.gate_up : p.m.shared_up;
  const uint64_t first_gate = routed ? uint64_t{tile.x} * 2 * width : 0, first_up = routed ? first_gate + width : 0;
  float acc[2][kPairs / 8][4] = {};
  multiply_tile<kDtype, kPairs>(gate, first_gate + base, up, first_up + base, first_gate + width - 1,
                                first_up + width - 1, {p.x, permuted_width(p.m.hidden)}, source, tile.z,
                                reinterpret_cast<char*>(shared), acc);
  uint16_t* h = routed ? p.h : p.h_shared;
#pragma unroll
  for (int n = 0; n < kPairs / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t row = base + g + (i / 2) * 8, pair = n * 8 + t * 2 + i % 2;
      if (row >= permuted_width(width) || pair >= tile.z) continue;
      float v = 0;
      if (row < width) {
        const Bias& bias = routed ? p.m.gate_up_bias : Bias{};
        v = activated(p.m.act, acc[0][n][i] + bias_at(bias, first_gate + row),
                      acc[1][n][i] + bias_at(bias, first_up + row));
      }
      h[uint64_t{tile.y + pair} * permuted_width(width) + permuted_index(row)] =
          __bfloat16_as_ushort(__float2bfloat16_rn(v));
    }
  }
}

// Each expert's results for its pairs. blockIdx.x: 128 rows of down; blockIdx.y: tile.
template <swy_dtype kDtype>
__global__ void __launch_bounds__(kTileThreads)
    down_tiles(const __grid_constant__ TileMixture p, bool routed, const swy_step* step) {
  extern __shared__ uint4 shared[];
  __shared__ uint32_t source[kPairs];
  depend();
  release_next();
  const uint4 tile = tile_of(p, routed, step);
  if (tile.z == 0) return;
  if (threadIdx.x < kPairs) source[threadIdx.x] = tile.y + min(threadIdx.x, tile.z - 1);
  __syncthreads();
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const uint32_t base = blockIdx.x * kTileRows + warp * 32;
  const Weight& w = routed ? p.m.down : p.m.shared_down;
  const uint64_t first = routed ? uint64_t{tile.x} * p.m.hidden : 0, last = first + p.m.hidden - 1;
  float acc[2][kPairs / 8][4] = {};
  multiply_tile<kDtype, kPairs>(w, first + base, w, first + base + 16, last, last,
                                {routed ? p.h : p.h_shared, permuted_width(w.width)}, source, tile.z,
                                reinterpret_cast<char*>(shared), acc);
  float* y = routed ? p.pairs : p.shared;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int n = 0; n < kPairs / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t row = base + m * 16 + g + (i / 2) * 8, pair = n * 8 + t * 2 + i % 2;
        if (row >= p.m.hidden || pair >= tile.z) continue;
        const float bias = routed ? bias_at(p.m.down_bias, first + row) : 0.0f;
        y[uint64_t{tile.y + pair} * p.m.hidden + row] = acc[m][n][i] + bias;
      }
    }
  }
}

// y = sum of p_e times the experts' results, in order of k. blockIdx.x: row.
__global__ void combine(const __grid_constant__ TileMixture p, const swy_step* step) {
  depend();
  release_next();
  const uint32_t row = blockIdx.x;
  if (row >= step_rows(step, p.m.domain)) return;
  for (uint32_t i = threadIdx.x; i < p.m.hidden; i += blockDim.x) {
    float sum = 0;
    for (uint32_t k = 0; k < p.m.top_k; ++k) {
      const uint64_t at = uint64_t{row} * p.m.top_k + k;
      sum = fmaf(p.m.p[at], p.pairs[uint64_t{p.sorted.place[at]} * p.m.hidden + i], sum);
    }
    const uint64_t at = uint64_t{row} * p.m.hidden + i;
    if (p.m.shared_width != 0) sum = fmaf(p.m.shared_p[row], p.shared[at], sum);
    p.m.y[at] = p.m.residual == nullptr ? sum : sum + p.m.residual[at];
  }
}

// The router of many rows: its product as LINEAR does it, in fp32, then one warp per row.
__global__ void pick(const float* mix, const __grid_constant__ Mixture m, const swy_step* step) {
  depend();
  release_next();
  const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < step_rows(step, m.domain)) m.shared_p[row] = sigmoid(mix[row]);
}

uint32_t most_tiles(const swy_op& op) {
  const swy_moe_attrs a = moe_attrs(op);
  const auto pairs = static_cast<uint32_t>(swy::tensor(op, "x").dims[0] * a.top_k);
  return ceil_div(pairs, kPairs) + (a.experts < pairs ? a.experts : pairs);
}

void place(TileMixture& p, Arena& arena, const swy_op& op) {
  const swy_moe_attrs a = moe_attrs(op);
  const uint64_t rows = swy::tensor(op, "x").dims[0], hidden = swy::tensor(op, "x").dims[1], pairs = rows * a.top_k;
  p.sorted.row = arena.take<uint32_t>(pairs);
  p.sorted.place = arena.take<uint32_t>(pairs);
  p.sorted.tiles = arena.take<uint4>(most_tiles(op));
  p.sorted.count = arena.take<uint32_t>(1);
  p.x = arena.take<uint16_t>(rows * permuted_width(static_cast<uint32_t>(hidden)));
  p.h = arena.take<uint16_t>(pairs * permuted_width(a.width));
  p.h_shared = arena.take<uint16_t>(rows * permuted_width(a.shared_width));
  p.pairs = arena.take<float>(pairs * hidden);
  p.shared = arena.take<float>(rows * hidden);
}

swy_status record_gate_up(const Recording& r, const TileMixture& p, bool routed, uint32_t tiles) {
  const uint32_t width = permuted_width(routed ? p.m.width : p.m.shared_width);
  const swy_dtype d = routed ? p.m.gate_up.dtype : p.m.shared_gate.dtype;
  return launch(r, SWY_TILED(d, gate_up_tiles), dim3(ceil_div(width, 64), tiles), kTileThreads,
                2 * kPairs * kTileStride, p, routed, r.list.step);
}
swy_status record_down(const Recording& r, const TileMixture& p, bool routed, uint32_t tiles) {
  const swy_dtype d = routed ? p.m.down.dtype : p.m.shared_down.dtype;
  return launch(r, SWY_TILED(d, down_tiles), dim3(ceil_div(p.m.hidden, kTileRows), tiles), kTileThreads,
                2 * kPairs * kTileStride, p, routed, r.list.step);
}

swy_status record_tiles(const Recording& r) {
  Arena arena(r.operands.workspace());
  TileMixture p{};
  p.m = mixture_of(r, arena);
  place(p, arena, r.op);
  const auto rows = static_cast<uint32_t>(swy::tensor(r.op, "x").dims[0]);
  if (p.m.routes) {
    SWY_CUDA_TRY(record_mixture_product(r, p.m, p.m.router, p.m.router_bias, p.m.logits, rows));
    SWY_CUDA_TRY(record_choice(r, p.m, rows));
  }
  if (p.m.shared_width != 0) {
    SWY_CUDA_TRY(record_mixture_product(r, p.m, p.m.shared_mix, {}, p.shared, rows));
    SWY_CUDA_TRY(launch(r, pick, ceil_div(rows, 128), 128, 0, p.shared, p.m, r.list.step));
  }
  SWY_CUDA_TRY(launch(r, sort_pairs, 1, kSortThreads, 0, p, r.list.step));
  Permute x{};
  x.x = p.m.x;
  x.y = const_cast<uint16_t*>(p.x);
  x.width = p.m.hidden;
  x.domain = p.m.domain;
  SWY_CUDA_TRY(record_permute(r, x, rows));
  SWY_CUDA_TRY(record_gate_up(r, p, true, most_tiles(r.op)));
  SWY_CUDA_TRY(record_down(r, p, true, most_tiles(r.op)));
  if (p.m.shared_width != 0) {
    SWY_CUDA_TRY(record_gate_up(r, p, false, ceil_div(rows, kPairs)));
    SWY_CUDA_TRY(record_down(r, p, false, ceil_div(rows, kPairs)));
  }
  return launch(r, combine, rows, 256, 0, p, r.list.step);
}

swy_status supports_tiles(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  const swy_moe_attrs a = moe_attrs(op);
  SWY_CUDA_TRY(supports_router(device, op, bucket, error));
  SWY_CUDA_TRY(supports_experts(op, tileable, "read in tiles", error));
  constexpr swy::OperandName kPlain[] = {"router", "shared_gate"};
  for (const swy::OperandName name : kPlain) {
    const uint32_t i = swy::at(op, name);
    if (i == UINT32_MAX || readable_by_vectors(*op.weights[i])) continue;
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "weight %u cannot be read in pieces", i);
  }
  const auto hidden = static_cast<uint32_t>(swy::tensor(op, "x").dims[1]);
  if (a.experts > kMostExperts || a.top_k > 32 || most_tiles(op) > 65535 ||
      hidden * 12 + 4096 > device.features.block_memory) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "%u experts, %u tiles; at most %u and 65535", a.experts,
                     most_tiles(op), kMostExperts);
  }
  return SWY_OK;
}

// Within a fifth of what was measured on an H200 from 64 to 2,048 rows.
double cost_tiles(const swy_device& device, const swy_op& op, const swy_bucket&) {
  const MixtureWork work = mixture_work(op);
  return 90 + device.rates.bytes(3 * row_bytes(op) * moe_attrs(op).top_k + work.weight_bytes, 2.2e6) +
         device.rates.products(work.multiply_adds, 100e6);
}

uint64_t workspace(const swy_device&, const swy_op& op, const swy_bucket&) {
  Arena arena(nullptr);
  TileMixture p{};
  place(p, arena, op);
  return mixture_workspace(op) + arena.used();
}

constexpr Kernel kernel(const char* name, uint32_t op) {
  return {.name = name,
          .op = op,
          .flags = kAlways,
          .activations = SWY_BF16,
          .supports = supports_tiles,
          .cost = cost_tiles,
          .workspace = workspace,
          .record = record_tiles,
          .op_revision = 2,
          .weight_dtypes = kMatrices};
}
constexpr Kernel kKernels[] = {kernel("moe.tiles", SWY_OP_MOE), kernel("moe_add.tiles", SWY_OP_MOE_ADD),
                               kernel("experts.tiles", SWY_OP_EXPERTS)};

}  // namespace

std::span<const Kernel> moe_tiles_kernels() { return kKernels; }

}  // namespace gpu
