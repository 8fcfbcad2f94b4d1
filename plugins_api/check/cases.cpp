// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/cases.h"

namespace switchyard::check {

const std::vector<CaseSpec>& all_cases() {
  static const std::vector<CaseSpec> cases = [] {
    std::vector<CaseSpec> out;
    add_cases(out);
    rms_norm_cases(out);
    linear_cases(out);
    embedding_cases(out);
    moe_cases(out);
    attention_cases(out);
    gated_delta_cases(out);
    lm_head_cases(out);
    cast_cases(out);
    sample_cases(out);
    return out;
  }();
  return cases;
}

std::string op_name(swy_op_id op) {
  switch (op) {
#define SWITCHYARD_CHECK_NAME(id, name) \
  case id:                              \
    return name
    SWITCHYARD_CHECK_NAME(SWY_OP_EMBEDDING, "embedding");
    SWITCHYARD_CHECK_NAME(SWY_OP_RMS_NORM, "rms_norm");
    SWITCHYARD_CHECK_NAME(SWY_OP_LINEAR, "linear");
    SWITCHYARD_CHECK_NAME(SWY_OP_ATTENTION, "attention");
    SWITCHYARD_CHECK_NAME(SWY_OP_GATED_DELTA, "gated_delta");
    SWITCHYARD_CHECK_NAME(SWY_OP_MOE, "moe");
    SWITCHYARD_CHECK_NAME(SWY_OP_ADD, "add");
    SWITCHYARD_CHECK_NAME(SWY_OP_LM_HEAD, "lm_head");
    SWITCHYARD_CHECK_NAME(SWY_OP_SAMPLE, "sample");
    SWITCHYARD_CHECK_NAME(SWY_OP_TOP_CANDIDATES, "top_candidates");
    SWITCHYARD_CHECK_NAME(SWY_OP_ADD_RMS_NORM, "add_rms_norm");
    SWITCHYARD_CHECK_NAME(SWY_OP_RMS_NORM_LINEAR, "rms_norm_linear");
    SWITCHYARD_CHECK_NAME(SWY_OP_LINEAR_ADD, "linear_add");
    SWITCHYARD_CHECK_NAME(SWY_OP_MOE_ADD, "moe_add");
    SWITCHYARD_CHECK_NAME(SWY_OP_LM_HEAD_SAMPLE, "lm_head_sample");
    SWITCHYARD_CHECK_NAME(SWY_OP_CAST, "cast");
    SWITCHYARD_CHECK_NAME(SWY_OP_GATHER_ROWS, "gather_rows");
    SWITCHYARD_CHECK_NAME(SWY_OP_HEAD_SPLIT, "head_split");
    SWITCHYARD_CHECK_NAME(SWY_OP_HEAD_RMS_NORM, "head_rms_norm");
    SWITCHYARD_CHECK_NAME(SWY_OP_ROPE, "rope");
    SWITCHYARD_CHECK_NAME(SWY_OP_KV_APPEND, "kv_append");
    SWITCHYARD_CHECK_NAME(SWY_OP_ATTEND, "attend");
    SWITCHYARD_CHECK_NAME(SWY_OP_SIGMOID_MUL, "sigmoid_mul");
    SWITCHYARD_CHECK_NAME(SWY_OP_CAUSAL_CONV, "causal_conv");
    SWITCHYARD_CHECK_NAME(SWY_OP_DELTA_GATES, "delta_gates");
    SWITCHYARD_CHECK_NAME(SWY_OP_DELTA_RULE, "delta_rule");
    SWITCHYARD_CHECK_NAME(SWY_OP_GATED_RMS_NORM, "gated_rms_norm");
    SWITCHYARD_CHECK_NAME(SWY_OP_ROUTER_TOPK, "router_topk");
    SWITCHYARD_CHECK_NAME(SWY_OP_EXPERTS, "experts");
    SWITCHYARD_CHECK_NAME(SWY_OP_SILU_MUL, "silu_mul");
    SWITCHYARD_CHECK_NAME(SWY_OP_SIGMOID_SCALE_ADD, "sigmoid_scale_add");
#undef SWITCHYARD_CHECK_NAME
    default:
      return "op" + std::to_string(op);
  }
}

std::string encoding_name(swy_dtype encoding, uint32_t group) {
  const char* name = encoding == SWY_F32    ? "f32"
                     : encoding == SWY_BF16 ? "bf16"
                     : encoding == SWY_I8   ? "i8"
                     : encoding == SWY_I4   ? "i4"
                                            : "i4a";
  if (encoding == SWY_F32 || encoding == SWY_BF16) return name;
  return std::string(name) + (group == 0 ? ".row" : ".g" + std::to_string(group));
}

const std::vector<Encoding>& all_encodings() {
  static const std::vector<Encoding> encodings = [] {
    std::vector<Encoding> out = {{SWY_F32, 0}, {SWY_BF16, 0}};
    for (const swy_dtype d : {SWY_I8, SWY_I4, SWY_I4A}) {
      for (const uint32_t g : {32u, 64u, 128u, 0u}) out.push_back({d, g});
    }
    return out;
  }();
  return encodings;
}

std::vector<uint32_t> ragged(uint32_t rows) {
  if (rows < 3) return std::vector<uint32_t>(rows, 1);
  return {rows - rows / 3 - 1, 1, rows / 3};
}

void make_uneven(Case& c) {
  constexpr float kScales[] = {1, 0, 1e-6f, 1e6f};
  const uint64_t width = c.width(0);
  for (Step& s : c.steps) {
    std::vector<float>& x = s.inputs[0].floats;
    for (size_t i = 0; i < x.size(); ++i) x[i] *= kScales[i / width % 4];
  }
}

}  // namespace switchyard::check
