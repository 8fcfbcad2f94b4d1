// SPDX-License-Identifier: Apache-2.0
// LINEAR, LINEAR_ADD and RMS_NORM_LINEAR for few rows: y_i [rows, out_i] = norm(x) [rows, in] * w_i^T (+ bias_i)
// (+ residual).
//
//   *.vector  16 bytes per lane of every weight, 16-bit integer activations for quantized ones (vector.cuh)
//   *.plain   any shape, fp32, one warp per element of the output
#include "common/projection.cuh"

namespace gpu {
namespace {

template <int M, int R, int U>
__global__ void __launch_bounds__(kVectorWarps * 32, 2)
    linear_vector(const __grid_constant__ Projection p, const swy_step* step) {
  project<M, R, U>(p, step, [&](uint32_t i, uint32_t row, uint32_t m, float sum) {
    const uint64_t at = uint64_t{m} * p.weights[i].rows + row;
    const float y = sum + bias_at(p.biases[i], row);
    p.y[i][at] = p.residual == nullptr ? y : y + p.residual[at];
  });
}

// One warp per output element (blockIdx.y: row of x); no alignment is required.
__global__ void linear_plain(const __grid_constant__ Projection p, const swy_step* step) {
  depend();
  release_next();
  const uint32_t rows = step_rows(step, p.domain), lane = threadIdx.x % 32;
  const uint32_t task = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (task >= p.first_task[p.count]) return;
  const uint32_t i = weight_of_task(p, task), row = task - p.first_task[i];
  for (uint32_t m = blockIdx.y; m < rows; m += gridDim.y) {
    const uint32_t from = p.gather ? step_array<uint32_t>(step, step->logit_row_at)[m] : m;
    const float* x = p.x + uint64_t{from} * p.width;
    float sum = 0, squares = 0;
    for (uint32_t k = lane; k < p.width; k += 32) {
      float v = x[k];
      squares = fmaf(v, v, squares);
      if (p.normed) v *= p.bias + plain_at(p.norm, k);
      sum = fmaf(v, weight_at(p.weights[i], row, k), sum);
    }
    sum = warp_sum(sum);
    if (p.normed) sum *= rsqrtf(warp_sum(squares) / static_cast<float>(p.width) + p.eps);
    if (lane != 0) continue;
    const uint64_t at = uint64_t{m} * p.weights[i].rows + row;
    sum += bias_at(p.biases[i], row);
    p.y[i][at] = p.residual == nullptr ? sum : sum + p.residual[at];
  }
}

template <int M, int R, int U>
swy_status record_vector(const Recording& r, Projection& p, uint32_t rows) {
  p.first_task[0] = 0;
  for (uint32_t i = 0; i < p.count; ++i) p.first_task[i + 1] = p.first_task[i] + tasks_of<R>(p.weights[i]);
  const dim3 grid(ceil_div(p.first_task[p.count], kVectorWarps), ceil_div(rows, M));
  return launch(r, linear_vector<M, R, U>, grid, kVectorWarps * 32, Activations::bytes_of(p.forms, M, p.width), p,
                r.list.step);
}

swy_status record_linear(const Recording& r) {
  Projection p = linear_projection(r);
  return record_projection(r, p, static_cast<uint32_t>(swy::tensor(r.op, "x").dims[0]));
}

swy_status record_linear_plain(const Recording& r) {
  Projection p = linear_projection(r);
  return record_projection_plain(r, p, static_cast<uint32_t>(swy::tensor(r.op, "x").dims[0]));
}

swy_status supports_vector(const swy_device& device, const swy_op& op, const swy_bucket&, swy_error* error) {
  return vector_usable(device, op, first_weight(op), end_of_weights(op), error);
}

double cost_vector(const swy_device& device, const swy_op& op, const swy_bucket&) {
  double bytes = row_bytes(op), elements = 0;
  const uint64_t rows = swy::tensor(op, "x").dims[0];
  const auto more = static_cast<double>(rows == 1 ? 0 : ceil_div(rows, 4) * 4 - 1);  // they are multiplied by fours
  for (uint32_t i = first_weight(op); i < end_of_weights(op); ++i) {
    bytes += weight_bytes(*op.weights[i]);
    elements += static_cast<double>(op.weights[i]->dims[0] * op.weights[i]->dims[1]);
  }
  return 2 + device.rates.bytes(bytes, 1.4e6) + device.rates.floats(elements * more, 4.5e6);
}
double cost_plain(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  return 20 * cost_vector(device, op, bucket);
}

constexpr Kernel vector_kernel(const char* name, uint32_t op) {
  return {.name = name,
          .op = op,
          .flags = kInvariant,
          .activations = SWY_BF16,
          .supports = supports_vector,
          .cost = cost_vector,
          .record = record_linear,
          .op_revision = 2,
          .weight_dtypes = kMatrices};
}
constexpr Kernel plain_kernel(const char* name, uint32_t op) {
  return {.name = name,
          .op = op,
          .flags = kInvariant,
          .activations = SWY_F32,
          .cost = cost_plain,
          .record = record_linear_plain,
          .op_revision = 2,
          .weight_dtypes = kMatrices};
}
constexpr Kernel kKernels[] = {
    vector_kernel("linear.vector", SWY_OP_LINEAR),
    vector_kernel("linear_add.vector", SWY_OP_LINEAR_ADD),
    vector_kernel("rms_norm_linear.vector", SWY_OP_RMS_NORM_LINEAR),
    plain_kernel("linear.plain", SWY_OP_LINEAR),
    plain_kernel("linear_add.plain", SWY_OP_LINEAR_ADD),
    plain_kernel("rms_norm_linear.plain", SWY_OP_RMS_NORM_LINEAR),
};

}  // namespace

Projection linear_projection(const Recording& r) {
  const swy_op& op = r.op;
  Projection p{};
  p.x = r.operands.input("x");
  p.residual = r.operands.input("residual");
  p.width = static_cast<uint32_t>(swy::tensor(op, "x").dims[1]);
  p.domain = swy::tensor(op, "x").rows;
  take_norm(r, p);
  const uint32_t first = first_weight(op);
  p.count = op.output_count;
  for (uint32_t i = 0; i < p.count; ++i) {
    p.weights[i] = r.operands.weight(first + i);
    p.forms |= form_of(p.weights[i].dtype);
    p.biases[i] = bias_of_output(r, i);
    p.y[i] = r.operands.output(i);
  }
  return p;
}

VectorShape vector_shape(const swy_device& device, uint32_t rows, uint32_t width, uint32_t forms) {
  const auto fits = [&](uint32_t m) {
    return Activations::bytes_of(forms, m, width) + 4096 <= device.features.block_memory;
  };
  if (rows > 4 && fits(8)) return {8, 2, 2};
  if (rows > 1 && fits(4)) return {4, 2, 2};
  return width > 2048 ? VectorShape{1, 2, 4} : VectorShape{1, 4, 2};
}

swy_status vector_usable(const swy_device& device, const swy_op& op, uint32_t first, uint32_t end, swy_error* error) {
  uint32_t forms = 0;
  for (uint32_t i = first; i < end; ++i) {
    if (!readable_by_vectors(*op.weights[i])) return refuse_rows(op, i, error);
    forms |= form_of(op.weights[i]->dtype);
  }
  const auto width = static_cast<uint32_t>(op.weights[first]->dims[op.weights[first]->rank - 1]);
  if (Activations::bytes_of(forms, 1, width) + 4096 > device.features.block_memory) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "a row of %u does not fit the shared memory", width);
  }
  return SWY_OK;
}

swy_status record_projection(const Recording& r, Projection& p, uint32_t rows) {
  bool rare = false;
  for (uint32_t i = 0; i < p.count; ++i) rare = rare || is_rare(p.weights[i]);
  const VectorShape s = vector_shape(r.device(), rare && rows > kMostRareRows ? kMostRareRows : rows, p.width, p.forms);
  if (s.m == 8) return record_vector<8, 2, 2>(r, p, rows);
  if (s.m == 4) return record_vector<4, 2, 2>(r, p, rows);
  return s.r == 2 ? record_vector<1, 2, 4>(r, p, rows) : record_vector<1, 4, 2>(r, p, rows);
}

swy_status record_projection_plain(const Recording& r, Projection& p, uint32_t rows) {
  for (uint32_t i = 0; i < p.count; ++i) p.first_task[i + 1] = p.first_task[i] + p.weights[i].rows;
  return launch(r, linear_plain, dim3(ceil_div(p.first_task[p.count], 8), rows < 1024 ? rows : 1024), 256, 0, p,
                r.list.step);
}

std::span<const Kernel> linear_kernels() { return kKernels; }

}  // namespace gpu
