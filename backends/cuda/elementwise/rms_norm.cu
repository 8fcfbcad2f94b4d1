// SPDX-License-Identifier: Apache-2.0
// RMS_NORM and ADD_RMS_NORM: y [rows, width] = s * rsqrt(mean(s^2) + eps) * (bias + w), s = x (+ x2, written too).
// HEAD_RMS_NORM: the same of each head of a row; GATED_RMS_NORM: that, with a bias of 0, times silu(z).
#include "common/device_code.cuh"
#include "host/kernels.h"

namespace gpu {
namespace {

constexpr uint32_t kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    norm_rows(const float* x, const float* x2, const __grid_constant__ Weight w, float* sum, float* y, float eps,
              float bias, swy_rows domain, const swy_step* step) {
  __shared__ float scratch[32];
  constexpr int kHeld = 8;  // elements that a thread keeps in registers
  Stamps stamps(kStampNorm);
  const uint64_t row = blockIdx.x, at = row * w.width;
  const uint32_t rows = step_rows(step, domain);
  float weight[kHeld], v[kHeld], squares = 0;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const uint32_t i = j * kThreads + threadIdx.x;
    weight[j] = i < w.width ? bias + plain_at(w, i) : 0.0f;
  }
  release_next();
  stamps.take_place();
  depend();
  stamps.note(kWaited);
  if (row >= rows) return;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const uint32_t i = j * kThreads + threadIdx.x;
    v[j] = i < w.width ? x[at + i] : 0.0f;
    if (x2 != nullptr && i < w.width) {
      v[j] += x2[at + i];
      sum[at + i] = v[j];
    }
    squares = fmaf(v[j], v[j], squares);
  }
  for (uint32_t i = kHeld * kThreads + threadIdx.x; i < w.width; i += kThreads) {
    float rest = x[at + i];
    if (x2 != nullptr) {
      rest += x2[at + i];
      sum[at + i] = rest;
    }
    squares = fmaf(rest, rest, squares);
  }
  const float scale = rsqrtf(block_sum(squares, scratch) / static_cast<float>(w.width) + eps);
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const uint32_t i = j * kThreads + threadIdx.x;
    if (i < w.width) y[at + i] = v[j] * scale * weight[j];
  }
  const float* from = x2 != nullptr ? sum : x;  // each thread reads what it wrote
  for (uint32_t i = kHeld * kThreads + threadIdx.x; i < w.width; i += kThreads) {
    y[at + i] = from[at + i] * scale * (bias + plain_at(w, i));
  }
}

struct HeadNorms {
  const float *x, *z;  // z: null without a gate
  float* y;
  Weight w;
  uint32_t heads, head_dim;
  float eps, bias;
  swy_rows domain;
};

// A warp per head; blockIdx.y: rows.
__global__ void __launch_bounds__(kThreads) norm_heads(const __grid_constant__ HeadNorms p, const swy_step* step) {
  depend();
  release_next();
  const uint32_t head = blockIdx.x * (kThreads / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (head >= p.heads) return;
  const uint32_t rows = step_rows(step, p.domain);
  for (uint32_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const uint64_t at = (uint64_t{row} * p.heads + head) * p.head_dim;
    float squares = 0;
    for (uint32_t i = lane; i < p.head_dim; i += 32) squares = fmaf(p.x[at + i], p.x[at + i], squares);
    const float scale = rsqrtf(warp_sum(squares) / static_cast<float>(p.head_dim) + p.eps);
    for (uint32_t i = lane; i < p.head_dim; i += 32) {
      const float y = p.x[at + i] * scale * (p.bias + plain_at(p.w, i));
      p.y[at + i] = p.z == nullptr ? y : y * silu(p.z[at + i]);
    }
  }
}

swy_status record_head_norm(const Recording& r) {
  const auto& a = r.attrs<swy_heads_attrs>();
  const swy_tensor& x = swy::tensor(r.op, "x");
  const float* z = r.operands.input("z");
  const HeadNorms p{r.operands.input("x"),
                    z,
                    r.operands.output("y"),
                    r.operands.weight("w"),
                    a.heads,
                    a.head_dim,
                    a.eps,
                    z != nullptr ? 0 : a.weight_bias,
                    x.rows};
  const auto rows = static_cast<uint32_t>(x.dims[0]);
  return launch(r, norm_heads, dim3(ceil_div(a.heads, kThreads / 32), rows < 16384 ? rows : 16384), kThreads, 0, p,
                r.list.step);
}

swy_status record_norm(const Recording& r) {
  const auto& a = r.attrs<swy_rms_norm_attrs>();
  const swy_tensor& x = swy::tensor(r.op, "x");
  return launch(r, norm_rows, static_cast<uint32_t>(x.dims[0]), kThreads, 0, r.operands.input("x"),
                r.operands.input("residual"), r.operands.weight("w"), r.operands.output("sum"), r.operands.output("y"),
                a.eps, a.weight_bias, x.rows, r.list.step);
}

double cost_norm(const swy_device& device, const swy_op& op, const swy_bucket&) {
  return cost_of(device, row_bytes(op), 0);
}

constexpr Kernel kKernels[] = {
    {"rms_norm.plain", SWY_OP_RMS_NORM, kInvariant, SWY_F32, nullptr, cost_norm, nullptr, record_norm},
    {"add_rms_norm.plain", SWY_OP_ADD_RMS_NORM, kInvariant, SWY_F32, nullptr, cost_norm, nullptr, record_norm},
    {"head_rms_norm.plain", SWY_OP_HEAD_RMS_NORM, kInvariant, SWY_F32, nullptr, cost_norm, nullptr, record_head_norm},
    {"gated_rms_norm.plain", SWY_OP_GATED_RMS_NORM, kInvariant, SWY_F32, nullptr, cost_norm, nullptr, record_head_norm},
};

}  // namespace

std::span<const Kernel> rms_norm_kernels() { return kKernels; }

}  // namespace gpu
