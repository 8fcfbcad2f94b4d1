// SPDX-License-Identifier: Apache-2.0
// Faults of results: kernels that are right for common shapes, attributes and numbers, and wrong for others.
#include <algorithm>
#include <cmath>

#include "switchyard/sampling_math.h"
#include "tests/plugin/wrong/wrong.h"

namespace wrong {
namespace {

uint64_t width_of(const swy::Call& call) { return call.op->inputs[0]->dims[1]; }
uint64_t rows_of(const swy::Call& call) { return call.step->rows; }

// The largest element of a float input in this step.
float largest(const swy::Call& call, uint32_t input) {
  const swy_tensor& t = *call.op->inputs[input];
  const uint64_t n = call.rows(t) * t.dims[1];
  return n == 0 ? 0 : *std::max_element(call.input(input), call.input(input) + n);
}
// Beyond this the exponential of an fp32 number is infinite.
constexpr float kExponent = 88.8f;

// Of equal logits the last one instead of the first, in rows that nothing but the logits decides.
void last_of_ties(const swy::Call& call, Run right) {
  right(call);
  call.barrier();
  if (call.rank() != 0) return;
  const auto* slots = SWY_STEP_ARRAY(call.step, swy_sample_slot, sample_at);
  const char* params = reinterpret_cast<const char*>(call.step) + call.step->sample_params_at;
  auto* results = call.output<swy_sample_result>(0);
  const uint64_t vocab = width_of(call);
  for (uint32_t i = 0; i < call.step->sample_rows; ++i) {
    const auto& p = *reinterpret_cast<const swy_sample_params*>(params + uint64_t{i} * call.step->sample_params_size);
    const swy_sample_slot& s = slots[i];
    if (p.inv_temperature != 0 || s.mask_at != 0 || s.bias_count != 0 || call.op->state_count != 0) continue;
    if (results[i].token < 0) continue;
    const float* logits = call.input(0) + s.logit_row * vocab;
    for (uint64_t id = 0; id < vocab; ++id) {
      if (logits[id] == logits[results[i].token]) results[i].token = static_cast<int32_t>(id);
    }
    call.tokens[s.token_entry] = results[i].token;
  }
}

void sigmoid_by_one_exponential(const swy::Call& call, Run right) {
  right(call);
  call.barrier();
  const uint64_t n = rows_of(call) * width_of(call);
  for (uint64_t i = 0; call.rank() == 0 && i < n; ++i) {
    const float e = std::exp(call.input(0)[i]);
    if (std::isinf(e)) call.output(0)[i] = e / (1 + e);
  }
}

void truncates(const swy::Call& call, Run right) {
  right(call);
  call.barrier();
  if (call.op->outputs[0]->dtype != SWY_BF16 || call.rank() != 0) return;
  for (uint64_t i = 0; i < rows_of(call) * width_of(call); ++i) {
    call.output<uint16_t>(0)[i] = static_cast<uint16_t>(swy_float_bits(call.input(0)[i]) >> 16);
  }
}

// Of the slots that the step writes only the upper 16 bits of each element stay.
void cuts_states_off(const swy::Call& call, Run right) {
  right(call);
  call.barrier();
  if (call.rank() != 0) return;
  const swy_tensor& t = *call.op->states[0];
  const uint64_t unit = t.dims[0] * t.dims[1] * t.dims[2];
  for (uint32_t s = 0; s < call.step->seqs; ++s) {
    if (SWY_STEP_ARRAY(call.step, uint32_t, seq_active_at)[s] == 0) continue;
    auto* x = static_cast<uint32_t*>(call.states[0]) + SWY_STEP_ARRAY(call.step, uint32_t, seq_write_slot_at)[s] * unit;
    for (uint64_t i = 0; i < unit; ++i) x[i] &= 0xffff0000u;
  }
}

constexpr Fault kFaults[] = {
    {"greedy_takes_the_last_of_ties", "ops/sample.plain/sample.greedy_ties", "output 0 row", SWY_OP_SAMPLE,
     last_of_ties},

    // ---- attributes that are taken for what they mostly are
    {"eps_is_always_1e-6", "ops/rms_norm.plain/rms_norm.rows1025", "output 0 row", SWY_OP_RMS_NORM,
     [](const swy::Call& c, Run right) { run_with<swy_rms_norm_attrs>(c, right, [](auto& a) { a.eps = 1e-6f; }); }},
    {"weight_bias_is_0_or_1", "ops/rms_norm.plain/rms_norm.rows1025", "output 0 row", SWY_OP_RMS_NORM,
     [](const swy::Call& c, Run right) {
       run_with<swy_rms_norm_attrs>(c, right, [](auto& a) { a.weight_bias = a.weight_bias == 0 ? 0 : 1; });
     }},
    {"eps_of_heads_is_always_1e-6", "ops/head_rms_norm.plain/head_rms_norm.rows1025", "output 0 row",
     SWY_OP_HEAD_RMS_NORM,
     [](const swy::Call& c, Run right) { run_with<swy_heads_attrs>(c, right, [](auto& a) { a.eps = 1e-6f; }); }},
    {"scale_is_computed", "ops/attend.plain/attend.6h1kv.dim36.rotary18.ragged", "output 0 row", SWY_OP_ATTEND,
     [](const swy::Call& c, Run right) {
       run_with<swy_attention_attrs>(c, right,
                                     [](auto& a) { a.scale = 1 / std::sqrt(static_cast<float>(a.head_dim)); });
     }},
    {"scale_of_attention_is_computed", "ops/attention.plain/attention.6h1kv.dim36.rotary18.ragged", "output 0 row",
     SWY_OP_ATTENTION,
     [](const swy::Call& c, Run right) {
       run_with<swy_attention_attrs>(c, right,
                                     [](auto& a) { a.scale = 1 / std::sqrt(static_cast<float>(a.head_dim)); });
     }},
    {"norm_eps_of_attention_is_always_1e-6", "ops/attention.plain/attention.6h1kv.dim36.rotary18.ragged",
     "output 0 row", SWY_OP_ATTENTION,
     [](const swy::Call& c, Run right) {
       run_with<swy_attention_attrs>(c, right, [](auto& a) { a.norm_eps = 1e-6f; });
     }},
    {"norm_bias_of_attention_is_always_1", "ops/attention.plain/attention.3h3kv.dim20.rotary20.plain.ragged",
     "output 0 row", SWY_OP_ATTENTION,
     [](const swy::Call& c, Run right) {
       run_with<swy_attention_attrs>(c, right, [](auto& a) { a.norm_weight_bias = 1; });
     }},
    {"l2_eps_is_norm_eps", "ops/gated_delta.recurrent/gated_delta.2k6v.dims12_20.kernel4.ragged", "output 0 row",
     SWY_OP_GATED_DELTA,
     [](const swy::Call& c, Run right) {
       run_with<swy_gated_delta_attrs>(c, right, [](auto& a) { a.l2_eps = a.norm_eps; });
     }},

    // ---- widths that are no multiple of 4
    {"add_leaves_the_end_of_odd_rows", "ops/add.plain/add.rows1025.width37", "output 0 row", SWY_OP_ADD,
     [](const swy::Call& c, Run right) { run_and_spoil(c, right, width_of(c) % 4 != 0); }},
    {"linear_leaves_the_end_of_odd_rows", "ops/linear.plain/linear.i4.g32.rows3.in101", "output 0 row", SWY_OP_LINEAR,
     [](const swy::Call& c, Run right) { run_and_spoil(c, right, width_of(c) % 4 != 0); }},
    {"experts_leave_the_end_of_odd_rows", "ops/experts.grouped/experts.bf16.rows5.top3of7.hidden101", "output 0 row",
     SWY_OP_EXPERTS,
     [](const swy::Call& c, Run right) { run_and_spoil(c, right, c.attrs<swy_moe_attrs>().width % 4 != 0); }},
    {"attend_leaves_the_end_of_odd_heads", "ops/attend.plain/attend.4h2kv.dim19", "output 0 row", SWY_OP_ATTEND,
     [](const swy::Call& c, Run right) { run_and_spoil(c, right, c.attrs<swy_attention_attrs>().head_dim % 4 != 0); }},
    {"lm_head_leaves_the_end_of_odd_rows", "ops/lm_head.plain/lm_head.i8.g64.odd", "output 0 row", SWY_OP_LM_HEAD,
     [](const swy::Call& c, Run right) { run_and_spoil(c, right, width_of(c) % 4 != 0); }},

    // ---- sizes
    {"add_ends_at_1024_rows", "ops/add.plain/add.rows1025.width37", "output 0 row", SWY_OP_ADD,
     [](const swy::Call& c, Run right) { run_and_spoil(c, right, rows_of(c) >= 1024); }},
    {"linear_ends_at_1024_rows", "ops/linear.plain/linear.bf16.rows1025", "output 0 row", SWY_OP_LINEAR,
     [](const swy::Call& c, Run right) { run_and_spoil(c, right, rows_of(c) >= 1024); }},
    {"attention_ends_at_1024_rows", "ops/attention.plain/attention.2h1kv.dim8.rotary4.rows1100", "output 0 row",
     SWY_OP_ATTENTION, [](const swy::Call& c, Run right) { run_and_spoil(c, right, rows_of(c) >= 1024); }},
    {"moe_ends_at_1024_rows", "ops/moe.grouped/moe.bf16.rows1025", "output 0 row", SWY_OP_MOE,
     [](const swy::Call& c, Run right) { run_and_spoil(c, right, rows_of(c) >= 1024); }},
    {"sample_ends_at_1024_rows", "ops/sample.plain/sample.everything.rows2100", "output 0 row", SWY_OP_SAMPLE,
     [](const swy::Call& c, Run right) { run_and_spoil(c, right, c.step->sample_rows >= 1024); }},
    {"rope_ends_at_position_704", "ops/rope.plain/rope.4h2kv.dim16.rotary8.rows65.far", "output 0 row", SWY_OP_ROPE,
     [](const swy::Call& c, Run right) { run_and_spoil(c, right, c.step->max_context > 704); }},
    {"attend_ends_at_position_704", "ops/attend.plain/attend.4h2kv.dim16.rotary8.far", "output 0 row", SWY_OP_ATTEND,
     [](const swy::Call& c, Run right) { run_and_spoil(c, right, c.step->max_context > 704); }},
    {"attention_ends_at_position_704", "ops/attention.plain/attention.4h2kv.dim16.rotary8.far", "output 0 row",
     SWY_OP_ATTENTION, [](const swy::Call& c, Run right) { run_and_spoil(c, right, c.step->max_context > 704); }},
    {"embedding_has_256_ids", "ops/embedding.plain/embedding.i4.g32.rows9.width101.vocab300", "output 0 row",
     SWY_OP_EMBEDDING, [](const swy::Call& c, Run right) { run_and_spoil(c, right, c.op->weights[0]->dims[0] > 256); }},
    {"embedding_has_65536_ids", "ops/embedding.plain/embedding.bf16.rows1025.width20.vocab70001", "output 0 row",
     SWY_OP_EMBEDDING,
     [](const swy::Call& c, Run right) { run_and_spoil(c, right, c.op->weights[0]->dims[0] > 65536); }},
    {"router_has_256_experts", "ops/router_topk.plain/router_topk.rows5.top12of300", "output 0 row", SWY_OP_ROUTER_TOPK,
     [](const swy::Call& c, Run right) { run_and_spoil(c, right, c.attrs<swy_moe_attrs>().experts > 256); }},
    {"router_chooses_8_at_most", "ops/router_topk.plain/router_topk.rows5.top12of300", "output 0 row",
     SWY_OP_ROUTER_TOPK,
     [](const swy::Call& c, Run right) { run_and_spoil(c, right, c.attrs<swy_moe_attrs>().top_k > 8); }},
    {"moe_has_256_experts", "ops/moe.grouped/moe.i4.g32.rows3.top12of300", "output 0 row", SWY_OP_MOE,
     [](const swy::Call& c, Run right) { run_and_spoil(c, right, c.attrs<swy_moe_attrs>().experts > 256); }},
    {"experts_are_8_at_most", "ops/experts.grouped/experts.i4.g32.rows3.top12of300", "output 0 row", SWY_OP_EXPERTS,
     [](const swy::Call& c, Run right) { run_and_spoil(c, right, c.attrs<swy_moe_attrs>().top_k > 8); }},
    {"convolutions_end_at_4", "ops/causal_conv.plain/causal_conv.1k2v.dims19_11.kernel7.ragged", "output 0 row",
     SWY_OP_CAUSAL_CONV,
     [](const swy::Call& c, Run right) { run_and_spoil(c, right, c.attrs<swy_gated_delta_attrs>().conv_kernel > 4); }},
    {"gated_delta_ends_at_convolutions_of_4", "ops/gated_delta.recurrent/gated_delta.1k2v.dims19_11.kernel7.ragged",
     "output 0 row", SWY_OP_GATED_DELTA,
     [](const swy::Call& c, Run right) { run_and_spoil(c, right, c.attrs<swy_gated_delta_attrs>().conv_kernel > 4); }},

    // ---- large numbers
    {"silu_by_one_exponential", "ops/silu_mul.plain/silu_mul.rows9.width101.large", "output 0 row", SWY_OP_SILU_MUL,
     sigmoid_by_one_exponential},
    {"router_without_the_largest_logit", "ops/router_topk.plain/router_topk.rows9.top8of67.steep", "output 0 row",
     SWY_OP_ROUTER_TOPK, [](const swy::Call& c, Run right) { run_and_spoil(c, right, largest(c, 0) > kExponent); }},
    {"attend_without_the_largest_score", "ops/attend.plain/attend.4h2kv.dim16.rotary8.plain.steep.ragged",
     "output 0 row", SWY_OP_ATTEND,
     [](const swy::Call& c, Run right) {
       const auto& a = c.attrs<swy_attention_attrs>();
       run_and_spoil(c, right, a.scale * largest(c, 0) * std::sqrt(static_cast<float>(a.head_dim)) > kExponent);
     }},
    {"gates_by_one_exponential", "ops/delta_gates.plain/delta_gates.large", "output 1 row", SWY_OP_DELTA_GATES,
     [](const swy::Call& c, Run right) {
       right(c);
       c.barrier();
       for (uint64_t i = 0; c.rank() == 0 && i < rows_of(c) * width_of(c); ++i) {
         if (c.input(1)[i] > kExponent) c.output(1)[i] = -INFINITY;
       }
     }},
    {"sample_without_the_largest_logit", "ops/sample.plain/sample.steep", "output 0 row", SWY_OP_SAMPLE,
     [](const swy::Call& c, Run right) { run_and_spoil(c, right, largest(c, 0) > kExponent); }},

    // ---- rules of single operations
    {"cast_truncates", "ops/cast.plain/cast.f32_to_bf16.rows63.width37", "output 0 row", SWY_OP_CAST, truncates},
    {"states_are_cut_off", "states/delta_rule", "but a rounding to what the device keeps is", SWY_OP_DELTA_RULE,
     cuts_states_off},
    {"router_reads_no_weights", "ops/router_topk.plain/router_topk.rows7.top3of9", "output 1 row", SWY_OP_ROUTER_TOPK,
     [](const swy::Call& c, Run right) {
       right(c);
       c.barrier();
       const uint64_t n = rows_of(c) * c.op->outputs[1]->dims[1];
       for (uint64_t i = 0; c.rank() == 0 && i < n; ++i) {
         c.output(1)[i] = 1 / static_cast<float>(c.op->outputs[1]->dims[1]);
       }
     }},
    {"sample_never_stops", "ops/sample.plain/sample.stops.rows7.vocab77", "output 0 row", SWY_OP_SAMPLE,
     [](const swy::Call& c, Run right) {
       right(c);
       c.barrier();
       for (uint32_t i = 0; c.rank() == 0 && i < c.step->sample_rows; ++i) {
         c.output<swy_sample_result>(0)[i].stopped = 0;
       }
     }},
};

}  // namespace

std::span<const Fault> faults_of_results() { return kFaults; }

}  // namespace wrong
