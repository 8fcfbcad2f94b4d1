// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/cases.h"

#include "switchyard/op_table.h"
#include "switchyard/weights.h"

namespace switchyard::check {

const std::vector<CaseSpec>& all_cases() {
  static const std::vector<CaseSpec> cases = [] {
    std::vector<CaseSpec> out;
    add_cases(out);
    rms_norm_cases(out);
    linear_cases(out);
    embedding_cases(out);
    moe_cases(out);
    mlp_cases(out);
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
  const swy_op_spec* spec = swy_find_op(op, 0);
  return spec != nullptr ? spec->name : "op" + std::to_string(op);
}

std::string encoding_name(swy_dtype encoding, uint32_t group) {
  const char* known = swy_dtype_name(encoding);
  const std::string name = known != nullptr ? known : "type " + std::to_string(encoding);
  if (encoding == SWY_F32 || encoding == SWY_BF16 || encoding == SWY_MXFP4) return name;
  return name + (group == 0 ? ".row" : ".g" + std::to_string(group));
}

const std::vector<Encoding>& all_encodings() {
  static const std::vector<Encoding> encodings = [] {
    std::vector<Encoding> out = {{SWY_F32, 0}, {SWY_BF16, 0}};
    for (const swy_dtype d : {SWY_I8, SWY_I4, SWY_I4A}) {
      for (const uint32_t g : {16u, 32u, 64u, 128u, 0u}) out.push_back({d, g});
    }
    out.push_back({SWY_MXFP4, SWY_MXFP4_GROUP});
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
