// SPDX-License-Identifier: Apache-2.0
// Qwen3.5, Qwen3.6 and Qwen3.8, the dense models (transformers: qwen3_5): three layers with the gated delta rule to one
// with gated attention, each followed by an MLP.
#include "core/models/blocks.h"
#include "core/models/registry.h"

namespace switchyard {

bool build_qwen35(const Config& config, Builder& b) {
  Trunk trunk(config);
  const Attention attention(
      config, trunk, {.gated = config.flag_or("attn_output_gate", true), .rotary_part = 0.25, .rope_theta = 1e7});
  const GatedDelta delta(config, trunk);
  const Mlp mlp(config);
  const std::vector<bool> full = full_attention_layers(config, trunk.layers);
  const Mtp mtp(config, trunk, attention, [&](Builder& to, const Scope& at, const std::string& from, Activation x) {
    return mlp.build(to, at, from, x);
  });
  if (!config.ok()) return trunk.tied;

  Activation x = trunk.embed(b);
  for (uint32_t l = 0; l < trunk.layers && b.ok(); ++l) {
    const Scope at = b.layer(l);
    const Activation h = trunk.norm(b, at, "mixer_norm", x, "input_layernorm");
    const Activation mixed = full[l] ? attention.build(b, at, "self_attn.", h) : delta.build(b, at, "linear_attn.", h);
    x = b.add(at.name + "mixer_sum", x, mixed);
    const Activation n = trunk.norm(b, at, "mlp_norm", x, "post_attention_layernorm");
    x = b.add(at.name + "mlp_sum", x, mlp.build(b, at, "mlp.", n));
  }
  trunk.head(b, x);
  mtp.build(b);
  return trunk.tied;
}

}  // namespace switchyard
