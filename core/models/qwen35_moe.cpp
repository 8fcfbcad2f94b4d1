// SPDX-License-Identifier: Apache-2.0
// Qwen3.5-MoE and Qwen3.6-MoE (transformers: qwen3_5_moe): three layers with the gated delta rule to one with gated
// attention, each followed by experts and a shared expert.
#include "core/models/blocks.h"
#include "core/models/registry.h"

namespace switchyard {

bool build_qwen35_moe(const Config& config, Builder& b) {
  Trunk trunk(config);
  const Attention attention(
      config, trunk, {.gated = config.flag_or("attn_output_gate", true), .rotary_part = 0.25, .rope_theta = 1e7});
  const GatedDelta delta(config, trunk);
  const Experts experts(config, Experts::Form::with_shared_expert);
  const std::vector<bool> full = full_attention_layers(config, trunk.layers);
  const Mtp mtp(config, trunk, attention, [&](Builder& to, const Scope& at, const std::string& from, Activation x) {
    return experts.build(to, at, from, x);
  });
  if (!config.ok()) return trunk.tied;

  Activation x = trunk.embed(b);
  for (uint32_t l = 0; l < trunk.layers && b.ok(); ++l) {
    const Scope at = b.layer(l);
    const Activation h = trunk.norm(b, at, "mixer_norm", x, "input_layernorm");
    const Activation mixed = full[l] ? attention.build(b, at, "self_attn.", h) : delta.build(b, at, "linear_attn.", h);
    x = b.add(at.name + "mixer_sum", x, mixed);
    const Activation n = trunk.norm(b, at, "moe_norm", x, "post_attention_layernorm");
    x = b.add(at.name + "moe_sum", x, experts.build(b, at, "mlp.", n));
  }
  trunk.head(b, x);
  mtp.build(b);
  return trunk.tied;
}

}  // namespace switchyard
