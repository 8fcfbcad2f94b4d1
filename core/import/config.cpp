// SPDX-License-Identifier: Apache-2.0
#include "core/import/config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "core/base/printable.h"

namespace switchyard {
namespace {

using nlohmann::json;

// Reads fields of one JSON object and remembers the first that is wrong.
class Fields {
 public:
  explicit Fields(const json& object) : object_(object) {}

  uint32_t count(const char* name, uint32_t max = 1u << 24) {
    const json* f = find(name);
    if (f == nullptr) return fail<uint32_t>(fmt::format("config.json has no {}", name));
    if (!f->is_number_integer() || f->get<int64_t>() < 1 || f->get<int64_t>() > max) {
      return fail<uint32_t>(
          fmt::format("config.json: {} is {}; it must be a whole number from 1 to {}", name, brief(*f), max));
    }
    return f->get<uint32_t>();
  }
  uint32_t count_or(const char* name, uint32_t otherwise) { return find(name) == nullptr ? otherwise : count(name); }
  double number_or(const char* name, double otherwise) {
    const json* f = find(name);
    if (f == nullptr) return otherwise;
    const double value = f->is_number() ? f->get<double>() : 0;
    if (!(value >= kLeast && value <= kMost)) {
      return fail<double>(
          fmt::format("config.json: {} is {}; it must be a number from {} to {}", name, brief(*f), kLeast, kMost));
    }
    return value;
  }
  bool flag_or(const char* name, bool otherwise) {
    const json* f = find(name);
    if (f == nullptr) return otherwise;
    if (!f->is_boolean())
      return fail<bool>(fmt::format("config.json: {} is {}; it must be true or false", name, brief(*f)));
    return f->get<bool>();
  }
  std::string text_or(const char* name, const char* otherwise) {
    const json* f = find(name);
    return f != nullptr && f->is_string() ? f->get<std::string>() : otherwise;
  }
  const json* find(const char* name) const {
    const auto it = object_.find(name);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  Status status() const { return status_; }

 private:
  // A range that fp32 can represent easily.
  static constexpr double kLeast = 1e-30, kMost = 1e30;

  template <class T>
  T fail(const std::string& message) {
    if (status_.ok()) status_ = Status(Code::invalid_data, message);
    return T{};
  }
  const json& object_;
  Status status_;
};

Status read_layers(Fields& f, ModelConfig& c) {
  const json* types = f.find("layer_types");
  if (types == nullptr) {
    const uint32_t interval = f.count_or("full_attention_interval", 4);
    for (uint32_t i = 0; i < c.layers; ++i) c.attention.push_back(interval != 0 && (i + 1) % interval == 0);
    return {};
  }
  if (!types->is_array() || types->size() != c.layers) {
    return error(Code::invalid_data, "config.json: layer_types must list {} layers, as num_hidden_layers says",
                 c.layers);
  }
  for (const json& type : *types) {
    if (type != "full_attention" && type != "linear_attention") {
      return error(Code::unsupported,
                   "config.json: layer type {} is not supported; full_attention and linear_attention are", brief(type));
    }
    c.attention.push_back(type == "full_attention");
  }
  return {};
}

Status read_rope(Fields& f, ModelConfig& c) {
  const json empty = json::object();
  const json* rope = f.find("rope_parameters");
  if (rope == nullptr) rope = f.find("rope_scaling");
  if (rope == nullptr || !rope->is_object()) rope = &empty;
  Fields r(*rope);
  std::string type = r.text_or("rope_type", r.text_or("type", "default").c_str());
  if (type != "default" && type != "mrope") {
    return error(Code::unsupported, "config.json: rope_type '{}' is not supported; 'default' is", printable(type));
  }
  const double theta = r.number_or("rope_theta", f.number_or("rope_theta", 1e7));
  const double partial = r.number_or("partial_rotary_factor", f.number_or("partial_rotary_factor", 0.25));
  SWY_TRY(r.status());
  c.rope_theta = static_cast<float>(theta);
  c.rotary_dim = static_cast<uint32_t>(c.head_dim * std::min(partial, 1.0));
  if (partial > 1 || c.rotary_dim % 2 != 0) {
    return error(Code::invalid_data,
                 "config.json: partial_rotary_factor {} of head_dim {} gives no even number of "
                 "rotating elements",
                 partial, c.head_dim);
  }
  return {};
}

// The weights of all layers together, in elements. In floating point, which no product of sizes overflows.
double parameters(const ModelConfig& c) {
  const double hidden = c.hidden, keys = double{1} * c.key_heads * c.key_dim,
               values = double{1} * c.value_heads * c.value_dim, head = c.head_dim;
  const double moe = hidden * 3 * (double{1} * c.experts * c.expert_width + c.shared_width) + hidden * c.experts;
  const double attention = hidden * head * (3 * double{1} * c.heads + 2 * double{1} * c.kv_heads);
  const double delta =
      hidden * (2 * keys + 3 * values + 2 * double{1} * c.value_heads) + (2 * keys + values) * c.conv_kernel;
  const auto attentions = static_cast<double>(std::count(c.attention.begin(), c.attention.end(), true));
  return 2 * hidden * c.vocab + c.layers * moe + attentions * attention + (c.layers - attentions) * delta;
}

// Before anything is built from them: each size alone is possible, and all together may not be.
Status check_size(const ModelConfig& c) {
  constexpr double kMost = 1e14;  // fifty times the largest models
  if (const double all = parameters(c); all > kMost) {
    return error(Code::invalid_data,
                 "config.json describes a model of {:.1e} parameters, of which at most {:.0e} are supported; its sizes "
                 "are wrong",
                 all, kMost);
  }
  return {};
}

Status check_ratios(const ModelConfig& c) {
  if (c.heads % c.kv_heads != 0) {
    return error(Code::invalid_data, "config.json: {} attention heads cannot share {} KV heads evenly", c.heads,
                 c.kv_heads);
  }
  if (c.value_heads % c.key_heads != 0) {
    return error(Code::invalid_data, "config.json: {} value heads cannot share {} key heads evenly", c.value_heads,
                 c.key_heads);
  }
  if (c.top_k > c.experts) {
    return error(Code::invalid_data, "config.json: num_experts_per_tok is {}, and there are {} experts", c.top_k,
                 c.experts);
  }
  if (c.conv_kernel < 2) return error(Code::invalid_data, "config.json: linear_conv_kernel_dim must be at least 2");
  return {};
}

// One id or a list of them, added to `ids` unless there.
Status add_eos(const json& object, const char* file, std::vector<uint32_t>& ids) {
  constexpr size_t kMost = 1024;
  const auto it = object.find("eos_token_id");
  if (it == object.end() || it->is_object()) return {};
  if (it->size() > kMost) {
    return error(Code::invalid_data, "{}: eos_token_id lists {} tokens; at most {} are read", file, it->size(), kMost);
  }
  for (const json& id : *it) {  // a number is a list of itself
    if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX) continue;
    if (std::find(ids.begin(), ids.end(), id.get<uint32_t>()) == ids.end()) ids.push_back(id.get<uint32_t>());
  }
  return {};
}

}  // namespace

Result<ModelConfig> parse_config(std::string_view config, std::string_view generation) {
  SWY_LET(const json whole, read_json(config, "config.json"));
  if (!whole.is_object()) return error(Code::invalid_data, "config.json is not a JSON object");
  const bool nested = whole.contains("text_config") && whole["text_config"].is_object();
  const json& text = nested ? whole["text_config"] : whole;
  const std::string type = Fields(whole).text_or("model_type", Fields(text).text_or("model_type", "?").c_str());
  if (type != "qwen3_5_moe" && type != "qwen3_5_moe_text") {
    return error(Code::unsupported, "config.json: model_type '{}' is not supported; qwen3_5_moe is", printable(type));
  }
  Fields f(text);
  if (const std::string act = f.text_or("hidden_act", "silu"); act != "silu") {
    return error(Code::unsupported, "config.json: hidden_act '{}' is not supported; silu is", printable(act));
  }
  if (f.flag_or("attention_bias", false))
    return error(Code::unsupported, "config.json: attention_bias is not supported");

  ModelConfig c;
  c.hidden = f.count("hidden_size");
  c.layers = f.count("num_hidden_layers", 4096);
  c.vocab = f.count("vocab_size");
  c.heads = f.count("num_attention_heads", 65536);
  c.kv_heads = f.count_or("num_key_value_heads", c.heads);
  c.head_dim = f.count_or("head_dim", c.heads == 0 ? 1 : c.hidden / c.heads);
  c.key_heads = f.count("linear_num_key_heads", 65536);
  c.value_heads = f.count("linear_num_value_heads", 65536);
  c.key_dim = f.count("linear_key_head_dim", 65536);
  c.value_dim = f.count("linear_value_head_dim", 65536);
  c.conv_kernel = f.count_or("linear_conv_kernel_dim", 4);
  c.experts = f.count("num_experts", 65536);
  c.top_k = f.count("num_experts_per_tok", 65536);
  c.expert_width = f.count("moe_intermediate_size");
  c.shared_width = f.count("shared_expert_intermediate_size");
  c.eps = static_cast<float>(f.number_or("rms_norm_eps", 1e-6));
  c.gated = f.flag_or("attn_output_gate", true);
  Fields outer(whole);
  c.tied = f.flag_or("tie_word_embeddings", outer.flag_or("tie_word_embeddings", false));
  SWY_TRY(outer.status());
  c.context_length = f.count_or("max_position_embeddings", 32768);
  SWY_TRY(f.status());
  SWY_TRY(read_layers(f, c));
  SWY_TRY(read_rope(f, c));
  SWY_TRY(f.status());
  SWY_TRY(check_ratios(c));
  SWY_TRY(check_size(c));
  SWY_TRY(add_eos(text, "config.json", c.eos_ids));
  if (!generation.empty()) {
    SWY_LET(const json g, read_json(generation, "generation_config.json"));
    if (g.is_object()) SWY_TRY(add_eos(g, "generation_config.json", c.eos_ids));
  }
  return c;
}

}  // namespace switchyard
