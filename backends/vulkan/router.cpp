// SPDX-License-Identifier: Apache-2.0
// ROUTER_TOPK, and the router of MOE (router.comp, router_scores.comp).
#include "moe.h"

namespace gpu {
namespace {

#include "router.comp.h"
#include "router_scores.comp.h"
constexpr Shader kRouter = SWY_SHADER(router_comp), kScores = SWY_SHADER(router_scores_comp);
constexpr uint32_t kMostExperts = 4096, kMostGroups = 1024;

swy_status record_router_topk(const Recording& r) {
  const swy_moe_attrs a = moe_attrs(r.op);
  const swy_tensor& x = swy::tensor(r.op, "logits");
  Mixture m;
  m.attrs = a;
  m.correction = r.operands.weight("correction_bias");
  m.logits = r.operands.input("logits");
  m.ids = r.operands.output("expert_ids");
  m.weights = r.operands.output("expert_weights");
  m.experts = a.experts;
  m.top_k = a.top_k;
  m.domain = x.rows;
  return record_choice(r, m, static_cast<uint32_t>(x.dims[0]));
}

double cost_topk(const swy_op& op, const swy_bucket&) { return cost_of(row_bytes(op), 0); }
constexpr Kernel kKernels[] = {{.name = "router_topk.plain",
                                .op = SWY_OP_ROUTER_TOPK,
                                .flags = kInvariant,
                                .activations = SWY_F32,
                                .supports = supports_router,
                                .cost = cost_topk,
                                .record = record_router_topk,
                                .op_revision = 2}};

}  // namespace

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
    p.biases[p.count] = m.router_bias;
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

bool plain_choice(const swy_moe_attrs& a) {
  if (a.correction_bias != 0 || a.expert_groups > 1 || a.routed_scale != 1) return false;
  return a.router == SWY_ROUTER_TOPK_SOFTMAX || (a.router == SWY_ROUTER_SOFTMAX_TOPK && a.normalize != 0);
}

namespace {

swy_status record_scores(const Recording& r, const Mixture& m, uint32_t rows) {
  struct {
    uint64_t logits, ids, weights, step, correction;
    uint32_t experts, top_k, domain, groups, top_groups;
    float routed_scale;
  } push{};
  const swy_moe_attrs& a = m.attrs;
  push = {m.logits.address, m.ids.address, m.weights.address, r.step(),     m.correction.data, m.experts,
          m.top_k,          m.domain,      a.expert_groups,   a.top_groups, a.routed_scale};
  return launch(r, kScores, {r.device().features.subgroup, a.router, a.normalize, m.correction.form & 15u}, {rows},
                push, {m.logits}, {m.ids, m.weights});
}

}  // namespace

swy_status record_choice(const Recording& r, const Mixture& m, uint32_t rows) {
  if (!plain_choice(m.attrs)) return record_scores(r, m, rows);
  struct {
    uint64_t logits, ids, weights, step;
    uint32_t experts, top_k, domain, unused;
  } push{};
  push = {m.logits.address, m.ids.address, m.weights.address, r.step(), m.experts, m.top_k, m.domain, 0};
  return launch(r, kRouter, {r.device().features.subgroup}, {rows}, push, {m.logits}, {m.ids, m.weights});
}

std::span<const Kernel> router_kernels() { return kKernels; }

}  // namespace gpu
