// SPDX-License-Identifier: Apache-2.0
// The configuration of a Qwen3.5-MoE checkpoint, as its config.json states it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace switchyard {

struct ModelConfig {
  uint32_t hidden = 0, layers = 0, vocab = 0;
  std::vector<bool> attention;  // per layer: full attention; otherwise gated delta
  uint32_t heads = 0, kv_heads = 0, head_dim = 0, rotary_dim = 0;
  float rope_theta = 0;
  uint32_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0, conv_kernel = 0;
  uint32_t experts = 0, top_k = 0, expert_width = 0, shared_width = 0;
  float eps = 0;
  bool tied = false;
  bool gated = true;
  uint64_t context_length = 0;
  std::vector<uint32_t> eos_ids;
};

// `generation` is the text of generation_config.json, or "". Errors: unsupported, for another architecture or a feature
// that the runtime lacks, by name; invalid_data, naming the field and its value.
Result<ModelConfig> parse_config(std::string_view config, std::string_view generation);

}  // namespace switchyard
