// SPDX-License-Identifier: Apache-2.0
// ROUTER_TOPK, and the router of MOE: logits of all experts; the last block of a row chooses, in the same launch.
#include "moe.cuh"
#include "warp_choice.cuh"

namespace gpu {
namespace {

constexpr uint32_t kThreads = kVectorWarps * 32;
constexpr uint32_t kMostExperts = 4096;

__device__ inline void choose_any(const float* logits, uint32_t experts, uint32_t top_k, uint32_t* keys, int32_t* ids,
                                  float* p) {
  if (experts <= 256) {
    choose_by_warp<8>(logits, experts, top_k, keys, ids, p);
  } else {
    choose_by_warp<0>(logits, experts, top_k, keys, ids, p);
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
  const uint32_t rows = step_rows(step, m.domain);
  release_next();
  depend();
  if (row >= rows) return;
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

bool router_in_pieces(const swy_op& op) {
  if (op.id == SWY_OP_EXPERTS) return false;
  return readable_in_pieces(swy::tensor(op, "router")) &&
         (!swy::has(op, "shared_gate") || readable_in_pieces(swy::tensor(op, "shared_gate")));
}

swy_status record_router_topk(const Recording& r) {
  const auto& a = r.attrs<swy_moe_attrs>();
  const swy_tensor& x = swy::tensor(r.op, "logits");
  return launch(r, router_topk, static_cast<uint32_t>(x.dims[0]), 32, a.experts * 4, r.operands.input("logits"),
                r.operands.output<int32_t>("expert_ids"), r.operands.output("expert_weights"), a.experts, a.top_k,
                x.rows, r.list.step);
}

double cost_topk(const swy_device& device, const swy_op& op, const swy_bucket&) {
  return cost_of(device, row_bytes(op), 0);
}
constexpr Kernel kKernels[] = {{"router_topk.plain", SWY_OP_ROUTER_TOPK, kInvariant, SWY_F32, supports_router,
                                cost_topk, nullptr, record_router_topk}};

}  // namespace

swy_status supports_router(const swy_device&, const swy_op& op, const swy_bucket&, swy_error* error) {
  const swy_moe_attrs a = moe_attrs(op);
  const uint64_t rows = swy::tensor(op, swy::has(op, "logits") ? swy::OperandName("logits") : "x").dims[0];
  if (a.experts <= kMostExperts && a.top_k <= 32 && rows <= 65535) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "top %u of %u experts; at most 32 of %u are possible",
                   a.top_k, a.experts, kMostExperts);
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

std::span<const Kernel> router_kernels() { return kKernels; }

}  // namespace gpu
