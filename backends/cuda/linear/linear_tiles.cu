// SPDX-License-Identifier: Apache-2.0
// LINEAR, LINEAR_ADD, RMS_NORM_LINEAR and LM_HEAD for many rows, on tensor cores (tiles.cuh).
#include "common/projection.cuh"
#include "common/tiles.cuh"

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
    const uint32_t in = i % 16, t = in / 4, j = in % 4;
    y[i - in + j * 4 + t] =
        make_uint4(pack_bf16(v[0], v[4]), pack_bf16(v[1], v[5]), pack_bf16(v[2], v[6]), pack_bf16(v[3], v[7]));
  }
}

struct TileLinear {
  Weight w;
  TileInput x;
  const float* residual;
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
        p.y[at] = p.residual == nullptr ? acc[m][n][i] : acc[m][n][i] + p.residual[at];
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

// Weights that tiles cannot read are multiplied by the kernels for few rows.
swy_status record_other(const Recording& r, uint32_t weight, float* y, const Permute& x, uint32_t rows) {
  Projection p{};
  p.x = x.x;
  p.y[0] = y;
  p.weights[0] = r.operands.weight(weight);
  p.count = 1;
  p.width = x.width;
  p.forms = form_of(p.weights[0].dtype);
  p.domain = x.domain;
  p.gather = x.gather;
  p.normed = x.normed;
  p.norm = x.norm;
  p.eps = x.eps;
  p.bias = x.bias;
  return record_projection(r, p, rows);
}

swy_status record_tiles(const Recording& r) {
  const swy_op& op = r.op;
  const uint32_t rows = rows_of(op);
  Permute x{};
  x.x = r.operands.input("x");
  x.y = static_cast<uint16_t*>(r.operands.workspace());
  x.width = static_cast<uint32_t>(swy::tensor(op, "x").dims[1]);
  x.domain = head(op) ? static_cast<swy_rows>(SWY_ROWS_LOGITS) : swy::tensor(op, "x").rows;
  x.gather = head(op);
  take_norm(r, x);
  SWY_CUDA_TRY(record_permute(r, x, rows));
  for (uint32_t i = first_weight(op), o = 0; i < op.weight_count; ++i, ++o) {
    const TileLinear p{r.operands.weight(i),
                       {x.y, permuted_width(x.width)},
                       r.operands.input("residual"),
                       r.operands.output(o),
                       x.domain};
    const swy_dtype d = p.w.dtype;
    SWY_CUDA_TRY(!tileable(*op.weights[i]) ? record_other(r, i, p.y, x, rows)
                 : d == SWY_BF16           ? record_as<SWY_BF16>(r, p, rows)
                 : d == SWY_I8             ? record_as<SWY_I8>(r, p, rows)
                                           : record_as<SWY_I4>(r, p, rows));
  }
  return SWY_OK;
}

swy_status supports_tiles(const swy_device& device, const swy_op& op, const swy_bucket&, swy_error* error) {
  SWY_CUDA_TRY(vector_usable(device, op, first_weight(op), error));
  if (rows_of(op) > 65535 * 64) return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "too many rows");
  if (tileable(*op.weights[first_weight(op)])) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_DTYPE, "multiplies bf16 and quantized weights");
}

double cost_tiles(const swy_device& device, const swy_op& op, const swy_bucket&) {
  double bytes = row_bytes(op), elements = 0;
  for (uint32_t i = first_weight(op); i < op.weight_count; ++i) {
    bytes += weight_bytes(*op.weights[i]);
    elements += static_cast<double>(op.weights[i]->dims[0] * op.weights[i]->dims[1]);
  }
  const double columns = (rows_of(op) + 31) / 32 * 32;
  return 60 + device.rates.bytes(bytes, 2e6) + device.rates.products(elements * columns, 70e6);
}

uint64_t workspace(const swy_device&, const swy_op& op, const swy_bucket&) {
  return uint64_t{rows_of(op)} * permuted_width(static_cast<uint32_t>(swy::tensor(op, "x").dims[1])) * 2;
}

constexpr Kernel kernel(const char* name, uint32_t op) {
  return {name, op, kAlways, SWY_BF16, supports_tiles, cost_tiles, workspace, record_tiles};
}
constexpr Kernel kKernels[] = {
    kernel("linear.tiles", SWY_OP_LINEAR),
    kernel("linear_add.tiles", SWY_OP_LINEAR_ADD),
    kernel("rms_norm_linear.tiles", SWY_OP_RMS_NORM_LINEAR),
    kernel("lm_head.tiles", SWY_OP_LM_HEAD),
};

}  // namespace

swy_status record_permute(const Recording& r, const Permute& p, uint32_t rows) {
  return launch(r, permute_rows, rows, 128, 0, p, r.list.step);
}

std::span<const Kernel> linear_tiles_kernels() { return kKernels; }

}  // namespace gpu
