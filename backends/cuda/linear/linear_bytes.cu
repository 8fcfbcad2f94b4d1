// SPDX-License-Identifier: Apache-2.0
// LINEAR, LINEAR_ADD and RMS_NORM_LINEAR for many rows with 4-bit weights and activations as bytes: on Hopper
// (bytes.cuh), and on other cards (byte_tiles.cuh). Weights of few rows go to narrow.cuh, as in linear_grouped.cu, or
// to linear_tiles.cu.
#include <algorithm>
#include <initializer_list>

#include "common/projection.cuh"
#include "grouped/bytes.cuh"
#include "grouped/narrow.cuh"
#include "linear_byte_tiles.cuh"
#include "linear_bytes.h"
#include "linear_grouped.cuh"
#include "linear_tiles.h"

namespace gpu {
namespace {

// Of a bucket.
uint32_t least_rows(const swy_device& device) { return device.features.wgmma ? kLeastByteRows : 65; }

struct ByteLinear {
  GroupedLinear g;        // x: panels of bytes
  uint32_t stages, busy;  // busy: as in rounds_of
  ByteScales scales;
};

// Rounds over all blocks that tiles of n rows of activations take. busy: blocks that begin late, beside others: they
// should have a tile less than the others.
__host__ __device__ constexpr uint32_t rounds_of(uint32_t steps, uint32_t rows, uint32_t n, uint32_t busy,
                                                 uint32_t blocks) {
  return (steps * ((rows + n - 1) / n) + busy + blocks - 1) / blocks;
}
// The time of a round on an H200, hundredths of a microsecond. By stall samples: 1,000 cycles and 10 a row for two
// spans, and 2,200 and 32 a row between tiles.
__host__ __device__ constexpr uint32_t round_time(uint32_t spans, uint32_t n) {
  return spans * 7 * (n + 100) / 25 + 120 + n * 9 / 5;
}
struct ByteInput {
  GroupedRows g;  // but for where they go
  ByteRows rows;
};

// blockIdx.x: row. As panel_rows.
__global__ void __launch_bounds__(kRowWarps * 32) byte_rows(const __grid_constant__ ByteInput b, const swy_step* step) {
  __shared__ RowMemory<kRowWarps> memory;
  const GroupedRows& p = b.g;
  const uint32_t row = blockIdx.x;
  release_next();  // the next kernel requests its weights, then waits for this one, which waits for earlier ones
  depend();
  if (row >= step_rows(step, p.domain)) return;
  InputRow<GroupedRows> of{{b.rows, row}, p, p.x + uint64_t{row} * p.width, p.width};
  convert_row<4>(of, memory);
}

#ifdef SWY_HOPPER

template <int N>
struct LinearBytes : LinearWork<N> {
  const ByteLinear& b;

  __device__ LinearBytes(const ByteLinear& of, const GroupedLinearWeights& w, uint32_t rows)
      : LinearWork<N>{of.g, w, rows}, b(of) {}
  __device__ GroupedTile tile(uint32_t number, uint4 entry) const {
    GroupedTile t = LinearWork<N>::tile(number, entry);
    t.x = b.g.x + uint64_t{t.what.y} * kSpan;
    t.span_stride = uint64_t{b.g.groups} * kBytePanel;
    t.end = b.stages;
    return t;
  }
  __device__ const ByteScales& scales() const { return b.scales; }
  __device__ uint32_t first_row(const GroupedTile& t) const { return t.what.y; }
  __device__ void prefetch(const GroupedTile& tile) const {
    constexpr uint32_t kLine = 32;  // floats
    if (this->p.residual == nullptr) return;
    for (uint32_t i = threadIdx.x; i < N * kTileRowsOfWeight / kLine; i += kByteConsumers) {
      const uint32_t row = tile.what.y + i / (kTileRowsOfWeight / kLine);
      const uint32_t column = tile.what.z + i % (kTileRowsOfWeight / kLine) * kLine;
      if (row < this->rows && column < tile.what.w)
        prefetch_line(this->p.residual + uint64_t{row} * tile.what.w + column);
    }
  }
  // A thread writes its two neighbouring columns of each row, so that half a warp, which a store of eight bytes takes
  // at a time, has whole sectors of four rows. Stores of 16 bytes take a quarter of a warp at a time, which has four
  // columns of eight rows: eight half sectors. What is added is loaded for several rows before any is stored, since a
  // store may be to what a later load reads.
  template <int>
  __device__ void store_bytes(const GroupedTile& tile, const ByteSums<N>& sums) const {
    constexpr int kAtOnce = 4;
    const uint32_t column = tile.what.z + byte_row<LinearWork<N>::kOrder>(0), width = tile.what.w;
    const uint32_t first = tile.what.y + threadIdx.x % 4 * 2;
    const int left = column < width ? static_cast<int>(this->rows - first) : 0;  // rows from the first one
    const uint64_t at = uint64_t{first} * width + column;
    float* to = this->p.y[tile.what.x] + at;
    const float* from = this->p.residual == nullptr ? nullptr : this->p.residual + at;
#pragma unroll
    for (int m = 0; m < N / 8; m += kAtOnce) {
      float2 old[kAtOnce][2];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          old[i][e] = make_float2(0, 0);
          if (m + i >= N / 8 || from == nullptr || (m + i) * 8 + e >= left) continue;
          old[i][e] = *reinterpret_cast<const float2*>(from + (i * 8 + e) * width);
        }
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (m + i >= N / 8) break;
        float v[4];
        sums.four(m + i, v);
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          if ((m + i) * 8 + e >= left) continue;
          *reinterpret_cast<float2*>(to + (i * 8 + e) * width) =
              make_float2(v[e] + old[i][e].x, v[2 + e] + old[i][e].y);
        }
      }
      to += kAtOnce * 8 * width;
      if (from != nullptr) from += kAtOnce * 8 * width;
    }
  }
};

#endif

// With tiles of N or of kOther rows, whatever suits the rows of the step: a bucket has many numbers of rows.
template <int N, int kOther = N>
__global__ void __launch_bounds__(kByteThreads, 1)
    linear_bytes(const __grid_constant__ ByteLinear p, const __grid_constant__ GroupedLinearWeights w,
                 const ByteShape shape, const swy_step* step) {
#ifdef SWY_HOPPER
  extern __shared__ __align__(1024) char memory_of_bytes[];
  const uint32_t rows = step_rows(step, p.g.domain), steps = p.g.first[p.g.count];
  const auto time = [&](uint32_t n) { return rounds_of(steps, rows, n, p.busy, gridDim.x) * round_time(p.g.spans, n); };
  if (N != kOther && time(kOther) < time(N)) {
    product_of_bytes(LinearBytes<kOther>(p, w, rows), shape, memory_of_bytes, p.g.beside);
  } else {
    product_of_bytes(LinearBytes<N>(p, w, rows), shape, memory_of_bytes, p.g.beside);
  }
  if (p.g.beside) depend();
#endif
}

uint32_t rows_of(const swy_op& op) { return static_cast<uint32_t>(swy::tensor(op, "x").dims[0]); }
uint32_t width_of(const swy_op& op) { return static_cast<uint32_t>(swy::tensor(op, "x").dims[1]); }
uint32_t spans_of(const swy_op& op) { return ceil_div(width_of(op), kSpan); }

// Rows of activations per tile, and the estimated time. The more sizes there are, the better the last round is filled:
// at 512 rows and 36 tiles of weights, 80 rows take two rounds, as 128 rows do.
struct Tiling {
  uint32_t rows;
  uint64_t time;
};
template <class Time>
Tiling tiling(std::initializer_list<uint32_t> sizes, Time time) {
  Tiling best{0, UINT64_MAX};
  for (const uint32_t n : sizes) {
    if (time(n) < best.time) best = {n, time(n)};
  }
  return best;
}
// Tiles of all weights that are not narrow.
uint32_t steps_of(const swy_op& op) {
  uint32_t steps = 0;
  for (uint32_t i = first_weight(op); i < op.weight_count; ++i) {
    if (!narrow(*op.weights[i])) steps += ceil_div(op.weights[i]->dims[0], kTileRowsOfWeight);
  }
  return steps;
}

// Of ByteLinear.
uint32_t busy_blocks(const swy_op& op) {
  uint32_t rows = 0;
  for (uint32_t i = first_weight(op); i < op.weight_count; ++i)
    rows += narrow(*op.weights[i]) ? op.weights[i]->dims[0] : 0;
  return rows == 0 ? 0 : narrow_blocks(rows, width_of(op), rows_of(op));
}

Tiling tiling_of(const swy_device& device, const swy_op& op) {
  const uint32_t steps = steps_of(op), rows = rows_of(op), spans = spans_of(op);
  const auto processors = static_cast<uint32_t>(device.processors);
  if (!device.features.wgmma) {
    return tiling({kMostByteTileRows, 32, 16}, [&](uint32_t n) {
      return uint64_t{rounds_of(steps, rows, n, 0, processors * kByteTileBlocks)} * spans * (n + 16) / 2;
    });
  }
  return tiling({128, 96, 80, 64, 32}, [&](uint32_t n) {
    return uint64_t{rounds_of(steps, rows, n, busy_blocks(op), processors)} * round_time(spans, n);
  });
}

// Layout of the workspace.
ReadyBytes place(Arena& arena, const swy_op& op) {
  const ByteRows rows = take_byte_rows(arena, rows_of(op), width_of(op));
  return {rows, arena.take<float>(rows_of(op))};
}

ByteInput input_of(const Recording& r, const ReadyBytes& parts) {
  ByteInput b{};
  b.g.x = r.operands.input("x");
  b.g.width = width_of(r.op);
  b.g.domain = swy::tensor(r.op, "x").rows;
  take_norm(r, b.g);
  if (b.g.normed) b.g.inverse = parts.inverse;
  b.rows = parts.rows;
  return b;
}

// On cards without wgmma, where `x` has been converted.
swy_status record_tiles(const Recording& r, const ByteInput& x, uint16_t* permuted) {
  Projection narrow_ones = linear_projection(r);
  narrow_ones.count = 0;
  ByteTileLinear p{};
  for (uint32_t i = first_weight(r.op), o = 0; i < r.op.weight_count; ++i, ++o) {
    if (narrow(*r.op.weights[i])) {
      narrow_ones.weights[narrow_ones.count] = r.operands.weight(i);
      narrow_ones.y[narrow_ones.count++] = r.operands.output(o);
      continue;
    }
    p.w[p.count] = r.operands.weight(i);
    p.y[p.count] = r.operands.output(o);
    p.first[p.count + 1] = p.first[p.count] + ceil_div(p.w[p.count].rows, kTileRowsOfWeight);
    ++p.count;
  }
  if (narrow_ones.count != 0) {
    SWY_CUDA_TRY(record_projection_tiles(r, narrow_ones, permuted, rows_of(r.op)));
  }
  p.x = x.rows.panels;
  p.residual = r.operands.input("residual");
  p.spans = spans_of(r.op);
  p.groups = x.rows.groups;
  p.domain = x.g.domain;
  p.scales = x.rows.scales;
  const ByteTileShape shape = byte_tile_shape(r.device().features, tiling_of(r.device(), r.op).rows);
  const uint32_t blocks = kByteTileBlocks * static_cast<uint32_t>(r.device().processors);
  Recording product = r;
  product.split = FastMemory::shared;
  return launch(product, linear_byte_tiles, std::min(blocks, p.first[p.count] * ceil_div(rows_of(r.op), shape.rows)),
                kByteTileThreads, shape.bytes(), p, shape, r.list.step);
}

// The kernel for a size of `tiling_of`.
decltype(&linear_bytes<32>) kernel_of(uint32_t rows) {
  switch (rows) {
    case 80:
      return linear_bytes<80>;
    case 64:
      return linear_bytes<64>;
    case 32:
      return linear_bytes<32>;
    default:
      return linear_bytes<128, 96>;
  }
}

// The products of p's weights, `w`.
swy_status record_products(const Recording& r, ByteLinear& p, const GroupedLinearWeights& w, const ByteRows& x) {
  p.g.x = x.panels;
  p.g.spans = spans_of(r.op);
  p.g.groups = x.groups;
  p.g.domain = swy::tensor(r.op, "x").rows;
  p.g.parts = 1;
  p.scales = x.scales;
  const auto processors = static_cast<uint32_t>(r.device().processors);
  const uint32_t steps = p.g.first[p.g.count], n = tiling_of(r.device(), r.op).rows, least = n == 128 ? 96 : n;
  p.busy = busy_blocks(r.op);
  p.stages = byte_stages(width_of(r.op));
  const ByteShape shape = byte_shape(r.device().features.block_memory, width_of(r.op), n == 96 ? 128 : n);
  return launch(r, kernel_of(n), std::min(processors, steps * ceil_div(rows_of(r.op), least)), kByteThreads,
                shape.bytes(), p, w, shape, r.list.step);
}

swy_status add_weight(const Weight& weight, float* y, ByteLinear& p, GroupedLinearWeights& w, swy_error* error) {
  SWY_CUDA_TRY(stream_bytes(weight, &w.w[p.g.count], error));
  p.g.y[p.g.count] = y;
  p.g.first[p.g.count + 1] = p.g.first[p.g.count] + ceil_div(weight.rows, kTileRowsOfWeight);
  ++p.g.count;
  return SWY_OK;
}

// The products with all weights, behind the kernel that made the rows of `x`.
swy_status record_weights(const Recording& r, const ByteInput& x) {
  ByteLinear p{};
  SWY_CUDA_TRY(record_narrow_weights(r, x.g, rows_of(r.op), p.g.beside));
  GroupedLinearWeights w{};
  for (uint32_t i = first_weight(r.op), o = 0; i < r.op.weight_count; ++i, ++o) {
    if (narrow(*r.op.weights[i])) continue;
    SWY_CUDA_TRY(add_weight(r.operands.weight(i), r.operands.output(o), p, w, r.error));
  }
  p.g.residual = r.operands.input("residual");
  return record_products(r, p, w, x.rows);
}

swy_status record_bytes(const Recording& r) {
  Arena arena(r.operands.workspace());
  const ByteInput x = input_of(r, place(arena, r.op));
  SWY_CUDA_TRY(launch(r, byte_rows, rows_of(r.op), kRowWarps * 32, 0, x, r.list.step));
  if (r.device().features.wgmma) return record_weights(r, x);
  return record_tiles(r, x, arena.take<uint16_t>(0));  // what permuted_bytes adds
}

swy_status supports_bytes(const swy_device& device, const swy_op& op, const swy_bucket&, swy_error* error) {
  if (!device.bytes) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_DTYPE, "is off because of --set cuda.bytes=0");
  }
  if (rows_of(op) < least_rows(device)) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "takes %u rows or more, the bucket has %u",
                     least_rows(device), rows_of(op));
  }
  for (uint32_t i = first_weight(op); i < op.weight_count; ++i) {
    if (multiplied_as_bytes(*op.weights[i]) && !narrow(*op.weights[i])) continue;
    if (narrow(*op.weights[i]) && op.id != SWY_OP_LINEAR_ADD) continue;
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                     "weight %u cannot be multiplied as bytes: i4 in groups of whole 64s is needed", i);
  }
  if (device.features.wgmma && byte_shape(device.features.block_memory, width_of(op), kByteRows).stages == 0) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "rows of %u elements do not fit", width_of(op));
  }
  if (steps_of(op) != 0) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "no weight of many rows");
}

// Of converting the rows.
double cost_of_rows(const swy_device& device, const swy_op& op) {
  return 5 + device.rates.bytes(static_cast<double>(rows_of(op)) * width_of(op), 8e5);
}
// Of the products with weights of many rows. Without wgmma: not measured; the rounds of a card with 132 multiprocessors
// take as long as 180 million products a microsecond.
double cost_of_products(const swy_device& device, const swy_op& op) {
  const auto time = static_cast<double>(tiling_of(device, op).time);
  if (device.features.wgmma) return device.rates.products(time, 100);
  return device.rates.products(time * device.processors / 132, 14);
}
double cost_bytes(const swy_device& device, const swy_op& op, const swy_bucket&) {
  double bytes = 0, narrow_ones = 0;
  for (uint32_t i = first_weight(op); i < op.weight_count; ++i) {
    const swy_tensor& weight = *op.weights[i];
    bytes += weight_bytes(weight);
    if (!narrow(weight)) continue;
    narrow_ones = device.features.wgmma ? 8 : narrow_ones + tile_product_cost(device, weight, rows_of(op));
  }
  return 5 + narrow_ones + cost_of_rows(device, op) +
         std::max(cost_of_products(device, op), device.rates.bytes(bytes, 2.5e6));
}

// Of linear_tiles.cu, for weights of few rows on cards without wgmma.
uint64_t permuted_bytes(const swy_device& device, const swy_op& op) {
  const auto few = [](const swy_tensor* w) { return narrow(*w); };
  const bool needed =
      !device.features.wgmma && std::any_of(op.weights + first_weight(op), op.weights + op.weight_count, few);
  return needed ? sizeof(uint16_t) * permuted_elements(rows_of(op), width_of(op)) : 0;
}
uint64_t workspace(const swy_device& device, const swy_op& op, const swy_bucket&) {
  return bytes_ready_memory(op) + permuted_bytes(device, op);
}

constexpr Kernel kernel(const char* name, uint32_t op) {
  return {name, op, kAlways, SWY_I8, supports_bytes, cost_bytes, workspace, record_bytes};
}
constexpr Kernel kKernels[] = {kernel("linear.bytes", SWY_OP_LINEAR), kernel("linear_add.bytes", SWY_OP_LINEAR_ADD),
                               kernel("rms_norm_linear.bytes", SWY_OP_RMS_NORM_LINEAR)};

}  // namespace

std::span<const Kernel> linear_bytes_kernels() { return kKernels; }

swy_status supports_bytes_ready(const swy_device& device, const swy_op& op, const swy_bucket& bucket,
                                swy_error* error) {
  SWY_CUDA_TRY(needs_wgmma(device, error));
  return supports_bytes(device, op, bucket, error);
}
uint64_t bytes_ready_memory(const swy_op& op) {
  Arena arena(nullptr);
  place(arena, op);
  return arena.used();
}
ReadyBytes bytes_ready_in(char* memory, const swy_op& op) {
  Arena arena(memory);
  return place(arena, op);
}
double bytes_ready_cost(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  return cost_bytes(device, op, bucket) - cost_of_rows(device, op);
}
swy_status record_bytes_ready(const Recording& r, const ByteRows& ready, const float* residual, float* y) {
  ByteLinear p{};
  GroupedLinearWeights w{};
  SWY_CUDA_TRY(add_weight(r.operands.weight(0), y, p, w, r.error));
  p.g.residual = residual;
  return record_products(r, p, w, ready);
}
swy_status record_bytes_normed(const Recording& r, const NormedBytes& ready, const float* x) {
  ByteInput b{};
  b.g.x = x;
  b.g.width = width_of(r.op);
  b.g.domain = swy::tensor(r.op, "x").rows;
  b.g.normed = true;
  b.g.norm = ready.norm.norm, b.g.eps = ready.norm.eps, b.g.bias = ready.norm.bias;
  b.g.inverse = ready.norm.inverse;
  b.rows = ready.rows;
  return record_weights(r, b);
}

}  // namespace gpu
