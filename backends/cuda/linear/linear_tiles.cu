// SPDX-License-Identifier: Apache-2.0
// LINEAR, LINEAR_ADD, RMS_NORM_LINEAR and LM_HEAD for many rows, on tensor cores (tiles.cuh).
#include "linear_tiles.h"

namespace gpu {
namespace {

// One row per block of threads.
__global__ void __launch_bounds__(128) permute_rows(const __grid_constant__ Permute p, const swy_step* step) {
  __shared__ float scratch[32];
  depend();
  release_next();
  const uint32_t row = blockIdx.x;
  if (row >= step_rows(step, p.domain)) return;
  const uint32_t from = p.gather ? step_array<uint32_t>(step, step->logit_row_at)[row] : row;
  const float* x = p.x + uint64_t{from} * p.width;
  float scale = 1;
  if (p.normed) {
    float squares = 0;
    for (uint32_t i = threadIdx.x; i < p.width; i += blockDim.x) squares = fmaf(x[i], x[i], squares);
    scale = rsqrtf(block_sum(squares, scratch) / static_cast<float>(p.width) + p.eps);
  }
  const uint32_t units = permuted_width(p.width) / 8;
  auto* y = reinterpret_cast<uint4*>(p.y) + uint64_t{row} * units;
  for (uint32_t i = threadIdx.x; i < units; i += blockDim.x) {
    float v[8];
#pragma unroll
    for (uint32_t e = 0; e < 8; ++e) {
      const uint32_t k = i * 8 + e;
      v[e] = k < p.width ? x[k] : 0.0f;
      if (p.normed && k < p.width) v[e] *= scale * (p.bias + plain_at(p.norm, k));
    }
    y[permuted_unit(i)] = permuted_eight(v);
  }
}

struct TileLinear {
  Weight w;
  TileInput x;
  const float* residual;
  Bias bias;
  float* y;
  swy_rows domain;
};

// blockIdx.x: rows of the weight; blockIdx.y: rows of activations.
template <swy_dtype kDtype, int NT>
__global__ void __launch_bounds__(kTileThreads)
    linear_tiles(const __grid_constant__ TileLinear p, const swy_step* step) {
  extern __shared__ uint4 shared[];
  __shared__ uint32_t source[NT];
  depend();
  release_next();
  const uint32_t rows = step_rows(step, p.domain), first = blockIdx.y * NT;
  if (first >= rows) return;
  const uint32_t count = min(rows - first, static_cast<uint32_t>(NT));
  if (threadIdx.x < NT) source[threadIdx.x] = first + threadIdx.x;
  __syncthreads();
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const uint32_t base = blockIdx.x * kTileRows + warp * 32;
  float acc[2][NT / 8][4] = {};
  multiply_tile<kDtype, NT>(p.w, base, p.w, base + 16, p.w.rows - 1, p.w.rows - 1, p.x, source, count,
                            reinterpret_cast<char*>(shared), acc);
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int n = 0; n < NT / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t row = base + m * 16 + g + (i / 2) * 8, token = n * 8 + t * 2 + i % 2;
        if (row >= p.w.rows || token >= count) continue;
        const uint64_t at = uint64_t{first + token} * p.w.rows + row;
        const float y = acc[m][n][i] + bias_at(p.bias, row);
        p.y[at] = p.residual == nullptr ? y : y + p.residual[at];
      }
    }
  }
}

template <swy_dtype kDtype>
swy_status record_as(const Recording& r, const TileLinear& p, uint32_t rows) {
  const uint32_t x = ceil_div(p.w.rows, kTileRows);
  if (rows <= 32) {
    return launch(r, linear_tiles<kDtype, 32>, dim3(x, 1), kTileThreads, 2 * 32 * kTileStride, p, r.list.step);
  }
  return launch(r, linear_tiles<kDtype, 64>, dim3(x, ceil_div(rows, 64)), kTileThreads, 2 * 64 * kTileStride, p,
                r.list.step);
}

bool head(const swy_op& op) { return op.id == SWY_OP_LM_HEAD; }
uint32_t rows_of(const swy_op& op) {
  return static_cast<uint32_t>(head(op) ? swy::tensor(op, "logits").dims[0] : swy::tensor(op, "x").dims[0]);
}

// Output i alone, by the kernels for few rows: tiles cannot read its weight.
swy_status record_other(const Recording& r, const Projection& p, uint32_t i, uint32_t rows) {
  Projection one = p;
  one.weights[0] = p.weights[i];
  one.biases[0] = p.biases[i];
  one.y[0] = p.y[i];
  one.count = 1;
  one.forms = form_of(p.weights[i].dtype);
  return record_projection(r, one, rows);
}

swy_status record_tiles(const Recording& r) {
  const Projection p = head(r.op) ? head_projection(r, r.operands.output("logits")) : linear_projection(r);
  return record_projection_tiles(r, p, static_cast<uint16_t*>(r.operands.workspace()), rows_of(r.op));
}

swy_status supports_tiles(const swy_device& device, const swy_op& op, const swy_bucket&, swy_error* error) {
  SWY_CUDA_TRY(vector_usable(device, op, first_weight(op), end_of_weights(op), error));
  return tiles_usable(op, first_weight(op), rows_of(op), error);
}

double cost_tiles(const swy_device& device, const swy_op& op, const swy_bucket&) {
  double products = 0;
  for (uint32_t i = first_weight(op); i < end_of_weights(op); ++i) {
    products += tile_product_cost(device, *op.weights[i], rows_of(op));
  }
  return 6 + device.rates.bytes(row_bytes(op), 2e6) + products;
}

uint64_t workspace(const swy_device&, const swy_op& op, const swy_bucket&) {
  return permuted_elements(rows_of(op), static_cast<uint32_t>(swy::tensor(op, "x").dims[1])) * 2;
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
          .op_revision = op == SWY_OP_LM_HEAD ? 1u : 2u,
          .weight_dtypes = kMatrices};
}
constexpr Kernel kKernels[] = {
    kernel("linear.tiles", SWY_OP_LINEAR),
    kernel("linear_add.tiles", SWY_OP_LINEAR_ADD),
    kernel("rms_norm_linear.tiles", SWY_OP_RMS_NORM_LINEAR),
    kernel("lm_head.tiles", SWY_OP_LM_HEAD),
};

}  // namespace

swy_status tiles_usable(const swy_op& op, uint32_t weight, uint32_t rows, swy_error* error) {
  if (rows > 65535 * 64) return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "too many rows");
  if (tileable(*op.weights[weight])) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_DTYPE, "multiplies bf16 and quantized weights");
}

swy_status record_projection_tiles(const Recording& r, const Projection& p, uint16_t* permuted, uint32_t rows) {
  Permute x{};
  x.x = p.x;
  x.y = permuted;
  x.width = p.width;
  x.domain = p.domain;
  x.gather = p.gather;
  x.normed = p.normed;
  x.norm = p.norm;
  x.eps = p.eps;
  x.bias = p.bias;
  SWY_CUDA_TRY(record_permute(r, x, rows));
  for (uint32_t i = 0; i < p.count; ++i) {
    const swy_dtype d = p.weights[i].dtype;
    const TileLinear t{p.weights[i], {permuted, permuted_width(p.width)}, p.residual, p.biases[i], p.y[i], p.domain};
    SWY_CUDA_TRY(d == SWY_F32 ? record_other(r, p, i, rows) : SWY_TILED(d, record_as)(r, t, rows));
  }
  return SWY_OK;
}

// A block waits for its loads at every step along the rows of a weight; with many rows of activations there are enough
// blocks to hide that. Within a fifth of what was measured on an H200 from 1 to 2,048 rows.
double tile_product_cost(const swy_device& device, const swy_tensor& weight, uint32_t rows) {
  const double columns = rows <= 32 ? 32 : ceil_div(rows, 64) * 64;
  const double elements = static_cast<double>(weight.dims[0] * weight.dims[1]);
  const double walk = 2.7 * ceil_div(weight.dims[1], kTileBlock);
  const double products = device.rates.products(elements * columns, 80e6);
  const double bytes = device.rates.bytes(weight_bytes(weight), 2e6), longer = products > bytes ? products : bytes;
  return walk > longer ? walk : longer;
}

swy_status record_permute(const Recording& r, const Permute& p, uint32_t rows) {
  return launch(r, permute_rows, rows, 128, 0, p, r.list.step);
}

std::span<const Kernel> linear_tiles_kernels() { return kKernels; }

}  // namespace gpu
