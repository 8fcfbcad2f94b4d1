// SPDX-License-Identifier: Apache-2.0
#include "core/program/op_names.h"
#include "core/program/op_operands.h"

namespace switchyard {
namespace {

// ---- composites

void embedding(Operands& o) {
  o.weight(0, kEncoded, {o.weight(0).dims[0], o.out(0).width});
  o.output(0, kFloat, o.out(0).width);
}

void rms_norm_attrs(Operands& o) {
  const auto a = o.attrs<swy_rms_norm_attrs>();
  o.epsilon("eps", a.eps);
  o.finite("weight_bias", a.weight_bias);
}

void rms_norm(Operands& o) {
  const uint64_t width = o.in(0).width;
  rms_norm_attrs(o);
  o.input(0, kFloat, width);
  o.weight(0, kFloat, {width});
  o.output(0, kFloat, width);
}

// Weights from `first` on, one output each.
void projections(Operands& o, size_t first) {
  const size_t weights = o.op().weights.size() - first;
  o.input(0, kFloat, o.in(0).width);
  o.require(o.op().outputs.size() == weights, "{} weights need as many outputs; there are {}", weights,
            o.op().outputs.size());
  for (size_t i = 0; o.ok() && i < weights; ++i) {
    o.weight(first + i, kEncoded, {o.out(i).width, o.in(0).width});
    o.output(i, kFloat, o.out(i).width);
  }
}

void linear(Operands& o) { projections(o, 0); }

swy_attention_attrs attention_attrs(Operands& o) {
  const auto a = o.attrs<swy_attention_attrs>();
  o.count("heads", a.heads);
  o.count("kv_heads", a.kv_heads);
  o.count("head_dim", a.head_dim);
  o.require(a.kv_heads != 0 && a.heads % a.kv_heads == 0, "kv_heads {} does not divide heads {}", a.kv_heads, a.heads);
  o.require(a.rotary_dim % 2 == 0 && a.rotary_dim <= a.head_dim, "rotary_dim {} is not even or above head_dim {}",
            a.rotary_dim, a.head_dim);
  o.positive("rope_theta", a.rope_theta);
  o.positive("scale", a.scale);
  o.epsilon("norm_eps", a.norm_eps);
  o.finite("norm_weight_bias", a.norm_weight_bias);
  o.require(a.gated <= 1, "gated is {}; it must be 0 or 1", a.gated);
  return a;
}

void kv_state(Operands& o, const swy_attention_attrs& a) {
  o.state(0, SWY_STATE_PAGED, kFloat, {2, a.kv_heads, a.head_dim});
}

void attention(Operands& o) {
  const auto a = attention_attrs(o);
  const uint64_t q = uint64_t{a.heads} * a.head_dim;
  const uint64_t kv = uint64_t{a.kv_heads} * a.head_dim;
  o.input(0, kFloat, a.gated == 1 ? 2 * q : q);
  o.input(1, kFloat, kv);
  o.input(2, kFloat, kv);
  o.weight(0, kFloat, {a.head_dim});
  o.weight(1, kFloat, {a.head_dim});
  kv_state(o, a);
  o.output(0, kFloat, q);
}

struct DeltaShape {
  swy_gated_delta_attrs a;
  uint64_t values;    // V
  uint64_t channels;  // C
};

DeltaShape delta_shape(Operands& o) {
  const auto a = o.attrs<swy_gated_delta_attrs>();
  o.count("key_heads", a.key_heads);
  o.count("value_heads", a.value_heads);
  o.count("key_dim", a.key_dim);
  o.count("value_dim", a.value_dim);
  o.count("conv_kernel", a.conv_kernel);
  o.require(a.conv_kernel >= 2, "conv_kernel is {}; it must be at least 2", a.conv_kernel);
  o.require(a.key_heads != 0 && a.value_heads % a.key_heads == 0, "value_heads {} is no multiple of key_heads {}",
            a.value_heads, a.key_heads);
  o.epsilon("norm_eps", a.norm_eps);
  o.epsilon("l2_eps", a.l2_eps);
  const uint64_t values = uint64_t{a.value_heads} * a.value_dim;
  return {a, values, 2 * uint64_t{a.key_heads} * a.key_dim + values};
}

void conv_state(Operands& o, size_t i, const DeltaShape& s) {
  o.state(i, SWY_STATE_SLOTTED, kFloat, {s.channels, s.a.conv_kernel - uint64_t{1}});
}
void delta_state(Operands& o, size_t i, const DeltaShape& s) {
  o.state(i, SWY_STATE_SLOTTED, kF32, {s.a.value_heads, s.a.key_dim, s.a.value_dim});
}

void gated_delta(Operands& o) {
  const DeltaShape s = delta_shape(o);
  o.input(0, kFloat, s.channels);
  o.input(1, kFloat, s.values);
  o.input(2, kFloat, s.a.value_heads);
  o.input(3, kFloat, s.a.value_heads);
  o.weight(0, kFloat, {s.channels, s.a.conv_kernel});
  o.weight(1, kFloat, {s.a.value_heads});
  o.weight(2, kFloat, {s.a.value_heads});
  o.weight(3, kFloat, {s.a.value_dim});
  conv_state(o, 0, s);
  delta_state(o, 1, s);
  o.output(0, kFloat, s.values);
}

swy_moe_attrs moe_attrs(Operands& o) {
  const auto a = o.attrs<swy_moe_attrs>();
  o.count("experts", a.experts);
  o.count("width", a.width);
  o.require(a.shared_width <= kMaxCount, "shared_width is {}; it must be at most {}", a.shared_width, kMaxCount);
  o.require(a.top_k >= 1 && a.top_k <= a.experts, "top_k is {}; it must be 1 to the {} experts", a.top_k, a.experts);
  return a;
}

void moe_core(Operands& o) {
  const auto a = moe_attrs(o);
  const uint64_t hidden = o.in(0).width;
  const size_t weights = a.shared_width > 0 ? 7 : 3;
  o.require(o.op().weights.size() == weights, "shared_width {} needs {} weights; there are {}", a.shared_width, weights,
            o.op().weights.size());
  if (!o.ok()) return;
  o.input(0, kFloat, hidden);
  o.weight(0, kEncoded, {a.experts, hidden});
  o.weight(1, kEncoded, {a.experts, 2 * uint64_t{a.width}, hidden});
  o.weight(2, kEncoded, {a.experts, hidden, a.width});
  if (a.shared_width > 0) {
    o.weight(3, kEncoded, {a.shared_width, hidden});
    o.weight(4, kEncoded, {a.shared_width, hidden});
    o.weight(5, kEncoded, {hidden, a.shared_width});
    o.weight(6, kEncoded, {1, hidden});
  }
  o.output(0, kFloat, hidden);
}

void routing(Operands& o, size_t first) {
  const auto a = o.attrs<swy_moe_attrs>();
  o.input(first, kI32, a.top_k);
  o.input(first + 1, kF32, a.top_k);
  const Op* router = o.router(first);
  o.require(router != nullptr, "input {} ('{}') must be the expert ids of a router_topk", first, o.in(first).name);
  if (!o.ok()) return;
  const auto theirs = router->attrs_as<swy_moe_attrs>();
  o.require(theirs.experts == a.experts, "input {} ('{}') holds ids of {} experts; there are {} here", first,
            o.in(first).name, theirs.experts, a.experts);
}

void moe(Operands& o) {
  const size_t inputs = o.op().inputs.size();
  o.require(inputs != 2, "expert ids need expert weights; there are 2 inputs, not 1 or 3");
  moe_core(o);
  if (o.ok() && inputs == 3) routing(o, 1);
}

// All inputs and the output alike.
void elementwise(Operands& o) {
  const uint64_t width = o.in(0).width;
  for (size_t i = 0; i < o.op().inputs.size(); ++i) o.input(i, kFloat, width);
  o.output(0, kFloat, width);
}

void lm_head(Operands& o) {
  o.input(0, kFloat, o.in(0).width);
  o.weight(0, kEncoded, {o.out(0).width, o.in(0).width});
  o.output(0, kF32, o.out(0).width);
}

// ---- fused composites

void add_rms_norm(Operands& o) {
  const uint64_t width = o.in(0).width;
  rms_norm_attrs(o);
  o.input(0, kFloat, width);
  o.input(1, kFloat, width);
  o.weight(0, kFloat, {width});
  o.output(0, kFloat, width);
  o.output(1, kFloat, width);
}

void rms_norm_linear(Operands& o) {
  rms_norm_attrs(o);
  o.weight(0, kFloat, {o.in(0).width});
  projections(o, 1);
}

void linear_add(Operands& o) {
  projections(o, 0);
  o.input(1, kFloat, o.out(0).width);
}

void moe_add(Operands& o) {
  moe_core(o);
  o.input(1, kFloat, o.in(0).width);
}

// ---- primitives

void cast(Operands& o) { elementwise(o); }

swy_heads_attrs heads_attrs(Operands& o) {
  const auto a = o.attrs<swy_heads_attrs>();
  o.count("heads", a.heads);
  o.count("head_dim", a.head_dim);
  return a;
}

void head_split(Operands& o) {
  const auto a = heads_attrs(o);
  const uint64_t width = uint64_t{a.heads} * a.head_dim;
  o.input(0, kFloat, 2 * width);
  o.output(0, kFloat, width);
  o.output(1, kFloat, width);
}

void head_rms_norm(Operands& o) {
  const auto a = heads_attrs(o);
  o.epsilon("eps", a.eps);
  o.finite("weight_bias", a.weight_bias);
  o.input(0, kFloat, uint64_t{a.heads} * a.head_dim);
  o.weight(0, kFloat, {a.head_dim});
  elementwise(o);
}

void rope(Operands& o) {
  const auto a = heads_attrs(o);
  o.require(a.rotary_dim % 2 == 0 && a.rotary_dim <= a.head_dim, "rotary_dim {} is not even or above head_dim {}",
            a.rotary_dim, a.head_dim);
  o.positive("rope_theta", a.rope_theta);
  o.input(0, kFloat, uint64_t{a.heads} * a.head_dim);
  elementwise(o);
}

void kv_append(Operands& o) {
  const auto a = attention_attrs(o);
  const uint64_t width = uint64_t{a.kv_heads} * a.head_dim;
  o.input(0, kFloat, width);
  o.input(1, kFloat, width);
  kv_state(o, a);
}

void attend(Operands& o) {
  const auto a = attention_attrs(o);
  o.input(0, kFloat, uint64_t{a.heads} * a.head_dim);
  kv_state(o, a);
  elementwise(o);
}

void causal_conv(Operands& o) {
  const DeltaShape s = delta_shape(o);
  o.input(0, kFloat, s.channels);
  o.weight(0, kFloat, {s.channels, s.a.conv_kernel});
  conv_state(o, 0, s);
  elementwise(o);
}

void delta_gates(Operands& o) {
  const DeltaShape s = delta_shape(o);
  for (size_t i = 0; i < 2; ++i) {
    o.input(i, kFloat, s.a.value_heads);
    o.weight(i, kFloat, {s.a.value_heads});
    o.output(i, kF32, s.a.value_heads);
  }
}

void delta_rule(Operands& o) {
  const DeltaShape s = delta_shape(o);
  o.input(0, kFloat, s.channels);
  o.input(1, kF32, s.a.value_heads);
  o.input(2, kF32, s.a.value_heads);
  delta_state(o, 0, s);
  o.output(0, kFloat, s.values);
}

void gated_rms_norm(Operands& o) {
  const auto a = heads_attrs(o);
  o.epsilon("eps", a.eps);
  o.input(0, kFloat, uint64_t{a.heads} * a.head_dim);
  o.weight(0, kFloat, {a.head_dim});
  elementwise(o);
}

void router_topk(Operands& o) {
  const auto a = moe_attrs(o);
  o.input(0, kFloat, a.experts);
  o.output(0, kI32, a.top_k);
  o.output(1, kF32, a.top_k);
}

void experts(Operands& o) {
  const auto a = moe_attrs(o);
  const uint64_t hidden = o.in(0).width;
  o.input(0, kFloat, hidden);
  routing(o, 1);
  o.weight(0, kEncoded, {a.experts, 2 * uint64_t{a.width}, hidden});
  o.weight(1, kEncoded, {a.experts, hidden, a.width});
  o.output(0, kFloat, hidden);
}

void sigmoid_scale_add(Operands& o) {
  const uint64_t width = o.in(0).width;
  o.input(0, kFloat, width);
  o.input(1, kFloat, width);
  o.input(2, kFloat, 1);
  o.output(0, kFloat, width);
}

// ---- the table

constexpr Range kNone{0, 0}, kOne{1, 1}, kTwo{2, 2}, kThree{3, 3}, kFour{4, 4};
constexpr Range kLinear{1, SWY_LINEAR_MAX_WEIGHTS};

constexpr OpRule kRules[] = {
    {SWY_OP_EMBEDDING, kNone, kOne, kNone, kOne, Rows::step, Rows::step, embedding},
    {SWY_OP_RMS_NORM, kOne, kOne, kNone, kOne, Rows::same, Rows::same, rms_norm},
    {SWY_OP_LINEAR, kOne, kLinear, kNone, kLinear, Rows::same, Rows::same, linear},
    {SWY_OP_ATTENTION, kThree, kTwo, kOne, kOne, Rows::step, Rows::step, attention},
    {SWY_OP_GATED_DELTA, kFour, kFour, kTwo, kOne, Rows::step, Rows::step, gated_delta},
    {SWY_OP_MOE, {1, 3}, {3, 7}, kNone, kOne, Rows::same, Rows::same, moe},
    {SWY_OP_ADD, kTwo, kNone, kNone, kOne, Rows::same, Rows::same, elementwise},
    {SWY_OP_LM_HEAD, kOne, kOne, kNone, kOne, Rows::step, Rows::logits, lm_head},

    {SWY_OP_ADD_RMS_NORM, kTwo, kOne, kNone, kTwo, Rows::same, Rows::same, add_rms_norm},
    {SWY_OP_RMS_NORM_LINEAR,
     kOne,
     {2, 1 + SWY_LINEAR_MAX_WEIGHTS},
     kNone,
     kLinear,
     Rows::same,
     Rows::same,
     rms_norm_linear},
    {SWY_OP_LINEAR_ADD, kTwo, kOne, kNone, kOne, Rows::same, Rows::same, linear_add},
    {SWY_OP_MOE_ADD, kTwo, {3, 7}, kNone, kOne, Rows::same, Rows::same, moe_add},

    {SWY_OP_CAST, kOne, kNone, kNone, kOne, Rows::same, Rows::same, cast},
    {SWY_OP_GATHER_ROWS, kOne, kNone, kNone, kOne, Rows::step, Rows::logits, elementwise},
    {SWY_OP_HEAD_SPLIT, kOne, kNone, kNone, kTwo, Rows::same, Rows::same, head_split},
    {SWY_OP_HEAD_RMS_NORM, kOne, kOne, kNone, kOne, Rows::same, Rows::same, head_rms_norm},
    {SWY_OP_ROPE, kOne, kNone, kNone, kOne, Rows::step, Rows::step, rope},
    {SWY_OP_KV_APPEND, kTwo, kNone, kOne, kNone, Rows::step, Rows::step, kv_append},
    {SWY_OP_ATTEND, kOne, kNone, kOne, kOne, Rows::step, Rows::step, attend},
    {SWY_OP_SIGMOID_MUL, kTwo, kNone, kNone, kOne, Rows::same, Rows::same, elementwise},
    {SWY_OP_CAUSAL_CONV, kOne, kOne, kOne, kOne, Rows::step, Rows::step, causal_conv},
    {SWY_OP_DELTA_GATES, kTwo, kTwo, kNone, kTwo, Rows::same, Rows::same, delta_gates},
    {SWY_OP_DELTA_RULE, kThree, kNone, kOne, kOne, Rows::step, Rows::step, delta_rule},
    {SWY_OP_GATED_RMS_NORM, kTwo, kOne, kNone, kOne, Rows::same, Rows::same, gated_rms_norm},
    {SWY_OP_ROUTER_TOPK, kOne, kNone, kNone, kTwo, Rows::same, Rows::same, router_topk},
    {SWY_OP_EXPERTS, kThree, kTwo, kNone, kOne, Rows::same, Rows::same, experts},
    {SWY_OP_SILU_MUL, kTwo, kNone, kNone, kOne, Rows::same, Rows::same, elementwise},
    {SWY_OP_SIGMOID_SCALE_ADD, kThree, kNone, kNone, kOne, Rows::same, Rows::same, sigmoid_scale_add},
};
constexpr swy_op_id kNotInFiles[] = {SWY_OP_SAMPLE, SWY_OP_TOP_CANDIDATES, SWY_OP_LM_HEAD_SAMPLE};
static_assert(std::size(kRules) + std::size(kNotInFiles) == kOps.size(), "every op of op_names.h has a rule");

}  // namespace

const OpRule* find_rule(swy_op_id id) {
  for (const OpRule& rule : kRules) {
    if (rule.id == id) return &rule;
  }
  return nullptr;
}

}  // namespace switchyard
