// SPDX-License-Identifier: Apache-2.0
#include "core/models/registry.h"

#include "core/base/printable.h"

namespace switchyard {
namespace {

constexpr Family kFamilies[] = {
    {"qwen3", "qwen3", 0, build_qwen3},
    {"qwen3_moe", "qwen3moe", 0, build_qwen3_moe},
    {"qwen3_next", "qwen3next", 1, build_qwen3_next},
    {"qwen3_5", "qwen35", 1, build_qwen35},
    {"qwen3_5_moe", "qwen35moe", 1, build_qwen35_moe},
    {"gpt_oss", "gpt-oss", 0, build_gpt_oss},
};

std::string listed(std::string_view Family::*name) {
  std::vector<std::string_view> all;
  for (const Family& f : kFamilies) {
    if (!(f.*name).empty()) all.push_back(f.*name);
  }
  return fmt::format("{}", fmt::join(all, ", "));
}

}  // namespace

std::span<const Family> families() { return kFamilies; }

Result<const Family*> family_of(const Config& config) {
  for (const Family& f : kFamilies) {
    if (config.model_type == f.model_type || config.model_type == fmt::format("{}_text", f.model_type)) return &f;
  }
  return error(Code::unsupported, "config.json: model_type '{}' is not supported; these are: {}",
               printable(config.model_type), listed(&Family::model_type));
}

Result<const Family*> family_of_gguf(std::string_view architecture) {
  for (const Family& f : kFamilies) {
    if (!f.gguf.empty() && architecture == f.gguf) return &f;
  }
  return error(Code::unsupported, "architecture '{}' is not supported; these are: {}", printable(architecture),
               listed(&Family::gguf));
}

Result<ModelPlan> plan_model(const Family& family, const Config& config, const TensorSource* tensors,
                             std::optional<WeightEncoding> encoding, Shortlist shortlist) {
  Builder b(tensors, encoding, family.norm_bias);
  b.set_shortlist(std::move(shortlist));
  const bool tied = family.build(config, b);
  SWY_TRY(config.status());
  SWY_LET(ModelPlan plan, b.finish(tied));
  plan.spec.architecture = family.model_type;
  plan.spec.context_length = config.count_or("max_position_embeddings", 32768);
  plan.spec.eos_ids = config.eos_ids;
  SWY_TRY(config.status());
  return plan;
}

}  // namespace switchyard
