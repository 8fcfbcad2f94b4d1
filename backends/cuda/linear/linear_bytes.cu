// SPDX-License-Identifier: Apache-2.0
// LINEAR, LINEAR_ADD and RMS_NORM_LINEAR for many rows on Hopper, with 4-bit weights and activations as bytes
// (bytes.cuh). Weights of few rows go to narrow.cuh, as in linear_grouped.cu.
#include <algorithm>

#include "common/projection.cuh"
#include "grouped/bytes.cuh"
#include "grouped/narrow.cuh"
#include "linear_grouped.cuh"

namespace gpu {
namespace {

constexpr uint32_t kLeastRows = 257;  // of a bucket; with fewer, the columns are divided among blocks elsewhere
constexpr uint32_t kScaledSpansOfRow = 2, kConverted = 2048;  // elements of a row that a block converts at once

struct ByteLinear {
  GroupedLinear g;    // x: panels of bytes
  uint32_t groups;    // of 64 columns
  ByteScales scales;  // [spans / kScaledSpansOfRow][rows of groups]
};
struct ByteInput {
  GroupedRows g;
  ByteScales scales;
};

// blockIdx.x: row. As panel_rows.
__global__ void __launch_bounds__(256) byte_rows(const __grid_constant__ ByteInput b, const swy_step* step) {
  __shared__ float scratch[32];
  __shared__ uint4 bytes[kConverted / 16];
  const GroupedRows& p = b.g;
  release_next();  // the next kernel requests its weights, then waits for this one, which waits for earlier ones
  depend();
  const uint32_t row = blockIdx.x, warp = threadIdx.x / 32;
  if (row >= step_rows(step, p.domain)) return;
  const float* x = p.x + uint64_t{row} * p.width;
  float factor = 1;
  if (p.normed) {
    float squares = 0;
    for (uint32_t k = threadIdx.x * 4; k < p.width; k += blockDim.x * 4) {  // the width is a multiple of four
      const float4 v = *reinterpret_cast<const float4*>(x + k);
      squares = fmaf(v.x, v.x, fmaf(v.y, v.y, fmaf(v.z, v.z, fmaf(v.w, v.w, squares))));
    }
    factor = rsqrtf(block_sum(squares, scratch) / static_cast<float>(p.width) + p.eps);
    if (p.inverse != nullptr && threadIdx.x == 0) p.inverse[row] = factor;
  }
  for (uint32_t first = 0; first < p.width; first += kConverted) {
    const uint32_t k = first + threadIdx.x * 8;
    float v[8] = {};
    if (k < p.width) {
      const float4 low = *reinterpret_cast<const float4*>(x + k), high = *reinterpret_cast<const float4*>(x + k + 4);
      v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w, v[4] = high.x, v[5] = high.y, v[6] = high.z,
      v[7] = high.w;
#pragma unroll
      for (uint32_t i = 0; i < 8 && p.normed; ++i) v[i] *= factor * (p.bias + plain_at(p.norm, k + i));
    }
    float largest = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(v[i]));
    static_assert(kScaledSpansOfRow * kSpan == 32 * 8);
    const float2 scale = byte_scale(warp_max(largest));
    const uint2 eight = eight_bytes(v, scale.y);
    uint32_t* at = reinterpret_cast<uint32_t*>(bytes) + (threadIdx.x / 16 * kSpan + byte_place(threadIdx.x % 16)) / 4;
    if (first != 0) __syncthreads();  // earlier bytes have been read
    at[0] = eight.x, at[4] = eight.y;
    const uint32_t n = first / (32 * 8) + warp;
    if (n * 32 * 8 < p.width && threadIdx.x % 32 == 0) put_scale(b.scales, uint64_t{n} * p.groups * 8 + row, scale);
    __syncthreads();
    const uint32_t piece = threadIdx.x, span = first / kSpan + piece / 8;
    if (piece >= kConverted / 16 || span * kSpan >= p.width) continue;
    uint8_t* panel = p.y + (uint64_t{span} * p.groups + row / 8) * kBytePanel;
    *reinterpret_cast<uint4*>(panel + byte_in_panel(row, piece % 8 * 16)) = bytes[piece];
  }
}

#ifdef SWY_HOPPER

template <int N>
struct LinearBytes : LinearWork<N> {
  static constexpr uint32_t kScaledSpans = kScaledSpansOfRow;
  const ByteLinear& b;

  __device__ LinearBytes(const ByteLinear& of, const GroupedLinearWeights& w, uint32_t rows)
      : LinearWork<N>{of.g, w, rows}, b(of) {}
  __device__ GroupedTile tile(uint32_t number, uint4 entry) const {
    GroupedTile t = LinearWork<N>::tile(number, entry);
    t.x = b.g.x + uint64_t{t.what.y} * kSpan;
    t.span_stride = uint64_t{b.g.groups} * kBytePanel;
    t.end = b.groups;
    return t;
  }
  __device__ const ByteScales& scales() const { return b.scales; }
  __device__ uint64_t scale_at(const GroupedTile& t, uint32_t n) const {
    return uint64_t{n} * b.g.groups * 8 + t.what.y;
  }
  // Lanes g and g + 1 have two of four neighbouring columns each, for two rows. They exchange half of them, so that
  // each writes four neighbours of a row.
  template <int>
  __device__ void store_bytes(const BytePipe&, const GroupedTile& tile, const float (&acc)[N / 2]) const {
    const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const bool odd = g % 2 != 0;
    const uint32_t column = tile.what.z + threadIdx.x / 32 * 16 + g / 2 * 4;
#pragma unroll
    for (int n = 0; n < N / 8; ++n) {
      float v[4];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float first = acc[4 * n + 2 * h], second = acc[4 * n + 2 * h + 1];
        const float own = odd ? second : first, got = __shfl_xor_sync(kAll, odd ? first : second, 4);
        v[h] = odd ? got : own, v[2 + h] = odd ? own : got;
      }
      this->put_four(tile, tile.what.y + n * 8 + t * 2 + (odd ? 1 : 0), column, v);
    }
  }
};

#endif

template <int N>
__global__ void __launch_bounds__(kByteThreads, 1)
    linear_bytes(const __grid_constant__ ByteLinear p, const __grid_constant__ GroupedLinearWeights w,
                 const ByteShape shape, const swy_step* step) {
#ifdef SWY_HOPPER
  extern __shared__ uint4 shared[];
  product_of_bytes(LinearBytes<N>(p, w, step_rows(step, p.g.domain)), shape, reinterpret_cast<char*>(shared),
                   p.g.beside);
  if (p.g.beside) depend();
#endif
}

uint32_t rows_of(const swy_op& op) { return static_cast<uint32_t>(swy::tensor(op, "x").dims[0]); }
uint32_t width_of(const swy_op& op) { return static_cast<uint32_t>(swy::tensor(op, "x").dims[1]); }
uint32_t spans_of(const swy_op& op) { return ceil_div(width_of(op), kSpan); }

// Rows of activations per tile, and the estimated time in hundredths of a microsecond on an H200: rounds over all
// multiprocessors, each of which takes the time of its rows and of 40 more.
struct Tiling {
  uint32_t rows;
  uint64_t time;
};
Tiling tiling(const swy_op& op, uint32_t steps, uint32_t processors) {
  Tiling best{0, UINT64_MAX};
  for (const uint32_t n : {64u, 48u, 32u}) {
    const uint64_t rounds = ceil_div(uint64_t{steps} * ceil_div(rows_of(op), n), processors);
    const uint64_t time = rounds * spans_of(op) * (n + 40) * 17 / 20;
    if (time < best.time) best = {n, time};
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

// The most groups of a row of a weight that is not narrow.
uint32_t scale_groups(const swy_op& op) {
  uint32_t most = 1;
  for (uint32_t i = first_weight(op); i < op.weight_count; ++i) {
    const swy_tensor& t = *op.weights[i];
    if (!narrow(t) && t.group != 0) most = std::max(most, ceil_div(t.dims[t.rank - 1], t.group));
  }
  return most;
}

// Layout of the workspace.
struct Parts {
  uint8_t* panels;
  ByteScales scales;
  float* inverse;
};
Parts place(Arena& arena, const swy_op& op) {
  const uint32_t rows = rows_of(op), groups = ceil_div(rows, 8);
  Parts p{};
  p.panels = arena.take<uint8_t>(uint64_t{spans_of(op)} * groups * kBytePanel);
  const uint64_t scales = uint64_t{ceil_div(spans_of(op), kScaledSpansOfRow)} * groups * 8;
  p.scales.scale = arena.take<float>(scales), p.scales.inverse = arena.take<float>(scales);
  p.inverse = arena.take<float>(rows);
  return p;
}

ByteInput input_of(const Recording& r, const Parts& parts) {
  ByteInput b{};
  b.g.x = r.operands.input("x");
  b.g.y = parts.panels;
  b.g.width = width_of(r.op);
  b.g.groups = ceil_div(rows_of(r.op), 8);
  b.g.domain = swy::tensor(r.op, "x").rows;
  take_norm(r, b.g);
  if (b.g.normed) b.g.inverse = parts.inverse;
  b.scales = parts.scales;
  return b;
}

// The products with weights of few rows; `recorded`: whether there are any.
swy_status record_narrow_weights(const Recording& r, const GroupedRows& x, bool& recorded) {
  Narrow n{};
  for (uint32_t i = first_weight(r.op), o = 0; i < r.op.weight_count; ++i, ++o) {
    if (!narrow(*r.op.weights[i])) continue;
    n.w[n.count] = r.operands.weight(i);
    n.y[n.count++] = r.operands.output(o);
  }
  recorded = n.count != 0;
  if (!recorded) return SWY_OK;
  n.x = x.x;
  n.inverse = x.inverse;
  n.normed = x.normed;
  n.norm = x.norm;
  n.bias = x.bias;
  n.width = x.width;
  n.domain = x.domain;
  return record_narrow(r, n, rows_of(r.op));
}

swy_status record_bytes(const Recording& r) {
  Arena arena(r.operands.workspace());
  const Parts parts = place(arena, r.op);
  const ByteInput x = input_of(r, parts);
  SWY_CUDA_TRY(launch(r, byte_rows, rows_of(r.op), 256, 0, x, r.list.step));
  ByteLinear p{};
  SWY_CUDA_TRY(record_narrow_weights(r, x.g, p.g.beside));
  GroupedLinearWeights w{};
  for (uint32_t i = first_weight(r.op), o = 0; i < r.op.weight_count; ++i, ++o) {
    if (narrow(*r.op.weights[i])) continue;
    const Weight weight = r.operands.weight(i);
    SWY_CUDA_TRY(stream_bytes(weight, &w.w[p.g.count], r.error));
    p.g.y[p.g.count] = r.operands.output(o);
    p.g.first[p.g.count + 1] = p.g.first[p.g.count] + ceil_div(weight.rows, kTileRowsOfWeight);
    ++p.g.count;
  }
  p.g.x = parts.panels;
  p.g.residual = r.operands.input("residual");
  p.g.spans = spans_of(r.op);
  p.g.groups = x.g.groups;
  p.g.domain = x.g.domain;
  p.g.parts = 1;
  p.scales = parts.scales;
  const auto processors = static_cast<uint32_t>(r.device().processors);
  const uint32_t steps = p.g.first[p.g.count], n = tiling(r.op, steps, processors).rows;
  p.groups = width_of(r.op) / kByteGroup;
  const ByteShape shape = byte_shape(r.device().features.block_memory, scale_groups(r.op), 0);
  const auto kernel = n == 64 ? linear_bytes<64> : n == 48 ? linear_bytes<48> : linear_bytes<32>;
  return launch(r, kernel, std::min(processors, steps * ceil_div(rows_of(r.op), n)), kByteThreads, shape.bytes(), p, w,
                shape, r.list.step);
}

swy_status supports_bytes(const swy_device& device, const swy_op& op, const swy_bucket&, swy_error* error) {
  SWY_CUDA_TRY(needs_wgmma(device, error));
  if (!device.bytes)
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_DTYPE, "is off; --set cuda.bytes=1 turns it on");
  if (rows_of(op) < kLeastRows) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "takes %u rows or more, the bucket has %u", kLeastRows,
                     rows_of(op));
  }
  for (uint32_t i = first_weight(op); i < op.weight_count; ++i) {
    if (multiplied_as_bytes(*op.weights[i]) && !narrow(*op.weights[i])) continue;
    if (narrow(*op.weights[i]) && op.id != SWY_OP_LINEAR_ADD) continue;
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                     "weight %u cannot be multiplied as bytes: i4 in groups of whole 64s is needed", i);
  }
  if (byte_shape(device.features.block_memory, scale_groups(op), 0).stages == 0) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "the scales of %u groups do not fit", scale_groups(op));
  }
  if (steps_of(op) != 0) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "no weight of many rows");
}

double cost_bytes(const swy_device& device, const swy_op& op, const swy_bucket&) {
  double bytes = 0;
  bool few = false;
  for (uint32_t i = first_weight(op); i < op.weight_count; ++i) {
    bytes += weight_bytes(*op.weights[i]);
    few = few || narrow(*op.weights[i]);
  }
  const Tiling t = tiling(op, steps_of(op), static_cast<uint32_t>(device.processors));
  return 10 + (few ? 8 : 0) + device.rates.bytes(static_cast<double>(rows_of(op)) * width_of(op), 8e5) +
         std::max(device.rates.products(static_cast<double>(t.time), 100), device.rates.bytes(bytes, 2.5e6));
}

uint64_t workspace(const swy_device&, const swy_op& op, const swy_bucket&) {
  Arena arena(nullptr);
  place(arena, op);
  return arena.used();
}

constexpr Kernel kernel(const char* name, uint32_t op) {
  return {name, op, kAlways, SWY_I8, supports_bytes, cost_bytes, workspace, record_bytes};
}
constexpr Kernel kKernels[] = {kernel("linear.bytes", SWY_OP_LINEAR), kernel("linear_add.bytes", SWY_OP_LINEAR_ADD),
                               kernel("rms_norm_linear.bytes", SWY_OP_RMS_NORM_LINEAR)};

}  // namespace

std::span<const Kernel> linear_bytes_kernels() { return kKernels; }

}  // namespace gpu
