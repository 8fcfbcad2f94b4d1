// SPDX-License-Identifier: Apache-2.0
// Each operation again, in fp64, as ops.h defines it and as simply as possible: the oracle for the reference backend.
#pragma once

#include "plugins_api/check/outcome.h"
#include "switchyard/sdk/operands.hpp"

namespace switchyard::check {

// Computes one step. `outputs` has the right shapes; `all` holds states and tokens as the steps before left them.
using Naive = void (*)(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs);

// NULL: the operation has none.
Naive naive_of(swy_op_id op);

Outcome run_naive(const Case& c);  // throws Failure for an operation without one

// Draws the step's sampling rows from logits [logit rows, vocab], by the chain that sampling_row.h defines, into the
// outputs, tokens and counts of SAMPLE.
void draw(const Step& step, const float* logits, uint64_t vocab, Outcome& all, std::vector<Matrix>& outputs);

// One group per file of naive/.
namespace naive {
void add(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs);
void silu_mul(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs);
void sigmoid_mul(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs);
void sigmoid_scale_add(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs);
void rms_norm(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs);
void add_rms_norm(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs);
void head_rms_norm(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs);
void gated_rms_norm(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs);
void linear(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs);
void linear_add(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs);
void rms_norm_linear(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs);
void embedding(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs);
void mlp(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs);
void mlp_add(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs);
void moe(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs);
void moe_add(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs);
void experts(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs);
void router_topk(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs);
void gated_delta(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs);
void causal_conv(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs);
void delta_gates(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs);
void delta_rule(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs);
void attention(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs);
void kv_append(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs);
void attend(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs);
void rope(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs);
void head_split(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs);
void lm_head(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs);
void gather_rows(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs);
void cast(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs);
void sample(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs);
void top_candidates(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs);
}  // namespace naive

}  // namespace switchyard::check
