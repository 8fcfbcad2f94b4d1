// SPDX-License-Identifier: Apache-2.0
// Qwen3-MoE, as Qwen3-30B-A3B and Qwen3-Coder-30B-A3B (arXiv:2505.09388; transformers: qwen3_moe): attention, then
// experts; an MLP in the layers that config.json lists.
#include "core/models/blocks.h"
#include "core/models/registry.h"

namespace switchyard {

bool build_qwen3_moe(const Config& config, Builder& b) {
  Trunk trunk(config);
  const Attention attention(config, trunk, {.rope_theta = 1e6});
  const ExpertsOrMlp feed_forward(config, trunk, Experts::Form::alone);
  only_full_attention(config);
  config.require(config.flag_or("norm_topk_prob", false),
                 "norm_topk_prob false is not supported; the shares of the chosen experts must add up to 1",
                 Code::unsupported);
  if (!config.ok()) return trunk.tied;

  Activation x = trunk.embed(b);
  for (uint32_t l = 0; l < trunk.layers && b.ok(); ++l) {
    const Scope at = b.layer(l);
    const Activation h = trunk.norm(b, at, "mixer_norm", x, "input_layernorm");
    x = b.add(at.name + "mixer_sum", x, attention.build(b, at, "self_attn.", h));
    x = feed_forward.build(b, at, trunk, l, x);
  }
  trunk.head(b, x);
  return trunk.tied;
}

}  // namespace switchyard
