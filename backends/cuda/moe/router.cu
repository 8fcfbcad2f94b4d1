// SPDX-License-Identifier: Apache-2.0
// ROUTER_TOPK, and the router of MOE: logits of all experts. Where the largest logits are taken, the last block of a
// row chooses in the same launch; other choices (scores, corrections, groups of experts) have a kernel of their own.
#include "choice.cuh"
#include "common/warp_choice.cuh"
#include "moe.cuh"

namespace gpu {
namespace {

constexpr uint32_t kThreads = kVectorWarps * 32;
constexpr uint32_t kMostExperts = 4096, kMostGroups = 1024;

__device__ inline void choose_any(const float* logits, uint32_t experts, uint32_t top_k, uint32_t* keys, int32_t* ids,
                                  float* p) {
  if (experts <= 256) {
    choose_by_warp<8>(logits, experts, top_k, keys, ids, p);
  } else {
    choose_by_warp<0>(logits, experts, top_k, keys, ids, p);
  }
}

// ---- other choices, by one warp

// Scores of a row's experts without their common factor, which is `total`.
struct Scores {
  const float* logits;
  swy_router router;
  float top, total;  // of a softmax over all experts: the largest logit, and the sum

  __device__ Scores(const float* row, swy_router kind, uint32_t experts) : logits(row), router(kind), top(0), total(1) {
    if (router != SWY_ROUTER_SOFTMAX_TOPK) return;
    float most = -INFINITY, sum = 0;
    for (uint32_t e = threadIdx.x; e < experts; e += 32) most = fmaxf(most, logit(e));
    top = warp_max(most);
    for (uint32_t e = threadIdx.x; e < experts; e += 32) sum += expf(logit(e) - top);
    total = warp_sum(sum);
  }
  __device__ float logit(uint32_t e) const { return __ldcg(logits + e); }
  __device__ float of(uint32_t e) const {
    return router == SWY_ROUTER_SIGMOID_TOPK ? sigmoid(logit(e)) : expf(logit(e) - top);
  }
};

// choices [experts], by which experts are taken. Logits have the order of their scores, and do not become equal by
// rounding.
__device__ inline void make_choices(const Choice& c, const Scores& s, uint32_t experts, float* choices) {
  const bool by_logits = (c.correction.data == nullptr && c.groups == 1) || c.router == SWY_ROUTER_TOPK_SOFTMAX;
  for (uint32_t e = threadIdx.x; e < experts; e += 32) {
    choices[e] = (by_logits ? s.logit(e) : s.of(e) / s.total) + bias_at(c.correction, e);
  }
  __syncwarp();
}

// The sum of the two largest choices of a group of `size`; of one, itself.
__device__ inline float rank_of(const float* choices, uint32_t size) {
  float first = choices[0], second = -INFINITY;
  for (uint32_t i = 1; i < size; ++i) {
    second = fmaxf(second, fminf(first, choices[i]));
    first = fmaxf(first, choices[i]);
  }
  return size == 1 ? first : first + second;
}

// Choices become keys; of all but the top_groups highest groups they are 0. ranks [groups].
__device__ inline void make_keys(const Choice& c, uint32_t experts, float* choices, float* ranks) {
  const uint32_t size = experts / c.groups;
  for (uint32_t g = threadIdx.x; g < c.groups; g += 32) ranks[g] = rank_of(choices + g * size, size);
  __syncwarp();
  for (uint32_t g = 0; g < c.groups; ++g) {
    uint32_t before = 0;
    for (uint32_t h = threadIdx.x; h < c.groups; h += 32) {
      before += ranks[h] > ranks[g] || (ranks[h] == ranks[g] && h < g) ? 1 : 0;
    }
    before = __reduce_add_sync(kAll, before);
    for (uint32_t e = g * size + threadIdx.x; e < (g + 1) * size; e += 32) {
      choices[e] = __uint_as_float(before < c.top_groups ? float_key(choices[e]) : 0);
    }
  }
  __syncwarp();
}

// The experts with the largest keys, which become 0; lane k gets the k-th, top_k at most 32.
__device__ inline uint32_t take_largest(uint32_t* keys, uint32_t experts, uint32_t top_k) {
  uint32_t mine = 0;
  for (uint32_t k = 0; k < top_k; ++k) {
    uint32_t best = 0, at = experts - 1;
    for (uint32_t e = threadIdx.x; e < experts; e += 32) {
      if (keys[e] > best) best = keys[e], at = e;
    }
    const uint32_t most = __reduce_max_sync(kAll, best), id = __reduce_min_sync(kAll, best == most ? at : experts - 1);
    if (id % 32 == threadIdx.x) keys[id] = 0;
    if (k == threadIdx.x) mine = id;
  }
  return mine;
}

// Shared memory: experts and groups, 4 bytes each. blockIdx.x: row.
__global__ void __launch_bounds__(32)
    router_scores(const float* logits, const __grid_constant__ Choice c, int32_t* ids, float* p, uint32_t experts,
                  uint32_t top_k, swy_rows domain, const swy_step* step) {
  extern __shared__ uint4 shared[];
  auto* choices = reinterpret_cast<float*>(shared);
  depend();
  release_next();
  const uint64_t row = blockIdx.x;
  if (row >= step_rows(step, domain)) return;
  Scores s(logits + row * experts, c.router, experts);
  make_choices(c, s, experts, choices);
  make_keys(c, experts, choices, choices + experts);
  const uint32_t id = take_largest(reinterpret_cast<uint32_t*>(choices), experts, top_k);
  const bool there = threadIdx.x < top_k, own_softmax = c.router == SWY_ROUTER_TOPK_SOFTMAX;
  if (own_softmax) s.top = warp_max(there ? s.logit(id) : -INFINITY);
  const float score = there ? s.of(id) : 0.0f, sum = warp_sum(score);
  const float whole = c.normalize || own_softmax ? sum + 1e-20f * s.total : s.total;
  if (!there) return;
  ids[row * top_k + threadIdx.x] = static_cast<int32_t>(id);
  p[row * top_k + threadIdx.x] = score / whole * c.scale;
}

// ---- logits

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
  if (lane == 0 && task < routed) m.logits[uint64_t{row} * m.experts + task] = sum + bias_at(m.router_bias, task);
  if (lane == 0 && task == routed && task < total) m.shared_p[row] = sigmoid(sum);
  if (routed == 0 || !m.choice.plain || !last_of(counters + row, gridDim.x) || warp != 0) return;
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
  return readable_by_vectors(swy::tensor(op, "router")) &&
         (!swy::has(op, "shared_gate") || readable_by_vectors(swy::tensor(op, "shared_gate")));
}

swy_status record_router_topk(const Recording& r) {
  const swy_moe_attrs a = moe_attrs(r.op);
  const swy_tensor& x = swy::tensor(r.op, "logits");
  Mixture m{};
  m.choice = choice_of(r);
  m.logits = r.operands.input("logits");
  m.ids = r.operands.output<int32_t>("expert_ids");
  m.p = r.operands.output("expert_weights");
  m.experts = a.experts;
  m.top_k = a.top_k;
  m.domain = x.rows;
  return record_choice(r, m, static_cast<uint32_t>(x.dims[0]));
}

double cost_topk(const swy_device& device, const swy_op& op, const swy_bucket&) {
  return cost_of(device, row_bytes(op), 0);
}
constexpr Kernel kKernels[] = {{.name = "router_topk.plain",
                                .op = SWY_OP_ROUTER_TOPK,
                                .flags = kInvariant,
                                .activations = SWY_F32,
                                .supports = supports_router,
                                .cost = cost_topk,
                                .record = record_router_topk,
                                .op_revision = 2}};

}  // namespace

Choice choice_of(const Recording& r) {
  const swy_moe_attrs a = moe_attrs(r.op);
  Choice c{};
  c.router = a.router;
  c.normalize = a.normalize != 0;
  c.groups = a.expert_groups;
  c.top_groups = a.top_groups;
  c.scale = a.routed_scale;
  c.correction = r.operands.bias("correction_bias");
  c.plain = c.correction.data == nullptr && c.groups == 1 && c.scale == 1 &&
            (c.router == SWY_ROUTER_TOPK_SOFTMAX || (c.router == SWY_ROUTER_SOFTMAX_TOPK && c.normalize));
  return c;
}

swy_status supports_router(const swy_device&, const swy_op& op, const swy_bucket&, swy_error* error) {
  const swy_moe_attrs a = moe_attrs(op);
  const uint64_t rows = swy::tensor(op, swy::has(op, "logits") ? swy::OperandName("logits") : "x").dims[0];
  if (a.expert_groups > kMostGroups) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "%u groups of experts; at most %u are possible",
                     a.expert_groups, kMostGroups);
  }
  if (a.experts <= kMostExperts && a.top_k <= 32 && rows <= 65535) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "top %u of %u experts; at most 32 of %u are possible",
                   a.top_k, a.experts, kMostExperts);
}

swy_status record_router(const Recording& r, const Mixture& m, uint32_t rows, uint32_t* counters) {
  const uint32_t tasks = (m.routes ? m.experts : 0) + (m.shared_width != 0 ? 1 : 0);
  if (tasks == 0) return SWY_OK;
  const dim3 grid(ceil_div(tasks, kVectorWarps), rows);
  if (router_in_pieces(r.op)) {
    const uint32_t forms = form_of(m.shared_mix.dtype) | (m.routes ? form_of(m.router.dtype) : 0);
    const uint32_t staged = Activations::bytes_of(forms, 1, m.hidden);
    SWY_CUDA_TRY(launch(r, router<true>, grid, kThreads, staged > m.experts * 4 ? staged : m.experts * 4, m, counters,
                        r.list.step));
  } else {
    SWY_CUDA_TRY(launch(r, router<false>, grid, kThreads, m.experts * 4, m, counters, r.list.step));
  }
  return m.routes && !m.choice.plain ? record_choice(r, m, rows) : SWY_OK;
}

swy_status record_choice(const Recording& r, const Mixture& m, uint32_t rows) {
  if (m.choice.plain) {
    return launch(r, router_topk, rows, 32, m.experts * 4, m.logits, m.ids, m.p, m.experts, m.top_k, m.domain,
                  r.list.step);
  }
  return launch(r, router_scores, rows, 32, (m.experts + m.choice.groups) * 4, m.logits, m.choice, m.ids, m.p,
                m.experts, m.top_k, m.domain, r.list.step);
}

std::span<const Kernel> router_kernels() { return kKernels; }

}  // namespace gpu
