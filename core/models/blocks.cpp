// SPDX-License-Identifier: Apache-2.0
#include "core/models/blocks.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>

#include "core/base/json.h"
#include "core/base/printable.h"
#include "core/models/derived.h"

namespace switchyard {

using nlohmann::json;

namespace {

constexpr uint32_t kMostHeads = 65536;

}  // namespace

// ---- trunk

Trunk::Trunk(const Config& c, double eps_or)
    : hidden(c.count("hidden_size")),
      layers(c.count("num_hidden_layers", 4096)),
      vocab(c.count("vocab_size")),
      eps(static_cast<float>(c.number_or("rms_norm_eps", eps_or))),
      tied(c.flag_or("tie_word_embeddings", false)) {
  c.only_text("hidden_act", "silu");
}

Activation Trunk::embed(Builder& b) {
  table_ = b.matrix(b.model().from + "embed_tokens.weight", {vocab, hidden});
  return b.embedding("embedding", table_);
}

Activation Trunk::norm(Builder& b, const Scope& at, const std::string& name, Activation x,
                       const std::string& weight) const {
  return b.rms_norm(at.name + name, x, b.norm_weight(at.from + weight + ".weight", hidden), eps);
}

void Trunk::head(Builder& b, Activation x) {
  const Activation h = norm(b, b.model(), "final_norm", x, "norm");
  head_ = tied ? table_ : b.matrix("lm_head.weight", {vocab, hidden});
  b.lm_head("logits", h, head_);
}

// ---- which layers

std::vector<bool> full_attention_layers(const Config& c, uint32_t layers) {
  std::vector<bool> full;
  const json* types = c.find("layer_types");
  if (types == nullptr) {
    const uint32_t interval = c.count_or("full_attention_interval", 4);
    for (uint32_t l = 0; l < layers; ++l) full.push_back((l + 1) % interval == 0);
    return full;
  }
  const bool fits = types->is_array() && types->size() == layers;
  c.require(fits, fmt::format("layer_types must list {} layers, as num_hidden_layers says", layers));
  for (uint32_t l = 0; l < layers; ++l) {
    const json type = fits ? (*types)[l] : json("full_attention");
    c.require(type == "full_attention" || type == "linear_attention",
              fmt::format("layer type {} is not supported; full_attention and linear_attention are", brief(type)),
              Code::unsupported);
    full.push_back(type == "full_attention");
  }
  return full;
}

void only_full_attention(const Config& c) {
  c.only_flag("use_sliding_window", false);
  const json* types = c.find("layer_types");
  if (types == nullptr) return;
  for (const json& type : *types) {
    c.require(type == "full_attention", fmt::format("layer type {} is not supported; full_attention is", brief(type)),
              Code::unsupported);
  }
}

// ---- attention

Attention::Attention(const Config& c, const Trunk& trunk, Form form)
    : heads(c.count("num_attention_heads", kMostHeads)),
      kv_heads(c.count_or("num_key_value_heads", heads)),
      head_dim(c.count_or("head_dim", std::max(1u, trunk.hidden / heads))),
      eps(trunk.eps),
      gated(form.gated) {
  c.only_flag("attention_bias", false);
  c.require(heads % kv_heads == 0, fmt::format("{} attention heads cannot share {} KV heads evenly", heads, kv_heads));
  const Config rope = c.inner(c.find("rope_parameters") != nullptr ? "rope_parameters" : "rope_scaling");
  const std::string type = rope.text_or("rope_type", rope.text_or("type", c.text_or("rope_type", "default")));
  c.require(type == "default" || type == "mrope",
            fmt::format("rope_type '{}' is not supported; 'default' is", printable(type)), Code::unsupported);
  rope_theta = static_cast<float>(rope.number_or("rope_theta", c.number_or("rope_theta", form.rope_theta)));
  const double part = rope.number_or("partial_rotary_factor", c.number_or("partial_rotary_factor", form.rotary_part));
  rotary_dim = c.count_or("rotary_dim", static_cast<uint32_t>(head_dim * std::min(part, 1.0)));
  c.require(
      part <= 1 && rotary_dim % 2 == 0 && rotary_dim <= head_dim,
      fmt::format("partial_rotary_factor {} of head_dim {} gives no even number of rotating elements", part, head_dim));
}

Activation Attention::build(Builder& b, const Scope& at, const std::string& from, Activation h) const {
  const std::string module = at.from + from;
  const uint64_t hidden = b.width(h), q = uint64_t{heads} * head_dim, kv = uint64_t{kv_heads} * head_dim;
  const std::vector<Activation> qkv =
      b.linear(h, {{at.name + "q", b.matrix(module + "q_proj.weight", {q * (gated ? 2 : 1), hidden})},
                   {at.name + "k", b.matrix(module + "k_proj.weight", {kv, hidden})},
                   {at.name + "v", b.matrix(module + "v_proj.weight", {kv, hidden})}});
  swy_attention_attrs a{};
  a.heads = heads;
  a.kv_heads = kv_heads;
  a.head_dim = head_dim;
  a.rotary_dim = rotary_dim;
  a.rope_theta = rope_theta;
  a.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
  a.norm_eps = eps;
  a.gated = gated ? 1 : 0;
  const Activation y = b.attention(at,
                                   {.q = qkv[0],
                                    .k = qkv[1],
                                    .v = qkv[2],
                                    .q_norm = b.norm_weight(module + "q_norm.weight", head_dim),
                                    .k_norm = b.norm_weight(module + "k_norm.weight", head_dim)},
                                   a);
  return b.linear(at.name + "o", y, b.matrix(module + "o_proj.weight", {hidden, q}));
}

// ---- gated delta

GatedDelta::GatedDelta(const Config& c, const Trunk& trunk)
    : key_heads(c.count("linear_num_key_heads", kMostHeads)),
      value_heads(c.count("linear_num_value_heads", kMostHeads)),
      key_dim(c.count("linear_key_head_dim", 65536)),
      value_dim(c.count("linear_value_head_dim", 65536)),
      conv_kernel(c.count_or("linear_conv_kernel_dim", 4)),
      eps(trunk.eps) {
  c.require(value_heads % key_heads == 0,
            fmt::format("{} value heads cannot share {} key heads evenly", value_heads, key_heads));
  c.require(conv_kernel >= 2, "the convolution's kernel must have at least 2 elements");
}

GatedDelta::Projections GatedDelta::projections(Builder& b, const std::string& from, uint64_t hidden) const {
  if (b.has(from + "in_proj_qkvz.weight")) return interleaved_projections(b, from, hidden);
  return {.qkv = b.matrix(from + "in_proj_qkv.weight", {channels(), hidden}),
          .z = b.matrix(from + "in_proj_z.weight", {values(), hidden}),
          .b = b.plain(from + "in_proj_b.weight", {value_heads, hidden}),
          .a = b.plain(from + "in_proj_a.weight", {value_heads, hidden})};
}

// Of Qwen3-Next: two tensors, in which the rows of q, k, v and z (of b and a) take turns, a key head at a time.
GatedDelta::Projections GatedDelta::interleaved_projections(Builder& b, const std::string& from,
                                                            uint64_t hidden) const {
  const uint64_t share = value_heads / key_heads, value_rows = share * value_dim,
                 qkvz_rows = 2 * uint64_t{key_dim} + 2 * value_rows;
  const SourceTensor* qkvz = b.tensor(from + "in_proj_qkvz.weight", {key_heads * qkvz_rows, hidden});
  const SourceTensor* ba = b.tensor(from + "in_proj_ba.weight", {uint64_t{2} * value_heads, hidden});
  // The `count` rows from `first` on of every key head.
  const auto take = [&](const SourceTensor* t, uint64_t head_rows, uint64_t first, uint64_t count,
                        std::vector<SourceRows>&& to = {}) {
    for (uint32_t h = 0; t != nullptr && h < key_heads; ++h) to.push_back({t, h * head_rows + first, count});
    return std::move(to);
  };
  std::vector<SourceRows> qkv = take(qkvz, qkvz_rows, 0, key_dim);
  qkv = take(qkvz, qkvz_rows, key_dim, key_dim, std::move(qkv));
  qkv = take(qkvz, qkvz_rows, 2 * uint64_t{key_dim}, value_rows, std::move(qkv));
  return {.qkv = b.matrix(from + "in_proj_qkv.weight", {channels(), hidden}, std::move(qkv)),
          .z = b.matrix(from + "in_proj_z.weight", {values(), hidden},
                        take(qkvz, qkvz_rows, 2 * uint64_t{key_dim} + value_rows, value_rows)),
          .b = b.plain(from + "in_proj_b.weight", {value_heads, hidden}, take(ba, 2 * share, 0, share)),
          .a = b.plain(from + "in_proj_a.weight", {value_heads, hidden}, take(ba, 2 * share, share, share))};
}

Activation GatedDelta::build(Builder& b, const Scope& at, const std::string& from, Activation h) const {
  const std::string module = at.from + from;
  const uint64_t hidden = b.width(h);
  const Projections p = projections(b, module, hidden);
  const std::vector<Activation> in =
      b.linear(h, {{at.name + "qkv", p.qkv}, {at.name + "z", p.z}, {at.name + "b", p.b}, {at.name + "a", p.a}});
  swy_gated_delta_attrs a{};
  a.key_heads = key_heads;
  a.value_heads = value_heads;
  a.key_dim = key_dim;
  a.value_dim = value_dim;
  a.conv_kernel = conv_kernel;
  a.norm_eps = eps;
  a.l2_eps = 1e-6f;
  const Activation y =
      b.gated_delta(at,
                    {.qkv = in[0],
                     .z = in[1],
                     .b = in[2],
                     .a = in[3],
                     .conv = b.plain(module + "conv1d.weight", {channels(), conv_kernel}, {channels(), 1, conv_kernel}),
                     .a_log = b.plain(module + "A_log", {value_heads}),
                     .dt_bias = b.plain(module + "dt_bias", {value_heads}),
                     .norm = b.norm_weight(module + "norm.weight", value_dim, 1)},
                    a);
  return b.linear(at.name + "out", y, b.matrix(module + "out_proj.weight", {hidden, values()}));
}

// ---- feed-forward

Activation Mlp::build(Builder& b, const Scope& at, const std::string& from, Activation x) const {
  const std::string module = at.from + from;
  const uint64_t hidden = b.width(x);
  const MlpOperands o{.gate = b.matrix(module + "gate_proj.weight", {width, hidden}),
                      .up = b.matrix(module + "up_proj.weight", {width, hidden}),
                      .down = b.matrix(module + "down_proj.weight", {hidden, width})};
  swy_mlp_attrs a{};
  a.width = width;
  return b.mlp(at, x, o, a);
}

Experts::Experts(const Config& c, Form form)
    : experts(c.count("num_experts", 65536)),
      top_k(c.count("num_experts_per_tok", 65536)),
      width(c.count("moe_intermediate_size")),
      shared_width(form == Form::with_shared_expert ? c.count("shared_expert_intermediate_size") : 0) {
  c.require(top_k <= experts, fmt::format("{} experts are chosen for a token, and there are {}", top_k, experts));
}

// Experts come as two tensors over all experts, or one by one.
std::pair<Weight, Weight> Experts::expert_weights(Builder& b, const std::string& from, uint64_t hidden) const {
  const std::vector<uint64_t> gate_up = {experts, 2 * uint64_t{width}, hidden}, down = {experts, hidden, width};
  if (!b.has_tensors() || b.has(from + "gate_up_proj")) {
    return {b.matrix(from + "gate_up_proj", gate_up), b.matrix(from + "down_proj", down)};
  }
  std::vector<SourceRows> gate_up_parts, down_parts;
  const auto take = [&](std::vector<SourceRows>& to, const std::string& name, uint64_t rows, uint64_t columns) {
    if (const SourceTensor* t = b.tensor(name, {rows, columns})) to.push_back({t, 0, rows});
  };
  for (uint32_t e = 0; e < experts && b.ok(); ++e) {
    const std::string expert = fmt::format("{}{}.", from, e);
    take(gate_up_parts, expert + "gate_proj.weight", width, hidden);
    take(gate_up_parts, expert + "up_proj.weight", width, hidden);
    take(down_parts, expert + "down_proj.weight", hidden, width);
  }
  return {b.matrix(from + "gate_up_proj", gate_up, std::move(gate_up_parts)),
          b.matrix(from + "down_proj", down, std::move(down_parts))};
}

Activation Experts::build(Builder& b, const Scope& at, const std::string& from, Activation x) const {
  const std::string module = at.from + from, shared = module + "shared_expert.";
  const uint64_t hidden = b.width(x);
  MoeOperands o;
  o.router = b.plain(module + "gate.weight", {experts, hidden});
  std::tie(o.gate_up, o.down) = expert_weights(b, module + "experts.", hidden);
  if (shared_width != 0) {
    o.shared = {.gate = b.matrix(shared + "gate_proj.weight", {shared_width, hidden}),
                .up = b.matrix(shared + "up_proj.weight", {shared_width, hidden}),
                .down = b.matrix(shared + "down_proj.weight", {hidden, shared_width}),
                .scale = b.plain(module + "shared_expert_gate.weight", {1, hidden})};
  }
  swy_moe_attrs a{};
  a.experts = experts;
  a.top_k = top_k;
  a.width = width;
  a.shared_width = shared_width;
  return b.moe(at, x, o, a);
}

// ---- multi-token prediction

Mtp::Mtp(const Config& c, const Trunk& trunk, const Attention& attention, FeedForward feed_forward)
    : trunk_(trunk), attention_(attention), feed_forward_(std::move(feed_forward)), configured_(false) {
  const json* layers = c.find("mtp_num_hidden_layers");
  configured_ = layers != nullptr && *layers != 0;
  if (configured_) c.count("mtp_num_hidden_layers");
}

// A checkpoint with more layers is used as far as its first one.
std::string Mtp::root(const Builder& b) const {
  if (b.has_tensors()) return b.mtp_root();
  return configured_ ? "mtp." : "";
}

// The projection of [embedding, hidden row] is stored as one matrix: here each half has its own columns of it.
void Mtp::build(Builder& b) const {
  const std::string from = root(b);
  if (from.empty()) return;
  const uint64_t hidden = trunk_.hidden;
  const Activation row = b.begin_function("mtp", "mtp.hidden", hidden);
  const Activation embedded = b.embedding("mtp.embedding", trunk_.table_);
  const Scope top{"mtp.", from};
  const Activation e = trunk_.norm(b, top, "embedding_norm", embedded, "pre_fc_norm_embedding");
  const Activation h = trunk_.norm(b, top, "hidden_norm", row, "pre_fc_norm_hidden");
  const std::string fc = from + "fc.weight";
  const SourceTensor* both = b.has_tensors() ? b.tensor(fc, {hidden, 2 * hidden}) : nullptr;
  const auto half = [&](const char* name, uint64_t first) {
    std::vector<SourceRows> part;
    if (both != nullptr) part.push_back({b.derive<Columns>(both, first, hidden), 0, hidden});
    return b.matrix(fmt::format("{}fc.{}.weight", from, name), {hidden, hidden}, std::move(part));
  };
  Activation x = b.add("mtp.fc_sum", b.linear("mtp.fc_embedding", e, half("embedding", 0)),
                       b.linear("mtp.fc_hidden", h, half("hidden", hidden)));
  const Scope at{"mtp.layers.0.", from + "layers.0."};
  const Activation mixed =
      attention_.build(b, at, "self_attn.", trunk_.norm(b, at, "mixer_norm", x, "input_layernorm"));
  x = b.add(at.name + "mixer_sum", x, mixed);
  const Activation n = trunk_.norm(b, at, "ffn_norm", x, "post_attention_layernorm");
  x = b.add(at.name + "ffn_sum", x, feed_forward_(b, at, "mlp.", n));
  const Activation m = trunk_.norm(b, top, "norm", x, "norm");
  const IdRanges ids = b.shortlist(trunk_.vocab);
  const Weight head = ids.empty() ? trunk_.head_ : b.rows_of("mtp.lm_head.shortlist", trunk_.head_, ids);
  b.lm_head("mtp.logits", m, head, m);
}

ExpertsOrMlp::ExpertsOrMlp(const Config& c, const Trunk& trunk, Experts::Form form) : experts_(c, form) {
  const uint32_t step = c.count_or("decoder_sparse_step", 1);
  const json* listed = c.find("mlp_only_layers");
  for (uint32_t l = 0; l < trunk.layers; ++l) {
    const bool dense = listed != nullptr && std::find(listed->begin(), listed->end(), json(l)) != listed->end();
    dense_.push_back(dense || (l + 1) % step != 0);
    if (dense_.back() && !mlp_) mlp_.emplace(c);
  }
}

Activation ExpertsOrMlp::build(Builder& b, const Scope& at, const Trunk& trunk, uint32_t layer, Activation x) const {
  const std::string kind = dense_[layer] ? "mlp" : "moe";
  const Activation n = trunk.norm(b, at, kind + "_norm", x, "post_attention_layernorm");
  const Activation y = dense_[layer] ? mlp_->build(b, at, "mlp.", n) : experts_.build(b, at, "mlp.", n);
  return b.add(at.name + kind + "_sum", x, y);
}

}  // namespace switchyard
