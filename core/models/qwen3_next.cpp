// SPDX-License-Identifier: Apache-2.0
// Qwen3-Next and Qwen3-Coder-Next (transformers: qwen3_next): three layers with the gated delta rule to one with gated
// attention, each followed by experts and a shared expert; an MLP in the layers that config.json lists.
#include "core/models/blocks.h"
#include "core/models/registry.h"

namespace switchyard {

bool build_qwen3_next(const Config& config, Builder& b) {
  Trunk trunk(config);
  const Attention attention(config, trunk, {.gated = true, .rotary_part = 0.25, .rope_theta = 1e7});
  const GatedDelta delta(config, trunk);
  const ExpertsOrMlp feed_forward(config, trunk, Experts::Form::with_shared_expert);
  const std::vector<bool> full = full_attention_layers(config, trunk.layers);
  config.only_flag("norm_topk_prob", true);
  if (!config.ok()) return trunk.tied;

  Activation x = trunk.embed(b);
  for (uint32_t l = 0; l < trunk.layers && b.ok(); ++l) {
    const Scope at = b.layer(l);
    const Activation h = trunk.norm(b, at, "mixer_norm", x, "input_layernorm");
    const Activation mixed = full[l] ? attention.build(b, at, "self_attn.", h) : delta.build(b, at, "linear_attn.", h);
    x = b.add(at.name + "mixer_sum", x, mixed);
    x = feed_forward.build(b, at, trunk, l, x);
  }
  trunk.head(b, x);
  return trunk.tied;
}

}  // namespace switchyard
