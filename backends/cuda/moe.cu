// MOE, MOE_ADD and EXPERTS for few rows, each with its own experts; ROUTER_TOPK.
//
//   router    logits of all experts, and the last block of a row picks: one launch
//   gate_up   h = silu(gate) * up of the chosen experts and the shared one
//   down      y = sum p_e down_e h_e + sigmoid(mix) * shared (+ residual)
//
// *.vector reads weights in 16-byte pieces (vector.cuh); *.plain takes any shape, in fp32.
#include "moe.cuh"

namespace gpu {
namespace {

constexpr uint32_t kThreads = kVectorWarps * 32;
constexpr uint32_t kMostExperts = 4096;

// Larger floats have larger keys; none is 0.
__device__ inline uint32_t float_key(float x) {
  const uint32_t bits = __float_as_uint(x);
  return max((bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u, 1u);
}

// The float that a key was made of.
__device__ inline float key_float(uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key ^ 0x80000000u : ~key);
}

// One warp: the top_k largest of logits [experts], ties to the lowest id; exp(logit) over their sum. `keys` [experts].
// kLane: experts per lane at most, held in registers; 0: any number.
template <int kLane>
__device__ void choose(const float* logits, uint32_t experts, uint32_t top_k, uint32_t* keys, int32_t* ids, float* p) {
  const uint32_t lane = threadIdx.x % 32;
  uint32_t held[kLane == 0 ? 1 : kLane];
  if constexpr (kLane == 0) {
    for (uint32_t e = lane; e < experts; e += 32) keys[e] = float_key(__ldcg(logits + e));
  } else {
#pragma unroll
    for (int i = 0; i < kLane; ++i) {
      const uint32_t e = lane + 32 * i;
      held[i] = e < experts ? float_key(__ldcg(logits + e)) : 0;
    }
  }
  float top = 0, sum = 0, mine = 0;
  uint32_t mine_id = 0;
  for (uint32_t k = 0; k < top_k; ++k) {
    uint32_t best = 0, at = experts - 1;
    if constexpr (kLane == 0) {
      for (uint32_t e = lane; e < experts; e += 32) {
        if (keys[e] > best) best = keys[e], at = e;
      }
    } else {
#pragma unroll
      for (int i = 0; i < kLane; ++i) {
        if (held[i] > best) best = held[i], at = lane + 32 * i;
      }
    }
    const uint32_t most = __reduce_max_sync(kAll, best), id = __reduce_min_sync(kAll, best == most ? at : experts - 1);
    const float logit = key_float(most);
    if (k == 0) top = logit;
    const float weight = expf(logit - top);
    sum += weight;
    if (k == lane) mine = weight, mine_id = id;
    if constexpr (kLane == 0) {
      if (id % 32 == lane) keys[id] = 0;
    } else {
#pragma unroll
      for (int i = 0; i < kLane; ++i) held[i] = id == lane + 32 * i ? 0 : held[i];
    }
  }
  if (lane >= top_k) return;
  p[lane] = mine / sum;
  ids[lane] = static_cast<int32_t>(mine_id);
}
__device__ inline void choose_any(const float* logits, uint32_t experts, uint32_t top_k, uint32_t* keys, int32_t* ids,
                                  float* p) {
  if (experts <= 256) {
    choose<8>(logits, experts, top_k, keys, ids, p);
  } else {
    choose<0>(logits, experts, top_k, keys, ids, p);
  }
}

// blockIdx.y: row. A warp per expert, and one more for the shared expert's gate.
template <bool kPieces>
__global__ void __launch_bounds__(kThreads)
    router(const __grid_constant__ Mixture m, uint32_t* counters, const swy_step* step) {
  extern __shared__ uint4 shared[];
  const uint32_t row = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t task = blockIdx.x * kVectorWarps + warp, routed = m.routes ? m.experts : 0;
  const uint32_t total = routed + (m.shared_width != 0 ? 1 : 0);
  const Weight& w = task < routed ? m.router : m.shared_mix;
  const uint32_t of = task < routed ? task : 0;
  WeightRows<1> weight_rows{w, {of}};
  Pieces<1, 8> pieces;
  if (kPieces && task < total) fetch<1, 8>(weight_rows, w.dtype, 0, pieces_of(w.dtype, m.hidden), pieces);
  release_next();
  depend();
  if (row >= step_rows(step, m.domain)) return;
  const float* from = m.x + uint64_t{row} * m.hidden;
  float sum = 0;
  if (kPieces) {
    const uint32_t forms = form_of(m.shared_mix.dtype) | (m.routes ? form_of(m.router.dtype) : 0);
    const Activations x(shared, forms, 1, m.hidden);
    stage_row(x, forms, 0, from, nullptr, 0);
    __syncthreads();
    float acc[1][1] = {};
    if (task < total) multiply<1, 1, 8>(weight_rows, w.dtype, x, pieces, acc);
    sum = warp_sum(acc[0][0]);
  } else if (task < total) {
    for (uint32_t k = lane; k < m.hidden; k += 32) sum = fmaf(from[k], weight_at(w, of, k), sum);
    sum = warp_sum(sum);
  }
  if (lane == 0 && task < routed) m.logits[uint64_t{row} * m.experts + task] = sum;
  if (lane == 0 && task == routed && task < total) m.shared_p[row] = sigmoid(sum);
  if (routed == 0 || !last_of(counters + row, gridDim.x) || warp != 0) return;
  choose_any(m.logits + uint64_t{row} * m.experts, m.experts, m.top_k, reinterpret_cast<uint32_t*>(shared),
         m.ids + uint64_t{row} * m.top_k, m.p + uint64_t{row} * m.top_k);
}

__global__ void router_topk(const float* logits, int32_t* ids, float* p, uint32_t experts, uint32_t top_k,
                            swy_rows domain, const swy_step* step) {
  extern __shared__ uint4 shared[];
  depend();
  release_next();
  const uint64_t row = blockIdx.x;
  if (row >= step_rows(step, domain)) return;
  choose_any(logits + row * experts, experts, top_k, reinterpret_cast<uint32_t*>(shared), ids + row * top_k,
         p + row * top_k);
}

// Two gate rows and the two up rows that go with them.
struct GateUpRows {
  const Weight *gate, *up;
  uint64_t gate_row[2], up_row[2];

  __device__ const Weight& of(int r) const { return r < 2 ? *gate : *up; }
  __device__ uint64_t row(int r) const { return r < 2 ? gate_row[r] : up_row[r - 2]; }
  __device__ const uint8_t* data(int r, uint32_t p) const { return of(r).data + row(r) * of(r).row_bytes + p * 16u; }
  __device__ uint32_t scale(int r, uint32_t p) const {
    const uint64_t at = row(r) * of(r).groups + (p >> of(r).piece_shift);
    uint32_t bits = __ldg(of(r).scales + at);
    if (of(r).offsets != nullptr) bits |= static_cast<uint32_t>(__ldg(of(r).offsets + at)) << 16;
    return bits;
  }
};

// The place of one element of h: its expert's slot (top_k: the shared expert) and which of its rows.
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

__global__ void __launch_bounds__(kThreads)
    gate_up_vector(const __grid_constant__ Mixture m, const swy_step* step) {
  extern __shared__ uint4 shared[];
  const uint32_t row = blockIdx.y, lane = threadIdx.x % 32;
  const uint32_t task = blockIdx.x * kVectorWarps + threadIdx.x / 32;
  const bool there = task < gate_up_tasks(m, 2);
  const GateUpTask t = gate_up_task(m, there ? task : 0, 2);
  release_next();
  depend();
  if (row >= step_rows(step, m.domain)) return;
  const bool routed = t.slot < m.top_k;
  const uint64_t expert = routed ? min(static_cast<uint32_t>(m.ids[uint64_t{row} * m.top_k + t.slot]), m.experts - 1) : 0;
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
    m.h[uint64_t{row} * m.h_width() + t.slot * m.width + t.first + i] = silu(gate) * up;
  }
}

// Rows of the down projections of all chosen experts, as if they were one long row each.
struct DownRows {
  const Weight& w;
  const uint32_t* experts;  // of the slots
  uint32_t row[2], pieces, hidden;

  __device__ const uint8_t* data(int r, uint32_t p) const {
    const uint32_t slot = p / pieces;
    return w.data + (uint64_t{experts[slot]} * hidden + row[r]) * w.row_bytes + (p - slot * pieces) * 16u;
  }
  __device__ uint32_t scale(int r, uint32_t p) const {
    const uint32_t slot = p / pieces;
    const uint64_t at =
        (uint64_t{experts[slot]} * hidden + row[r]) * w.groups + ((p - slot * pieces) >> w.piece_shift);
    uint32_t bits = __ldg(w.scales + at);
    if (w.offsets != nullptr) bits |= static_cast<uint32_t>(__ldg(w.offsets + at)) << 16;
    return bits;
  }
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

__global__ void __launch_bounds__(kThreads)
    down_vector(const __grid_constant__ Mixture m, const swy_step* step) {
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
#pragma unroll
  for (uint32_t r = 0; r < 2; ++r) {
    const float sum = warp_sum(acc[r][0]);
    if (lane != r || first + r >= m.hidden) continue;
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
    if (lane == 0) m.h[uint64_t{row} * m.h_width() + t.slot * m.width + t.first] = silu(gate) * up;
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

bool router_in_pieces(const swy_op& op) {
  if (op.id == SWY_OP_EXPERTS) return false;
  return readable_in_pieces(*op.weights[0]) && (op.weight_count < 7 || readable_in_pieces(*op.weights[6]));
}

swy_status record_moe_vector(const Recording& r) {
  Arena arena(r.operands.workspace());
  const Mixture m = mixture_of(r, arena);
  const auto rows = static_cast<uint32_t>(r.op.inputs[0]->dims[0]);
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
  const auto rows = static_cast<uint32_t>(r.op.inputs[0]->dims[0]);
  uint32_t* counters = take_counters(r.list, rows, r.error);
  if (counters == nullptr) return SWY_UNSUPPORTED;
  SWY_CUDA_TRY(record_router(r, m, rows, counters));
  const uint32_t y = rows < 1024 ? rows : 1024;
  SWY_CUDA_TRY(launch(r, gate_up_plain, dim3(ceil_div(gate_up_tasks(m, 1), kVectorWarps), y), kThreads, 0, m,
                      r.list.step));
  return launch(r, down_plain, dim3(ceil_div(m.hidden, kVectorWarps), y), kThreads, 0, m, r.list.step);
}

swy_status record_router_topk(const Recording& r) {
  const auto& a = r.attrs<swy_moe_attrs>();
  const swy_tensor& x = *r.op.inputs[0];
  return launch(r, router_topk, static_cast<uint32_t>(x.dims[0]), 32, a.experts * 4, r.operands.input(0),
                r.operands.output<int32_t>(0), r.operands.output(1), a.experts, a.top_k, x.rows, r.list.step);
}

swy_status supports_plain(const swy_device&, const swy_op& op, const swy_bucket&, swy_error* error) {
  const swy_moe_attrs a = moe_attrs(op);
  if (a.experts <= kMostExperts && a.top_k <= 32 && op.inputs[0]->dims[0] <= 65535) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "top %u of %u experts; at most 32 of %u are possible",
                   a.top_k, a.experts, kMostExperts);
}

swy_status supports_vector(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  SWY_CUDA_TRY(supports_plain(device, op, bucket, error));
  const swy_moe_attrs a = moe_attrs(op);
  const uint32_t first = op.id == SWY_OP_EXPERTS ? 0 : 1, count = a.shared_width != 0 ? 5 : 2;
  for (uint32_t i = first; i < first + count; ++i) {
    if (readable_in_pieces(*op.weights[i])) continue;
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                     "weight %u has rows of %llu; they must be a multiple of 32, with groups of a power of two", i,
                     static_cast<unsigned long long>(op.weights[i]->dims[op.weights[i]->rank - 1]));
  }
  if (a.shared_width != 0 && op.weights[3]->dtype != op.weights[4]->dtype) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_DTYPE, "the shared expert's gate and up differ in encoding");
  }
  const auto hidden = static_cast<uint32_t>(op.inputs[0]->dims[1]);
  if ((hidden + a.top_k * a.width + a.shared_width) * 8 + 8192 > device.block_memory) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "rows of %u and %u do not fit the shared memory", hidden,
                     a.top_k * a.width);
  }
  return SWY_OK;
}

double cost_moe_vector(const swy_op& op, const swy_bucket&) {
  const swy_moe_attrs a = moe_attrs(op);
  const double rows = static_cast<double>(op.inputs[0]->dims[0]), share = static_cast<double>(a.top_k) / a.experts;
  double bytes = row_bytes(op), elements = 0;
  for (uint32_t i = 0; i < op.weight_count; ++i) {
    const double part = op.weights[i]->rank == 3 ? share : 1;
    bytes += weight_bytes(*op.weights[i]) * part * rows * (op.weights[i]->rank == 3 ? 1 : 0.25);
    double n = part;
    for (uint32_t d = 0; d < op.weights[i]->rank; ++d) n *= static_cast<double>(op.weights[i]->dims[d]);
    elements += n * rows;
  }
  return 14 + bytes / 1.0e6 + elements / 8e6;
}
double cost_moe_plain(const swy_op& op, const swy_bucket& bucket) { return 20 * cost_moe_vector(op, bucket); }
double cost_topk(const swy_op& op, const swy_bucket&) { return cost_of(row_bytes(op), 0); }
uint64_t workspace(const swy_device&, const swy_op& op, const swy_bucket&) { return mixture_workspace(op); }

constexpr Kernel vector_kernel(const char* name, uint32_t op) {
  return {name, op, kInvariant, SWY_BF16, supports_vector, cost_moe_vector, workspace, record_moe_vector};
}
constexpr Kernel plain_kernel(const char* name, uint32_t op) {
  return {name, op, kInvariant, SWY_F32, supports_plain, cost_moe_plain, workspace, record_moe_plain};
}
constexpr Kernel kKernels[] = {
    vector_kernel("moe.vector", SWY_OP_MOE),
    vector_kernel("moe_add.vector", SWY_OP_MOE_ADD),
    vector_kernel("experts.vector", SWY_OP_EXPERTS),
    plain_kernel("moe.plain", SWY_OP_MOE),
    plain_kernel("moe_add.plain", SWY_OP_MOE_ADD),
    plain_kernel("experts.plain", SWY_OP_EXPERTS),
    {"router_topk.plain", SWY_OP_ROUTER_TOPK, kInvariant, SWY_F32, supports_plain, cost_topk, nullptr,
     record_router_topk},
};

}  // namespace

swy_moe_attrs moe_attrs(const swy_op& op) {
  swy_moe_attrs a = *static_cast<const swy_moe_attrs*>(op.attrs);
  if (op.id == SWY_OP_EXPERTS) a.shared_width = 0;
  return a;
}

Mixture mixture_of(const Recording& r, Arena& arena) {
  const swy_op& op = r.op;
  const swy_moe_attrs a = moe_attrs(op);
  const uint64_t rows = op.inputs[0]->dims[0];
  const uint32_t first = op.id == SWY_OP_EXPERTS ? 0 : 1;  // weight of gate_up
  const uint32_t given = op.id == SWY_OP_MOE_ADD ? 2 : 1;  // input of the ids
  Mixture m{};
  m.x = r.operands.input(0);
  m.residual = op.id == SWY_OP_MOE_ADD ? r.operands.input(1) : nullptr;
  m.y = r.operands.output(0);
  m.hidden = static_cast<uint32_t>(op.inputs[0]->dims[1]);
  m.experts = a.experts;
  m.top_k = a.top_k;
  m.width = a.width;
  m.shared_width = a.shared_width;
  m.domain = op.inputs[0]->rows;
  m.routes = op.input_count <= given;
  m.gate_up = r.operands.weight(first);
  m.down = r.operands.weight(first + 1);
  if (first == 1) m.router = r.operands.weight(0);
  if (a.shared_width != 0) {
    m.shared_gate = r.operands.weight(3);
    m.shared_up = r.operands.weight(4);
    m.shared_down = r.operands.weight(5);
    m.shared_mix = r.operands.weight(6);
  }
  m.ids = arena.take<int32_t>(rows * a.top_k);
  m.p = arena.take<float>(rows * a.top_k);
  m.shared_p = arena.take<float>(rows);
  m.logits = arena.take<float>(rows * a.experts);
  m.h = arena.take<float>(rows * m.h_width());
  if (!m.routes) {
    m.ids = r.operands.input<int32_t>(given);
    m.p = r.operands.input<float>(given + 1);
  }
  return m;
}

uint64_t mixture_workspace(const swy_op& op) {
  const swy_moe_attrs a = moe_attrs(op);
  const uint64_t rows = op.inputs[0]->dims[0];
  Arena arena(nullptr);
  arena.take<int32_t>(rows * a.top_k);
  arena.take<float>(rows * a.top_k);
  arena.take<float>(rows);
  arena.take<float>(rows * a.experts);
  arena.take<float>(rows * (a.top_k * a.width + a.shared_width));
  return arena.used();
}

swy_status record_router(const Recording& r, const Mixture& m, uint32_t rows, uint32_t* counters) {
  const uint32_t tasks = (m.routes ? m.experts : 0) + (m.shared_width != 0 ? 1 : 0);
  if (tasks == 0) return SWY_OK;
  const dim3 grid(ceil_div(tasks, kVectorWarps), rows);
  if (!router_in_pieces(r.op)) return launch(r, router<false>, grid, kThreads, m.experts * 4, m, counters, r.list.step);
  const uint32_t forms = form_of(m.shared_mix.dtype) | (m.routes ? form_of(m.router.dtype) : 0);
  const uint32_t staged = Activations::bytes_of(forms, 1, m.hidden);
  return launch(r, router<true>, grid, kThreads, staged > m.experts * 4 ? staged : m.experts * 4, m, counters,
                r.list.step);
}

swy_status record_choice(const Recording& r, const Mixture& m, uint32_t rows) {
  return launch(r, router_topk, rows, 32, m.experts * 4, m.logits, m.ids, m.p, m.experts, m.top_k, m.domain,
                r.list.step);
}

std::span<const Kernel> moe_kernels() { return kKernels; }

}  // namespace gpu
