// SPDX-License-Identifier: Apache-2.0
// MOE, MOE_ADD and EXPERTS for few rows, each with its own experts.
//
//   router    router.cu
//   gate_up   h = act(gate, up) of the chosen experts and the shared one
//   down      y = sum p_e (down_e h_e + bias_e) + sigmoid(mix) * shared (+ residual)
//
// *.vector reads weights in 16-byte pieces (vector.cuh); *.plain takes any shape, in fp32.
#include "common/projection.cuh"
#include "mixture.h"
#include "moe.cuh"

namespace gpu {
namespace {

constexpr uint32_t kThreads = kVectorWarps * 32;

// Two gate rows and their two up rows.
struct GateUpRows {
  const Weight *gate, *up;
  uint64_t gate_row[2], up_row[2];

  __device__ const Weight& of(int r) const { return r < 2 ? *gate : *up; }
  __device__ uint64_t row(int r) const { return r < 2 ? gate_row[r] : up_row[r - 2]; }
  __device__ PieceAt at(int r, uint32_t p) const { return {of(r), row(r), p}; }
  __device__ bool halved() const { return is_halved(*gate) || is_halved(*up); }
};

// The biases of an element of h, of one expert; 0 of the shared one.
struct GateUpBias {
  float gate, up;
};
__device__ inline GateUpBias gate_up_bias(const Mixture& m, bool routed, uint64_t expert, uint32_t i) {
  if (!routed) return {0, 0};
  const uint64_t at = expert * 2 * m.width + i;
  return {bias_at(m.gate_up_bias, at), bias_at(m.gate_up_bias, at + m.width)};
}

// Where one element of h belongs: its expert's slot (top_k: the shared expert) and its row there.
struct GateUpTask {
  uint32_t slot, first, width;
};
__device__ inline GateUpTask gate_up_task(const Mixture& m, uint32_t task, uint32_t per_task) {
  const uint32_t per_slot = (m.width + per_task - 1) / per_task;
  const uint32_t slot = min(task / per_slot, m.top_k);
  return {slot, (task - slot * per_slot) * per_task, slot < m.top_k ? m.width : m.shared_width};
}
__host__ __device__ inline uint32_t gate_up_tasks(const Mixture& m, uint32_t per_task) {
  return m.top_k * ((m.width + per_task - 1) / per_task) + (m.shared_width + per_task - 1) / per_task;
}

__global__ void __launch_bounds__(kThreads) gate_up_vector(const __grid_constant__ Mixture m, const swy_step* step) {
  extern __shared__ uint4 shared[];
  const uint32_t row = blockIdx.y, lane = threadIdx.x % 32;
  const uint32_t task = blockIdx.x * kVectorWarps + threadIdx.x / 32;
  const bool there = task < gate_up_tasks(m, 2);
  const GateUpTask t = gate_up_task(m, there ? task : 0, 2);
  release_next();
  depend();
  if (row >= step_rows(step, m.domain)) return;
  const bool routed = t.slot < m.top_k;
  const uint64_t expert =
      routed ? min(static_cast<uint32_t>(m.ids[uint64_t{row} * m.top_k + t.slot]), m.experts - 1) : 0;
  GateUpRows rows{routed ? &m.gate_up : &m.shared_gate, routed ? &m.gate_up : &m.shared_up, {}, {}};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t at = min(t.first + i, t.width - 1);
    rows.gate_row[i] = routed ? expert * 2 * m.width + at : at;
    rows.up_row[i] = routed ? expert * 2 * m.width + m.width + at : at;
  }
  const swy_dtype dtype = rows.gate->dtype;
  Pieces<4, 2> pieces;
  if (there) fetch<4, 2>(rows, dtype, 0, pieces_of(dtype, m.hidden), pieces);
  const uint32_t forms = form_of(m.gate_up.dtype) | (m.shared_width != 0 ? form_of(m.shared_gate.dtype) : 0);
  const Activations x(shared, forms, 1, m.hidden);
  stage_row(x, forms, 0, m.x + uint64_t{row} * m.hidden, nullptr, 0);
  __syncthreads();
  if (!there) return;
  float acc[4][1] = {};
  multiply<1, 4, 2>(rows, dtype, x, pieces, acc);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float gate = warp_sum(acc[i][0]), up = warp_sum(acc[2 + i][0]);
    if (lane != static_cast<uint32_t>(i) || t.first + i >= t.width) continue;
    const GateUpBias b = gate_up_bias(m, routed, expert, t.first + i);
    m.h[uint64_t{row} * m.h_width() + t.slot * m.width + t.first + i] = activated(m.act, gate + b.gate, up + b.up);
  }
}

// Rows of the down projections of all chosen experts, as if they were one long row each.
struct DownRows {
  const Weight& w;
  const uint32_t* experts;  // of the slots
  uint32_t row[2], pieces, hidden;

  __device__ PieceAt at(int r, uint32_t p) const {
    const uint32_t slot = p / pieces;
    return {w, uint64_t{experts[slot]} * hidden + row[r], p - slot * pieces};
  }
  __device__ bool halved() const { return is_halved(w); }
};

// h of one row, times the experts' weights, into shared memory.
__device__ inline void stage_h(const Activations& x, uint32_t forms, const float* h, uint32_t slot_width,
                               const float* p) {
  const uint32_t eights = x.width / 8;
  for (uint32_t first = 0; first < eights; first += blockDim.x) {
    const uint32_t i = first + threadIdx.x;
    float v[8] = {};
    if (i < eights) load_eight(h + 8 * i, v);
    stage_eight(x, forms, 0, i, i < eights, v, i < eights ? p[8 * i / slot_width] : 0.0f);
  }
}

__global__ void __launch_bounds__(kThreads) down_vector(const __grid_constant__ Mixture m, const swy_step* step) {
  extern __shared__ uint4 shared[];
  __shared__ uint32_t experts[32];
  const uint32_t row = blockIdx.y, lane = threadIdx.x % 32;
  const uint32_t first = (blockIdx.x * kVectorWarps + threadIdx.x / 32) * 2;
  const uint32_t routed_bytes = Activations::bytes_of(form_of(m.down.dtype), 1, m.top_k * m.width);
  const uint32_t row0 = min(first, m.hidden - 1), row1 = min(first + 1, m.hidden - 1);
  const WeightRows<2> shared_rows{m.shared_down, {row0, row1}};
  Pieces<2, 1> shared_pieces;
  const bool has_shared = m.shared_width != 0;
  if (has_shared) {
    fetch<2, 1>(shared_rows, m.shared_down.dtype, 0, pieces_of(m.shared_down.dtype, m.shared_width), shared_pieces);
  }
  release_next();
  depend();
  if (row >= step_rows(step, m.domain)) return;
  if (threadIdx.x < m.top_k) {
    experts[threadIdx.x] = min(static_cast<uint32_t>(m.ids[uint64_t{row} * m.top_k + threadIdx.x]), m.experts - 1);
  }
  __syncthreads();
  const DownRows rows{m.down, experts, {row0, row1}, pieces_of(m.down.dtype, m.width), m.hidden};
  Pieces<2, 4> pieces;
  fetch<2, 4>(rows, m.down.dtype, 0, pieces_of(m.down.dtype, m.top_k * m.width), pieces);
  const Activations x(shared, form_of(m.down.dtype), 1, m.top_k * m.width);
  const Activations xs(reinterpret_cast<char*>(shared) + routed_bytes, form_of(m.shared_down.dtype), 1, m.shared_width);
  const float* h = m.h + uint64_t{row} * m.h_width();
  stage_h(x, form_of(m.down.dtype), h, m.width, m.p + uint64_t{row} * m.top_k);
  if (has_shared) stage_h(xs, form_of(m.shared_down.dtype), h + m.top_k * m.width, m.shared_width, m.shared_p + row);
  __syncthreads();
  float acc[2][1] = {};
  multiply<1, 2, 4>(rows, m.down.dtype, x, pieces, acc);
  if (has_shared) multiply<1, 2, 1>(shared_rows, m.shared_down.dtype, xs, shared_pieces, acc);
  if (m.down_bias.data != nullptr && lane < m.top_k) {
    const float p = m.p[uint64_t{row} * m.top_k + lane];
    const uint64_t of = uint64_t{experts[lane]} * m.hidden;
    acc[0][0] = fmaf(p, bias_at(m.down_bias, of + row0), acc[0][0]);
    acc[1][0] = fmaf(p, bias_at(m.down_bias, of + row1), acc[1][0]);
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float sum = warp_sum(acc[r][0]);
    if (lane != static_cast<uint32_t>(r) || first + r >= m.hidden) continue;
    const uint64_t at = uint64_t{row} * m.hidden + first + r;
    m.y[at] = m.residual == nullptr ? sum : sum + m.residual[at];
  }
}

// A warp per element of h.
__global__ void gate_up_plain(const __grid_constant__ Mixture m, const swy_step* step) {
  depend();
  release_next();
  const uint32_t rows = step_rows(step, m.domain), lane = threadIdx.x % 32;
  const uint32_t task = blockIdx.x * kVectorWarps + threadIdx.x / 32;
  if (task >= gate_up_tasks(m, 1)) return;
  const GateUpTask t = gate_up_task(m, task, 1);
  const bool routed = t.slot < m.top_k;
  for (uint32_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const float* x = m.x + uint64_t{row} * m.hidden;
    const uint64_t expert =
        routed ? min(static_cast<uint32_t>(m.ids[uint64_t{row} * m.top_k + t.slot]), m.experts - 1) : 0;
    const uint64_t at = routed ? expert * 2 * m.width + t.first : t.first;
    float gate = 0, up = 0;
    for (uint32_t k = lane; k < m.hidden; k += 32) {
      gate = fmaf(x[k], weight_at(routed ? m.gate_up : m.shared_gate, at, k), gate);
      up = fmaf(x[k], weight_at(routed ? m.gate_up : m.shared_up, routed ? at + m.width : at, k), up);
    }
    gate = warp_sum(gate);
    up = warp_sum(up);
    if (lane != 0) continue;
    const GateUpBias b = gate_up_bias(m, routed, expert, t.first);
    m.h[uint64_t{row} * m.h_width() + t.slot * m.width + t.first] = activated(m.act, gate + b.gate, up + b.up);
  }
}

// A warp per element of y.
__global__ void down_plain(const __grid_constant__ Mixture m, const swy_step* step) {
  depend();
  release_next();
  const uint32_t rows = step_rows(step, m.domain), lane = threadIdx.x % 32;
  const uint32_t i = blockIdx.x * kVectorWarps + threadIdx.x / 32;
  if (i >= m.hidden) return;
  for (uint32_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const float* h = m.h + uint64_t{row} * m.h_width();
    float sum = 0;
    for (uint32_t slot = 0; slot < m.top_k; ++slot) {
      const uint32_t expert = min(static_cast<uint32_t>(m.ids[uint64_t{row} * m.top_k + slot]), m.experts - 1);
      float part = 0;
      for (uint32_t k = lane; k < m.width; k += 32) {
        part = fmaf(h[slot * m.width + k], weight_at(m.down, uint64_t{expert} * m.hidden + i, k), part);
      }
      if (lane == 0) part += bias_at(m.down_bias, uint64_t{expert} * m.hidden + i);
      sum = fmaf(m.p[uint64_t{row} * m.top_k + slot], part, sum);
    }
    float part = 0;
    for (uint32_t k = lane; k < m.shared_width; k += 32) {
      part = fmaf(h[m.top_k * m.width + k], weight_at(m.shared_down, i, k), part);
    }
    if (m.shared_width != 0) sum = fmaf(m.shared_p[row], part, sum);
    sum = warp_sum(sum);
    const uint64_t at = uint64_t{row} * m.hidden + i;
    if (lane == 0) m.y[at] = m.residual == nullptr ? sum : sum + m.residual[at];
  }
}

swy_status record_moe_vector(const Recording& r) {
  Arena arena(r.operands.workspace());
  const Mixture m = mixture_of(r, arena);
  const auto rows = static_cast<uint32_t>(swy::tensor(r.op, "x").dims[0]);
  uint32_t* counters = take_counters(r.list, rows, r.error);
  if (counters == nullptr) return SWY_UNSUPPORTED;
  SWY_CUDA_TRY(record_router(r, m, rows, counters));
  const uint32_t forms = form_of(m.gate_up.dtype) | (m.shared_width != 0 ? form_of(m.shared_gate.dtype) : 0);
  SWY_CUDA_TRY(launch(r, gate_up_vector, dim3(ceil_div(gate_up_tasks(m, 2), kVectorWarps), rows), kThreads,
                      Activations::bytes_of(forms, 1, m.hidden), m, r.list.step));
  const uint32_t shared = Activations::bytes_of(form_of(m.down.dtype), 1, m.top_k * m.width) +
                          Activations::bytes_of(form_of(m.shared_down.dtype), 1, m.shared_width);
  return launch(r, down_vector, dim3(ceil_div(m.hidden, 2 * kVectorWarps), rows), kThreads, shared, m, r.list.step);
}

swy_status record_moe_plain(const Recording& r) {
  Arena arena(r.operands.workspace());
  const Mixture m = mixture_of(r, arena);
  const auto rows = static_cast<uint32_t>(swy::tensor(r.op, "x").dims[0]);
  uint32_t* counters = take_counters(r.list, rows, r.error);
  if (counters == nullptr) return SWY_UNSUPPORTED;
  SWY_CUDA_TRY(record_router(r, m, rows, counters));
  const uint32_t y = rows < 1024 ? rows : 1024;
  SWY_CUDA_TRY(
      launch(r, gate_up_plain, dim3(ceil_div(gate_up_tasks(m, 1), kVectorWarps), y), kThreads, 0, m, r.list.step));
  return launch(r, down_plain, dim3(ceil_div(m.hidden, kVectorWarps), y), kThreads, 0, m, r.list.step);
}

swy_status supports_vector(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  SWY_CUDA_TRY(supports_router(device, op, bucket, error));
  const swy_moe_attrs a = moe_attrs(op);
  for (const swy::OperandName name : kExpertWeights) {
    const uint32_t i = swy::at(op, name);
    if (i != UINT32_MAX && !readable_by_vectors(*op.weights[i])) return refuse_rows(op, i, error);
  }
  if (!shared_of_one_type(op)) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_DTYPE, "the shared expert's gate and up differ in encoding");
  }
  const auto hidden = static_cast<uint32_t>(swy::tensor(op, "x").dims[1]);
  if ((hidden + a.top_k * a.width + a.shared_width) * 8 + 8192 > device.features.block_memory) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "rows of %u and %u do not fit the shared memory", hidden,
                     a.top_k * a.width);
  }
  return SWY_OK;
}

// Microseconds of an H200, as measured from 2 to 8 rows.
double cost_moe_vector(const swy_device& device, const swy_op& op, const swy_bucket&) {
  const swy_moe_attrs a = moe_attrs(op);
  const double rows = static_cast<double>(swy::tensor(op, "x").dims[0]),
               share = static_cast<double>(a.top_k) / a.experts;
  double bytes = row_bytes(op), elements = 0;
  for (uint32_t i = 0; i < matrix_count(op); ++i) {
    const double part = op.weights[i]->rank == 3 ? share : 1;
    bytes += weight_bytes(*op.weights[i]) * part * rows * (op.weights[i]->rank == 3 ? 1 : 0.25);
    double n = part;
    for (uint32_t d = 0; d < op.weights[i]->rank; ++d) n *= static_cast<double>(op.weights[i]->dims[d]);
    elements += n * rows;
  }
  const double rate = swy::tensor(op, "gate_up").dtype == SWY_MXFP4 ? 1.1e6 : 1.7e6;
  return 13.5 + device.rates.bytes(bytes, rate) + device.rates.floats(elements, 15e6);
}
double cost_moe_plain(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  return 20 * cost_moe_vector(device, op, bucket);
}
uint64_t workspace(const swy_device&, const swy_op& op, const swy_bucket&) { return mixture_workspace(op); }

constexpr Kernel vector_kernel(const char* name, uint32_t op) {
  return {.name = name,
          .op = op,
          .flags = kInvariant,
          .activations = SWY_BF16,
          .supports = supports_vector,
          .cost = cost_moe_vector,
          .workspace = workspace,
          .record = record_moe_vector,
          .op_revision = 2,
          .weight_dtypes = kMatrices};
}
constexpr Kernel plain_kernel(const char* name, uint32_t op) {
  Kernel k = vector_kernel(name, op);
  k.activations = SWY_F32;
  k.supports = supports_router;
  k.cost = cost_moe_plain;
  k.record = record_moe_plain;
  return k;
}
constexpr Kernel kKernels[] = {
    vector_kernel("moe.vector", SWY_OP_MOE),         vector_kernel("moe_add.vector", SWY_OP_MOE_ADD),
    vector_kernel("experts.vector", SWY_OP_EXPERTS), plain_kernel("moe.plain", SWY_OP_MOE),
    plain_kernel("moe_add.plain", SWY_OP_MOE_ADD),   plain_kernel("experts.plain", SWY_OP_EXPERTS),
};

}  // namespace

std::span<const Kernel> moe_kernels() { return kKernels; }

}  // namespace gpu
