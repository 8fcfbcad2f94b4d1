// SPDX-License-Identifier: Apache-2.0
// Qwen3.5-MoE as a program: which operations it has, and from which tensors of a checkpoint its weights come.
#pragma once

#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/import/config.h"
#include "core/import/safetensors.h"
#include "core/program/spec.h"

namespace switchyard {

// How the quantizable weights are stored (embedding, lm_head, projections, experts, shared expert); all others keep the
// checkpoint's type.
struct WeightEncoding {
  swy_dtype dtype = SWY_BF16;
  uint32_t group = 0;
};

// The rows of a weight, in order: source tensors one after another.
struct WeightSource {
  std::vector<const SourceTensor*> parts;
};

struct ImportPlan {
  ProgramSpec spec;
  std::vector<WeightSource> sources;  // per tensor of the spec
  std::vector<std::string> notes;     // for the user: tensors that were skipped
};

// Without a checkpoint the plan has the spec of one of this configuration, and no sources. Errors: invalid_data, for a
// tensor that is missing or has another shape, by name.
Result<ImportPlan> plan_import(const ModelConfig& config, const Checkpoint* checkpoint, WeightEncoding encoding);

}  // namespace switchyard
