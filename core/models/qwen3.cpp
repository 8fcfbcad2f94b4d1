// SPDX-License-Identifier: Apache-2.0
// Qwen3, the dense models (arXiv:2505.09388; transformers: qwen3): attention, then an MLP.
#include "core/models/blocks.h"
#include "core/models/registry.h"

namespace switchyard {

bool build_qwen3(const Config& config, Builder& b) {
  Trunk trunk(config);
  const Attention attention(config, trunk, {.rope_theta = 1e6});
  const Mlp mlp(config);
  only_full_attention(config);
  if (!config.ok()) return trunk.tied;

  Activation x = trunk.embed(b);
  for (uint32_t l = 0; l < trunk.layers && b.ok(); ++l) {
    const Scope at = b.layer(l);
    const Activation h = trunk.norm(b, at, "mixer_norm", x, "input_layernorm");
    x = b.add(at.name + "mixer_sum", x, attention.build(b, at, "self_attn.", h));
    const Activation n = trunk.norm(b, at, "mlp_norm", x, "post_attention_layernorm");
    x = b.add(at.name + "mlp_sum", x, mlp.build(b, at, "mlp.", n));
  }
  trunk.head(b, x);
  return trunk.tied;
}

}  // namespace switchyard
