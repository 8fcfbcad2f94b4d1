// SPDX-License-Identifier: Apache-2.0
// The model families: which architecture is built by which file.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/models/builder.h"
#include "core/models/config.h"

namespace switchyard {

struct Family {
  std::string_view model_type;  // in config.json; "NAME_text" is the text part of such a model
  std::string_view gguf;        // general.architecture in a GGUF file; "": none that is read
  float norm_bias;              // 1: norms' weights are stored minus 1
  // Reads the whole configuration, and builds unless something is wrong with it. Returns whether lm_head.weight is the
  // embedding.
  bool (*build)(const Config&, Builder&);
};

std::span<const Family> families();

// Errors: unsupported, naming the architecture and those that are supported.
Result<const Family*> family_of(const Config& config);
Result<const Family*> family_of_gguf(std::string_view architecture);

// The program of a model, and where its weights come from. `encoding` is that of matrices (embedding, head,
// projections, experts), as Builder has it. All other weights keep theirs in any case. Without tensors the plan has no
// sources. `shortlist`: that of a multi-token prediction layer; none: its guesses may be any token. Errors: those of
// the configuration (unsupported, invalid_data), naming the setting and its value; invalid_data, for a tensor that is
// missing or has another shape, by name.
Result<ModelPlan> plan_model(const Family& family, const Config& config, const TensorSource* tensors,
                             std::optional<WeightEncoding> encoding, Shortlist shortlist = {});

// One file each.
bool build_gpt_oss(const Config& config, Builder& b);
bool build_qwen3(const Config& config, Builder& b);
bool build_qwen3_moe(const Config& config, Builder& b);
bool build_qwen3_next(const Config& config, Builder& b);
bool build_qwen35(const Config& config, Builder& b);
bool build_qwen35_moe(const Config& config, Builder& b);

}  // namespace switchyard
