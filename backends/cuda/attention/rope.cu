// SPDX-License-Identifier: Apache-2.0
// ROPE: y [rows, heads, head_dim], heads rotated by the positions of their rows.
#include "rope.cuh"

#include <cmath>

namespace gpu {
namespace {

struct Rope : Rotation {
  const float* x;
  float* y;
  uint32_t width, head_dim, rotary;
};

// blockIdx.y: rows.
__global__ void __launch_bounds__(256) rotate(const __grid_constant__ Rope p, const swy_step* step) {
  depend();
  release_next();
  const uint32_t half = p.rotary / 2;
  for (uint32_t row = blockIdx.y; row < step->rows; row += gridDim.y) {
    const uint32_t position = step_array<uint32_t>(step, step->row_position_at)[row];
    const float* x = p.x + uint64_t{row} * p.width;
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < p.width; i += gridDim.x * blockDim.x) {
      const uint32_t in = i % p.head_dim;
      float v = x[i];
      if (in < p.rotary) {
        const bool low = in < half;
        const float2 t = sine_cosine(p, low ? in : in - half, position);
        v = fmaf(v, t.y, (low ? -x[i + half] : x[i - half]) * t.x);
      }
      p.y[uint64_t{row} * p.width + i] = v;
    }
  }
}

swy_status record_rope(const Recording& r) {
  const auto& a = r.attrs<swy_heads_attrs>();
  const swy_tensor& x = swy::tensor(r.op, "x");
  const auto rows = static_cast<uint32_t>(x.dims[0]), width = static_cast<uint32_t>(x.dims[1]);
  Rope p{};
  take_rotation(r, a.rotary_dim, a.rope_theta, a.rope_scale, p);
  p.x = r.operands.input("x");
  p.y = r.operands.output("y");
  p.width = width;
  p.head_dim = a.head_dim;
  p.rotary = a.rotary_dim;
  const uint32_t blocks = ceil_div(width, 256);
  return launch(r, rotate, dim3(blocks < 64 ? blocks : 64, rows < 4096 ? rows : 4096), 256, 0, p, r.list.step);
}

swy_status supports_rope(const swy_device&, const swy_op& op, const swy_bucket&, swy_error* error) {
  const uint32_t rotary = static_cast<const swy_heads_attrs*>(op.attrs)->rotary_dim;
  if (op.revision > 1 || rotary <= kMostRotary) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "rotary_dim is %u; at most %u elements can rotate", rotary,
                   kMostRotary);
}

double cost_rope(const swy_device& device, const swy_op& op, const swy_bucket&) {
  return cost_of(device, row_bytes(op), 0);
}

constexpr Kernel kKernels[] = {{.name = "rope.plain",
                                .op = SWY_OP_ROPE,
                                .flags = kInvariant,
                                .activations = SWY_F32,
                                .supports = supports_rope,
                                .cost = cost_rope,
                                .record = record_rope,
                                .op_revision = 2}};

}  // namespace

void take_rotation(const Recording& r, uint32_t rotary_dim, float theta, float scale, Rotation& out) {
  out.inv_freq = static_cast<const float*>(r.operands.bias("inv_freq").data);
  out.rope_scale = r.op.revision == 1 ? 1 : scale;
  for (uint32_t i = 0; r.op.revision == 1 && i < rotary_dim / 2; ++i) {
    out.turns[i] = std::pow(static_cast<double>(theta), -2.0 * i / rotary_dim) / (2 * M_PI);
  }
}

std::span<const Kernel> rope_kernels() { return kKernels; }

}  // namespace gpu
