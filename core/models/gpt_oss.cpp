// SPDX-License-Identifier: Apache-2.0
// gpt-oss-20b and -120b (arXiv:2508.10925; transformers: gpt_oss): attention with a sink for each head, in every other
// layer to a window, then experts with a clamped activation. Biases everywhere but in the head.
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "core/models/blocks.h"
#include "core/models/derived.h"
#include "core/models/registry.h"
#include "core/models/rope.h"

namespace switchyard {
namespace {

using nlohmann::json;

constexpr uint32_t kMostOfAKind = 65536;  // heads, experts
constexpr double kTheta = 150000;

// What a config.json without either stands for.
Config with_rope(const Config& c) {
  if (c.find("rope_parameters") != nullptr || c.find("rope_scaling") != nullptr) return c;
  return c.with("rope_parameters", {{"rope_type", "yarn"},
                                    {"factor", 32.0},
                                    {"beta_fast", 32.0},
                                    {"beta_slow", 1.0},
                                    {"truncate", false},
                                    {"original_max_position_embeddings", 4096}});
}

// Per layer: positions that a row reads; 0: all.
std::vector<uint32_t> windows(const Config& c, uint32_t layers) {
  const uint32_t window = c.count_or("sliding_window", 128);
  const json* types = c.find("layer_types");
  const bool fits = types != nullptr && types->is_array() && types->size() == layers;
  c.require(types == nullptr || fits,
            fmt::format("layer_types must list {} layers, as num_hidden_layers says", layers));
  std::vector<uint32_t> all;
  for (uint32_t l = 0; l < layers; ++l) {
    const json type = fits ? (*types)[l] : json(l % 2 == 0 ? "sliding_attention" : "full_attention");
    c.require(type == "sliding_attention" || type == "full_attention",
              fmt::format("layer type {} is not supported; sliding_attention and full_attention are", brief(type)),
              Code::unsupported);
    all.push_back(type == "sliding_attention" ? window : 0);
  }
  return all;
}

struct SinkAttention {
  SinkAttention(const Config& c, const Trunk& trunk)
      : heads(c.count("num_attention_heads", kMostOfAKind)),
        kv_heads(c.count_or("num_key_value_heads", heads)),
        head_dim(c.count_or("head_dim", std::max(1u, trunk.hidden / heads))),
        biases(c.flag_or("attention_bias", true)),
        eps(trunk.eps),
        rope(with_rope(c), head_dim, kTheta) {
    c.require(heads % kv_heads == 0,
              fmt::format("{} attention heads cannot share {} KV heads evenly", heads, kv_heads));
  }

  Projection projection(Builder& b, const std::string& name, const std::string& module, uint64_t out,
                        uint64_t in) const {
    Projection p{name, b.matrix(module + ".weight", {out, in})};
    if (biases) p.bias = b.plain(module + ".bias", {out});
    return p;
  }

  Activation build(Builder& b, const Scope& at, Weight inv_freq, uint32_t window, Activation h) const {
    const std::string module = at.from + "self_attn.";
    const uint64_t hidden = b.width(h), q = uint64_t{heads} * head_dim, kv = uint64_t{kv_heads} * head_dim;
    const std::vector<Activation> qkv = b.linear(h, {projection(b, at.name + "q", module + "q_proj", q, hidden),
                                                     projection(b, at.name + "k", module + "k_proj", kv, hidden),
                                                     projection(b, at.name + "v", module + "v_proj", kv, hidden)});
    swy_attention_attrs a{};
    a.heads = heads;
    a.kv_heads = kv_heads;
    a.head_dim = a.rotary_dim = head_dim;
    a.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
    a.norm_eps = eps;
    a.sinks = 1;
    a.window = window;
    a.rope_scale = rope.scale;
    const Activation y = b.attention(
        at, {.q = qkv[0], .k = qkv[1], .v = qkv[2], .inv_freq = inv_freq, .sinks = b.plain(module + "sinks", {heads})},
        a);
    return b.linear(y, {projection(b, at.name + "o", module + "o_proj", hidden, q)})[0];
  }

  uint32_t heads, kv_heads, head_dim;
  bool biases;
  float eps;
  Rope rope;
};

struct ClampedExperts {
  explicit ClampedExperts(const Config& c)
      : experts(c.count(c.find("num_local_experts") != nullptr ? "num_local_experts" : "num_experts", kMostOfAKind)),
        top_k(c.count("num_experts_per_tok", kMostOfAKind)),
        width(c.count("intermediate_size")),
        alpha(static_cast<float>(c.number_or("swiglu_alpha", 1.702))),
        limit(static_cast<float>(c.number_or("swiglu_limit", 7))) {
    c.require(top_k <= experts, fmt::format("{} experts are chosen for a token, and there are {}", top_k, experts));
  }

  // In the checkpoint the gates' rows take turns with those of the up projections. MXFP4 lies as it does here; tensors
  // in floating point lie transposed.
  void weights(Builder& b, const std::string& from, uint64_t hidden, MoeOperands& o) const {
    const uint64_t both = 2 * uint64_t{width};
    const std::vector<uint64_t> gate_up = {experts, both, hidden}, down = {experts, hidden, width};
    const SourceTensor* stored = b.tensor(from + "gate_up_proj");
    const bool floating =
        stored != nullptr && (stored->encoding().dtype == SWY_BF16 || stored->encoding().dtype == SWY_F32);
    const bool transposed = floating && (stored->dims != gate_up || hidden == both);
    const auto matrix = [&](const std::string& name, const std::vector<uint64_t>& dims) {
      if (!transposed) return b.tensor(from + name, dims);
      return b.derive<Transposed>(b.tensor(from + name, {dims[0], dims[2], dims[1]}));
    };
    const auto whole = [](const SourceTensor* t) {
      return t == nullptr ? std::vector<SourceRows>() : std::vector<SourceRows>{{t, 0, t->rows()}};
    };
    o.gate_up = b.matrix(from + "gate_up_proj", gate_up, whole(b.derive<RowsInTurns>(matrix("gate_up_proj", gate_up))));
    o.down = b.matrix(from + "down_proj", down, whole(matrix("down_proj", down)));
    const std::string gate_up_bias = from + "gate_up_proj_bias";
    o.gate_up_bias = b.plain(gate_up_bias, {experts, both},
                             whole(b.derive<ElementsInTurns>(b.tensor(gate_up_bias, {experts, both}))));
    o.down_bias = b.plain(from + "down_proj_bias", {experts, hidden});
  }

  Activation build(Builder& b, const Scope& at, Activation x) const {
    const std::string module = at.from + "mlp.";
    MoeOperands o;
    o.router = b.plain(module + "router.weight", {experts, b.width(x)});
    o.router_bias = b.plain(module + "router.bias", {experts});
    weights(b, module + "experts.", b.width(x), o);
    swy_moe_attrs a{};
    a.experts = experts;
    a.top_k = top_k;
    a.width = width;
    a.router = SWY_ROUTER_TOPK_SOFTMAX;
    a.normalize = a.expert_groups = a.top_groups = 1;
    a.routed_scale = 1;
    a.router_bias = a.expert_bias = 1;
    a.activation = SWY_ACT_CLAMPED;
    a.act_alpha = alpha;
    a.act_limit = limit;
    return b.moe(at, x, o, a);
  }

  uint32_t experts, top_k, width;
  float alpha, limit;
};

}  // namespace

bool build_gpt_oss(const Config& config, Builder& b) {
  Trunk trunk(config, 1e-5);
  const SinkAttention attention(config, trunk);
  const ClampedExperts experts(config);
  const std::vector<uint32_t> window = windows(config, trunk.layers);
  if (!config.ok()) return trunk.tied;

  Activation x = trunk.embed(b);
  const Weight inv_freq = b.given("rope.inv_freq", attention.rope.inv_freq);
  for (uint32_t l = 0; l < trunk.layers && b.ok(); ++l) {
    const Scope at = b.layer(l);
    const Activation h = trunk.norm(b, at, "mixer_norm", x, "input_layernorm");
    x = b.add(at.name + "mixer_sum", x, attention.build(b, at, inv_freq, window[l], h));
    const Activation n = trunk.norm(b, at, "moe_norm", x, "post_attention_layernorm");
    x = b.add(at.name + "moe_sum", x, experts.build(b, at, n));
  }
  trunk.head(b, x);
  return trunk.tied;
}

}  // namespace switchyard
