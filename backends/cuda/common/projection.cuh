// SPDX-License-Identifier: Apache-2.0
// One input times several weights, a few rows at a time: the kernel of LINEAR, its fused forms and LM_HEAD.
#pragma once

#include "host/kernels.h"
#include "vector.cuh"

namespace gpu {

struct Projection {
  const float* x;         // [rows, width]
  const float* residual;  // [rows, rows of weight 0], or null
  float* y[SWY_LINEAR_MAX_WEIGHTS];
  Weight weights[SWY_LINEAR_MAX_WEIGHTS];
  Bias biases[SWY_LINEAR_MAX_WEIGHTS];              // of revision 2: added to the product; otherwise none
  uint32_t first_task[SWY_LINEAR_MAX_WEIGHTS + 1];  // a task: R rows of one weight
  uint32_t count;
  uint32_t width;
  uint32_t forms;
  swy_rows domain;
  bool gather;  // row i of the output is row logit_row[i] of x
  bool normed;
  Weight norm;
  float eps, bias;
};

// The index of an operation's first matrix: RMS_NORM_LINEAR has a norm before them.
inline uint32_t first_weight(const swy_op& op) { return swy::at(op, "w"); }
// The index after its last matrix; biases follow.
inline uint32_t end_of_weights(const swy_op& op) { return first_weight(op) + op.output_count; }
// The bias of output i.
inline Bias bias_of_output(const Recording& r, uint32_t i) {
  return swy::has(r.op, "bias") ? r.operands.bias(swy::at(r.op, "bias") + i) : Bias{};
}

// Fills normed, norm, eps and bias from an operation.
template <class Rows>
void take_norm(const Recording& r, Rows& rows) {
  rows.normed = r.op.id == SWY_OP_RMS_NORM_LINEAR;
  if (!rows.normed) return;
  rows.norm = r.operands.weight("norm");
  rows.eps = r.attrs<swy_rms_norm_attrs>().eps;
  rows.bias = r.attrs<swy_rms_norm_attrs>().weight_bias;
}

template <int R>
__host__ __device__ inline uint32_t tasks_of(const Weight& w) {
  return (w.rows + R - 1) / R;
}

// The weight to which a task belongs.
__device__ inline uint32_t weight_of_task(const Projection& p, uint32_t task) {
  uint32_t i = 0;
  while (i + 1 < p.count && task >= p.first_task[i + 1]) ++i;
  return i;
}

// Stages rows m0 to m0 + M - 1; with a norm, results must be multiplied by inverse[m].
template <int M>
__device__ inline void stage_rows(const Projection& p, const swy_step* step, const Activations& x, uint32_t m0,
                                  uint32_t rows, float (&inverse)[M]) {
  __shared__ float squares[M][32];
#pragma unroll
  for (int m = 0; m < M; ++m) {
    const uint32_t row = m0 + m;
    const float* from = nullptr;
    if (row < rows) {
      const uint32_t at = p.gather ? step_array<uint32_t>(step, step->logit_row_at)[row] : row;
      from = p.x + uint64_t{at} * p.width;
    }
    const float sum = warp_sum(stage_row(x, p.forms, m, from, p.normed ? &p.norm : nullptr, p.bias));
    if (threadIdx.x % 32 == 0) squares[m][threadIdx.x / 32] = sum;
  }
  __syncthreads();
#pragma unroll
  for (int m = 0; m < M; ++m) {
    inverse[m] = 1.0f;
    if (!p.normed) continue;
    float sum = 0;
    for (uint32_t w = 0; w < blockDim.x / 32; ++w) sum += squares[m][w];
    inverse[m] = rsqrtf(sum / static_cast<float>(p.width) + p.eps);
  }
}

// The products of one warp: R rows of a weight times M rows of activations. Calls done(weight, row of the weight,
// row of the activations, value) on one lane each.
template <int M, int R, int U, class Done>
__device__ inline void project(const Projection& p, const swy_step* step, Done done) {
  extern __shared__ uint4 shared[];
  const uint32_t total = p.first_task[p.count];
  const uint32_t task = blockIdx.x * kVectorWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t index = weight_of_task(p, min(task, total - 1));
  const Weight& w = p.weights[index];
  const uint32_t row0 = (min(task, total - 1) - p.first_task[index]) * R;
  WeightRows<R> weight_rows{w, {}};
#pragma unroll
  for (int r = 0; r < R; ++r) weight_rows.row[r] = min(row0 + r, w.rows - 1);
  Pieces<R, U> pieces;
  const uint32_t count = task < total ? pieces_of(w.dtype, p.width) : 0;
  fetch<R, U>(weight_rows, w.dtype, 0, count, pieces);
  release_next();
  const uint32_t rows = step_rows(step, p.domain), m0 = blockIdx.y * M;
  depend();
  if (m0 >= rows) return;
  const Activations x(shared, p.forms, M, p.width);
  float inverse[M];
  stage_rows<M>(p, step, x, m0, rows, inverse);
  if (task >= total) return;
  float acc[R][M] = {};
  multiply<M, R, U>(weight_rows, w.dtype, x, pieces, acc);
#pragma unroll
  for (int r = 0; r < R; ++r) {
#pragma unroll
    for (int m = 0; m < M; ++m) {
      // Not part of a fused addition, which would depend on the kernel's shape.
      const float sum = __fmul_rn(warp_sum(acc[r][m]), inverse[m]);
      if (lane == static_cast<uint32_t>(r * M + m) % 32 && row0 + r < w.rows && m0 + m < rows) {
        done(index, row0 + r, m0 + m, sum);
      }
    }
  }
}

// An operation's operands as a projection: LINEAR and its fused forms (linear.cu), and the head (lm_head.cu).
Projection linear_projection(const Recording& r);
Projection head_projection(const Recording& r, float* y);

// How many rows of activations a block processes at once, and how many of weights a warp: as many bytes in flight for
// few long rows as for many short ones.
struct VectorShape {
  int m, r, u;
};
VectorShape vector_shape(const swy_device& device, uint32_t rows, uint32_t width, uint32_t forms);

// Whether the vector kernels can read weights first to end - 1, which have rows of one width, and a row of activations
// fits into shared memory.
swy_status vector_usable(const swy_device& device, const swy_op& op, uint32_t first, uint32_t end, swy_error* error);

// Records a projection of `rows` rows with the kernels of linear.cu.
swy_status record_projection(const Recording& r, Projection& p, uint32_t rows);
// The same for weights of any shape.
swy_status record_projection_plain(const Recording& r, Projection& p, uint32_t rows);

}  // namespace gpu
