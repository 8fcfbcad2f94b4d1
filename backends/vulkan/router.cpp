// SPDX-License-Identifier: Apache-2.0
// ROUTER_TOPK, and the router of MOE (router.comp).
#include "moe.h"

namespace gpu {
namespace {

#include "router.comp.h"
constexpr Shader kRouter = SWY_SHADER(router_comp);
constexpr uint32_t kMostExperts = 4096;

swy_status record_router_topk(const Recording& r) {
  const auto& a = r.attrs<swy_moe_attrs>();
  const swy_tensor& x = swy::tensor(r.op, "logits");
  Mixture m;
  m.logits = r.operands.input("logits");
  m.ids = r.operands.output("expert_ids");
  m.weights = r.operands.output("expert_weights");
  m.experts = a.experts;
  m.top_k = a.top_k;
  m.domain = x.rows;
  return record_choice(r, m, static_cast<uint32_t>(x.dims[0]));
}

double cost_topk(const swy_op& op, const swy_bucket&) { return cost_of(row_bytes(op), 0); }
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

swy_status record_router_logits(const Recording& r, const Mixture& m, uint32_t rows) {
  Projection p;
  p.x = m.x;
  p.width = m.hidden;
  p.domain = m.domain;
  if (const NotedNorm& n = r.list.norm; n.at == r.list.dispatches.size() && n.y.address == m.x.address) {
    p.x = n.x;  // beside the norm instead of after it
    p.normed = true;
    p.norm.data = n.weight;
    p.norm.form = n.form;
    p.eps = n.eps;
    p.bias = n.bias;
  }
  if (m.routes) {
    p.weights[p.count] = m.router;
    p.y[p.count++] = m.logits;
  }
  if (m.shared_width != 0) {
    p.weights[p.count] = m.shared_mix;
    p.y[p.count++] = m.mix;
  }
  if (p.count == 0) return SWY_OK;
  const bool pieces = (!m.routes || readable_in_pieces(swy::tensor(r.op, "router"))) &&
                      (m.shared_width == 0 || readable_in_pieces(swy::tensor(r.op, "shared_gate"))) &&
                      vector_shape(r.device(), 1, m.hidden, 0).m != 0;
  return pieces ? record_projection(r, p, rows, false) : record_projection_plain(r, p, rows);
}

swy_status record_choice(const Recording& r, const Mixture& m, uint32_t rows) {
  struct {
    uint64_t logits, ids, weights, step;
    uint32_t experts, top_k, domain, unused;
  } push{};
  push = {m.logits.address, m.ids.address, m.weights.address, r.step(), m.experts, m.top_k, m.domain, 0};
  return launch(r, kRouter, {r.device().features.subgroup}, {rows}, push, {m.logits}, {m.ids, m.weights});
}

std::span<const Kernel> router_kernels() { return kKernels; }

}  // namespace gpu
