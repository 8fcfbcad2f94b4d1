// SPDX-License-Identifier: Apache-2.0
// Faults of what second revisions, MLP and MXFP4 add: kernels that leave it out, or take it for something else.
#include <array>
#include <cstring>
#include <vector>

#include "switchyard/weights.h"
#include "tests/plugin/wrong/wrong.h"

namespace wrong {
namespace {

// Runs the kernel with zeros in place of a weight of this name, of `count` in a row.
void with_zeros(const swy::Call& call, Run right, swy::OperandName name, uint32_t count = 1) {
  alignas(64) static constexpr std::array<char, 1 << 16> kZeros{};
  std::array<void*, 32> weights{};
  std::copy_n(call.weights, call.op->weight_count, weights.begin());
  const uint32_t first = swy::at(*call.op, name);
  for (uint32_t i = 0; first != UINT32_MAX && i < count; ++i) weights[first + i] = const_cast<char*>(kZeros.data());
  swy::Call other = call;
  other.weights = weights.data();
  right(other);
}

// Runs the kernel with the two elements of each byte of an MXFP4 weight exchanged.
void with_nibbles_exchanged(const swy::Call& call, Run right) {
  std::array<void*, 32> weights{};
  std::array<std::vector<uint8_t>, 32> changed;
  for (uint32_t w = 0; w < call.op->weight_count; ++w) {
    weights[w] = call.weights[w];
    swy_weight_planes p;
    const swy_tensor& t = *call.op->weights[w];
    if (t.dtype != SWY_MXFP4 || swy_weight_planes_of(&t, &p) != 0) continue;
    const auto* from = static_cast<const uint8_t*>(call.weights[w]);
    changed[w].assign(from, from + p.total_bytes);
    for (uint64_t i = 0; i < p.scales; ++i) changed[w][i] = static_cast<uint8_t>(from[i] << 4 | from[i] >> 4);
    weights[w] = changed[w].data();
  }
  swy::Call other = call;
  other.weights = weights.data();
  right(other);
}

template <class Change>
void attention_with(const swy::Call& call, Run right, Change change) {
  run_with<swy_attention_attrs>(call, right, change);
}
template <class Change>
void moe_with(const swy::Call& call, Run right, Change change) {
  run_with<swy_moe_attrs>(call, right, change);
}

constexpr char kAttention[] = "ops/attention.plain/attention.4h2kv.dim16.rotary8.sinks.window9.table.ragged";
constexpr char kAttend[] = "ops/attend.plain/attend.4h2kv.dim16.rotary8.sinks.window9.table.ragged";
constexpr char kRope[] = "ops/rope.plain/rope.4h2kv.dim16.rotary8.sinks.window9.table.rows65";
constexpr char kGptOss[] = "ops/moe.grouped/moe.f32.rows3.top4of16.hidden101.width19.topk_softmax.router_bias";
constexpr char kDeepSeek[] = "ops/moe.grouped/moe.f32.rows3.top4of16.hidden101.width19.sigmoid.groups2of4.scaled";
constexpr char kSigmoid[] = "ops/router_topk.plain/router_topk.rows63.top4of32.sigmoid.groups2of4.scaled.corrected";
constexpr char kRaw[] = "ops/router_topk.plain/router_topk.rows63.top4of32.softmax.raw";

constexpr Fault kFaults[] = {
    // ---- attention
    {"window_is_one_too_long", kAttention, "output 0 row", SWY_OP_ATTENTION,
     [](const swy::Call& c, Run right) { attention_with(c, right, [](auto& a) { a.window += a.window != 0; }); }},
    {"window_is_one_too_short", kAttention, "output 0 row", SWY_OP_ATTENTION,
     [](const swy::Call& c, Run right) { attention_with(c, right, [](auto& a) { a.window -= a.window > 1; }); }},
    {"window_of_attend_is_one_too_short", kAttend, "output 0 row", SWY_OP_ATTEND,
     [](const swy::Call& c, Run right) { attention_with(c, right, [](auto& a) { a.window -= a.window > 1; }); }},
    {"window_of_attend_is_ignored", kAttend, "output 0 row", SWY_OP_ATTEND,
     [](const swy::Call& c, Run right) { attention_with(c, right, [](auto& a) { a.window = 0; }); }},
    {"sinks_are_ignored", kAttention, "output 0 row", SWY_OP_ATTENTION,
     [](const swy::Call& c, Run right) { attention_with(c, right, [](auto& a) { a.sinks = 0; }); }},
    {"sinks_of_attend_are_0", kAttend, "output 0 row", SWY_OP_ATTEND,
     [](const swy::Call& c, Run right) { with_zeros(c, right, "sinks"); }},
    {"rope_scale_is_1", kRope, "output 0 row", SWY_OP_ROPE,
     [](const swy::Call& c, Run right) { run_with<swy_heads_attrs>(c, right, [](auto& a) { a.rope_scale = 1; }); }},
    {"rope_scale_of_attention_is_1", kAttention, "output 0 row", SWY_OP_ATTENTION,
     [](const swy::Call& c, Run right) { attention_with(c, right, [](auto& a) { a.rope_scale = 1; }); }},
    {"frequencies_are_0", kAttention, "output 0 row", SWY_OP_ATTENTION,
     [](const swy::Call& c, Run right) { with_zeros(c, right, "inv_freq"); }},

    // ---- biases
    {"linear_ignores_its_biases", "ops/linear.plain/linear.mxfp4.rows16.in256.out_48_16.biased", "output 0 row",
     SWY_OP_LINEAR, [](const swy::Call& c, Run right) { with_zeros(c, right, "bias", c.op->output_count); }},
    {"linear_ignores_its_second_bias", "ops/linear.plain/linear.mxfp4.rows16.in256.out_48_16.biased", "output 1 row",
     SWY_OP_LINEAR,
     [](const swy::Call& c, Run right) {
       swy::Call other = c;
       std::array<void*, 32> weights{};
       std::copy_n(c.weights, c.op->weight_count, weights.begin());
       const uint32_t first = swy::at(*c.op, "bias");
       if (first != UINT32_MAX && c.op->output_count > 1) weights[first + 1] = weights[first];
       other.weights = weights.data();
       right(other);
     }},
    {"moe_ignores_the_router_bias", kGptOss, "output 0 row", SWY_OP_MOE,
     [](const swy::Call& c, Run right) { with_zeros(c, right, "router_bias"); }},
    {"moe_ignores_the_bias_of_down", kGptOss, "output 0 row", SWY_OP_MOE,
     [](const swy::Call& c, Run right) { with_zeros(c, right, "down_bias"); }},
    {"moe_ignores_the_experts_biases", kGptOss, "output 0 row", SWY_OP_MOE,
     [](const swy::Call& c, Run right) { moe_with(c, right, [](auto& a) { a.expert_bias = 0; }); }},

    // ---- routers
    {"router_takes_the_softmax_of_the_chosen", kRaw, "output 1 row", SWY_OP_ROUTER_TOPK,
     [](const swy::Call& c, Run right) {
       moe_with(c, right, [](auto& a) {
         if (a.router == SWY_ROUTER_SOFTMAX_TOPK) a.router = SWY_ROUTER_TOPK_SOFTMAX;
       });
     }},
    {"router_always_normalizes", kRaw, "output 1 row", SWY_OP_ROUTER_TOPK,
     [](const swy::Call& c, Run right) { moe_with(c, right, [](auto& a) { a.normalize = 1; }); }},
    {"router_ignores_the_correction", kSigmoid, "output 0 row", SWY_OP_ROUTER_TOPK,
     [](const swy::Call& c, Run right) { with_zeros(c, right, "correction_bias"); }},
    {"router_ignores_the_groups", kSigmoid, "output 0 row", SWY_OP_ROUTER_TOPK,
     [](const swy::Call& c, Run right) { moe_with(c, right, [](auto& a) { a.expert_groups = a.top_groups = 1; }); }},
    {"moe_ignores_the_routed_scale", kDeepSeek, "output 0 row", SWY_OP_MOE,
     [](const swy::Call& c, Run right) { moe_with(c, right, [](auto& a) { a.routed_scale = 1; }); }},

    // ---- activations and MXFP4
    {"silu_mul_does_not_clamp", "ops/silu_mul.plain/silu_mul.clamped.rows65", "output 0 row", SWY_OP_SILU_MUL,
     [](const swy::Call& c, Run right) {
       if (c.op->revision == 1) return right(c);
       run_with<swy_activation_attrs>(c, right, [](auto& a) { a.act_limit = 1e30f; });
     }},
    {"moe_does_not_clamp", kGptOss, "output 0 row", SWY_OP_MOE,
     [](const swy::Call& c, Run right) { moe_with(c, right, [](auto& a) { a.act_limit = 1e30f; }); }},
    {"mlp_does_not_clamp", "ops/mlp.plain/mlp.bf16.rows17.hidden100.width52.out36.clamped", "output 0 row", SWY_OP_MLP,
     [](const swy::Call& c, Run right) { run_with<swy_mlp_attrs>(c, right, [](auto& a) { a.act_limit = 1e30f; }); }},
    {"mlp_takes_alpha_for_1", "ops/mlp.plain/mlp.bf16.rows17.hidden100.width52.out36.clamped", "output 0 row",
     SWY_OP_MLP,
     [](const swy::Call& c, Run right) { run_with<swy_mlp_attrs>(c, right, [](auto& a) { a.act_alpha = 1; }); }},
    {"mxfp4_has_the_high_nibble_first", "ops/linear.plain/linear.mxfp4.rows65.in100", "output 0 row", SWY_OP_LINEAR,
     with_nibbles_exchanged},
    {"experts_of_mxfp4_have_the_high_nibble_first", "ops/moe.grouped/moe.mxfp4.rows17.top3of7", "output 0 row",
     SWY_OP_MOE, with_nibbles_exchanged},
};

}  // namespace

std::span<const Fault> faults_of_revisions() { return kFaults; }

}  // namespace wrong
