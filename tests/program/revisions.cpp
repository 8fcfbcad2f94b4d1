// SPDX-License-Identifier: Apache-2.0
#include "switchyard/weights.h"
#include "tests/program/sample.h"
#include "tests/program/spec_builder.h"

namespace switchyard::testing {
namespace {

using Attrs = SpecBuilder::Attrs;
using Indices = SpecBuilder::Indices;

constexpr uint64_t kHidden = 64, kVocab = 50;
constexpr uint32_t kHeads = 4, kKvHeads = 2, kHeadDim = 16, kRotary = 8, kWindow = 5;
constexpr uint32_t kExperts = 8, kTopK = 2, kWidth = 32, kShared = 24, kMlp = 48;

Attrs attention_attrs() {
  swy_attention_attrs a{};
  a.heads = kHeads, a.kv_heads = kKvHeads, a.head_dim = kHeadDim, a.rotary_dim = kRotary;
  a.scale = 0.25f, a.norm_eps = 1e-6f;
  a.qk_norm = a.sinks = 1;
  a.window = kWindow;
  a.rope_scale = 1.25f;
  return attr_bytes(a);
}

Attrs rope_attrs() {
  swy_heads_attrs a{};
  a.heads = kHeads, a.head_dim = kHeadDim, a.rotary_dim = kRotary, a.rope_scale = 1.25f;
  return attr_bytes(a);
}

Attrs moe_attrs() {
  swy_moe_attrs a{};
  a.experts = kExperts, a.top_k = kTopK, a.width = kWidth, a.shared_width = kShared;
  a.router = SWY_ROUTER_SIGMOID_TOPK, a.normalize = 1, a.expert_groups = 4, a.top_groups = 2, a.routed_scale = 2.5f;
  a.router_bias = a.correction_bias = a.expert_bias = 1;
  a.activation = SWY_ACT_CLAMPED, a.act_alpha = 1.702f, a.act_limit = 7;
  return attr_bytes(a);
}

const Attrs kNorm = attr_bytes(swy_rms_norm_attrs{0, 1e-6f, 0, 0});
const Attrs kMlpAttrs = attr_bytes(swy_mlp_attrs{0, kMlp, SWY_ACT_SILU, 0, 0, {}});
const Attrs kActivation = attr_bytes(swy_activation_attrs{0, SWY_ACT_CLAMPED, 1.702f, 7});

struct Weights {
  uint32_t norm, inv_freq, sinks, correction, kv, kv2;
  Indices projections, attention, out, moe, mlp;  // each as its operation lists them
};

Weights add_weights(SpecBuilder& b) {
  const uint64_t q = kHeads * kHeadDim, kv = kKvHeads * kHeadDim;
  const auto mxfp4 = [&](const char* name, std::vector<uint64_t> dims) {
    return b.tensor(name, SWY_MXFP4, SWY_MXFP4_GROUP, std::move(dims));
  };
  const auto plain = [&](const char* name, std::vector<uint64_t> dims) {
    return b.tensor(name, SWY_BF16, 0, std::move(dims));
  };
  Weights w;
  w.norm = plain("norm", {kHidden});
  w.inv_freq = b.tensor("inv_freq", SWY_F32, 0, {kRotary / 2});
  w.sinks = plain("sinks", {kHeads});
  w.projections = {mxfp4("q", {q, kHidden}), mxfp4("k", {kv, kHidden}), mxfp4("v", {kv, kHidden}),
                   plain("q_bias", {q}),     plain("k_bias", {kv}),     plain("v_bias", {kv})};
  w.attention = {plain("q_norm", {kHeadDim}), plain("k_norm", {kHeadDim}), w.inv_freq, w.sinks};
  w.out = {mxfp4("o", {kHidden, q}), plain("o_bias", {kHidden})};
  w.correction = b.tensor("correction", SWY_F32, 0, {kExperts});
  w.moe = {plain("router", {kExperts, kHidden}),
           mxfp4("gate_up", {kExperts, 2 * kWidth, kHidden}),
           mxfp4("down", {kExperts, kHidden, kWidth}),
           mxfp4("shared_gate_proj", {kShared, kHidden}),
           mxfp4("shared_up_proj", {kShared, kHidden}),
           mxfp4("shared_down_proj", {kHidden, kShared}),
           plain("shared_gate", {1, kHidden}),
           plain("router_bias", {kExperts}),
           w.correction,
           plain("gate_up_bias", {kExperts, 2 * kWidth}),
           plain("down_bias", {kExperts, kHidden})};
  w.mlp = {mxfp4("gate", {kMlp, kHidden}), mxfp4("up", {kMlp, kHidden}), mxfp4("mlp_down", {kHidden, kMlp})};
  w.kv = b.state("kv", SWY_STATE_PAGED, SWY_F32, {2, kKvHeads, kHeadDim});
  w.kv2 = b.state("kv2", SWY_STATE_PAGED, SWY_F32, {2, kKvHeads, kHeadDim});
  return w;
}

// The pieces of attention and of the mixture, once, from the same values. Returns what both add to.
uint32_t add_pieces(SpecBuilder& b, const Weights& w, uint32_t x, uint32_t q, uint32_t k, uint32_t v) {
  const uint64_t width = kHeads * kHeadDim;
  const auto rotated = b.value(width), at = b.value(width);
  b.op(SWY_OP_ROPE, rope_attrs(), {q}, {w.inv_freq}, {}, {rotated}, 2);
  swy_attention_attrs stored{};
  stored.heads = kHeads, stored.kv_heads = kKvHeads, stored.head_dim = kHeadDim;
  stored.rope_theta = stored.scale = 1;
  b.op(SWY_OP_KV_APPEND, attr_bytes(stored, SWY_OP_KV_APPEND, 1), {k, v}, {}, {w.kv2}, {});
  b.op(SWY_OP_ATTEND, attention_attrs(), {rotated}, {w.sinks}, {w.kv2}, {at}, 2);
  const auto logits = b.value(kExperts), ids = b.value(kTopK, SWY_I32), weights = b.value(kTopK);
  const auto y = b.value(kHidden), act = b.value(kHidden);
  b.op(SWY_OP_LINEAR, {}, {x}, {w.moe[0], w.moe[7]}, {}, {logits}, 2);
  b.op(SWY_OP_ROUTER_TOPK, moe_attrs(), {logits}, {w.correction}, {}, {ids, weights}, 2);
  b.op(SWY_OP_EXPERTS, moe_attrs(), {x, ids, weights}, {w.moe[1], w.moe[2], w.moe[9], w.moe[10]}, {}, {y}, 2);
  b.op(SWY_OP_SILU_MUL, kActivation, {y, at}, {}, {}, {act}, 2);
  return act;
}

}  // namespace

ProgramSpec revisions_spec() {
  SpecBuilder b;
  const auto embed = b.tensor("embed", SWY_MXFP4, SWY_MXFP4_GROUP, {kVocab, kHidden});
  const Weights w = add_weights(b);
  const uint64_t q = kHeads * kHeadDim, kv = kKvHeads * kHeadDim;
  b.function("main");
  const auto x0 = b.value(kHidden), n0 = b.value(kHidden), vq = b.value(q), vk = b.value(kv), vv = b.value(kv);
  b.op(SWY_OP_EMBEDDING, {}, {}, {embed}, {}, {x0});
  b.op(SWY_OP_RMS_NORM, kNorm, {x0}, {w.norm}, {}, {n0});
  b.op(SWY_OP_LINEAR, {}, {n0}, w.projections, {}, {vq, vk, vv}, 2);
  const auto at = b.value(q), x1 = b.value(kHidden), m = b.value(kHidden), x2 = b.value(kHidden);
  b.op(SWY_OP_ATTENTION, attention_attrs(), {vq, vk, vv}, w.attention, {w.kv}, {at}, 2);
  b.op(SWY_OP_LINEAR_ADD, {}, {at, x0}, w.out, {}, {x1}, 2);
  b.op(SWY_OP_MOE, moe_attrs(), {x1}, w.moe, {}, {m}, 2);
  b.op(SWY_OP_ADD, {}, {m, x1}, {}, {}, {x2});
  const auto x3 = b.value(kHidden), f = b.value(kHidden), x4 = b.value(kHidden), p = b.value(kHidden);
  b.op(SWY_OP_MOE_ADD, moe_attrs(), {x2, x2}, w.moe, {}, {x3}, 2);
  b.op(SWY_OP_MLP, kMlpAttrs, {x3}, w.mlp, {}, {f});
  b.op(SWY_OP_MLP_ADD, kMlpAttrs, {f, x3}, w.mlp, {}, {x4});
  b.op(SWY_OP_RMS_NORM_LINEAR, kNorm, {x4}, {w.norm, w.out[0], w.out[1]}, {}, {p}, 2);
  const auto pieces = add_pieces(b, w, p, vq, vk, vv);
  const auto last = b.value(kHidden), logits = b.value(kVocab, SWY_F32, SWY_ROWS_LOGITS);
  b.op(SWY_OP_ADD, {}, {p, pieces}, {}, {}, {last});
  b.op(SWY_OP_LM_HEAD, {}, {last}, {embed}, {}, {logits});
  b.spec.functions.back().outputs = {logits};
  b.spec.architecture = "revisions";
  b.spec.context_length = 256;
  return b.spec;
}

}  // namespace switchyard::testing
