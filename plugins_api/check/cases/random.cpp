// SPDX-License-Identifier: Apache-2.0
// Random shapes of every operation: builders of the other files with sizes that a seed draws.
#include "plugins_api/check/cases.h"

namespace switchyard::check {

std::vector<CaseSpec> random_cases(uint64_t seed) {
  constexpr uint32_t kEach = 2;
  Random random(derive(seed, "random shapes"));
  std::vector<CaseSpec> out;
  for (uint32_t i = 0; i < kEach; ++i) {
    std::vector<CaseSpec> more;
    for (const auto add : {random_add_cases, random_rms_norm_cases, random_linear_cases, random_embedding_cases,
                           random_moe_cases, random_mlp_cases, random_attention_cases, random_gated_delta_cases,
                           random_lm_head_cases, random_cast_cases, random_sample_cases}) {
      add(random, more);
    }
    for (CaseSpec& s : more) {
      s.name += ".random" + std::to_string(i);
      out.push_back(std::move(s));
    }
  }
  return out;
}

}  // namespace switchyard::check
