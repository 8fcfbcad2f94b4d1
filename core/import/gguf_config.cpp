// SPDX-License-Identifier: Apache-2.0
#include "core/import/gguf_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/printable.h"

namespace switchyard {
namespace {

using nlohmann::json;

// Names in the metadata, after the architecture's, and in config.json.
struct Name {
  const char* gguf;
  const char* config;
};
constexpr Name kNames[] = {
    {"block_count", "num_hidden_layers"},
    {"nextn_predict_layers", "num_nextn_predict_layers"},
    {"embedding_length", "hidden_size"},
    {"context_length", "max_position_embeddings"},
    {"feed_forward_length", "intermediate_size"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.key_length", "head_dim"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"attention.sliding_window", "sliding_window"},
    {"attention.recurrent_layers", "layer_types"},
    {"full_attention_interval", "full_attention_interval"},
    {"rope.freq_base", "rope_theta"},
    {"rope.dimension_count", "rotary_dim"},
    {"rope.scaling.type", "rope_type"},
    {"rope.scaling.factor", "factor"},
    {"rope.scaling.original_context_length", "original_max_position_embeddings"},
    {"rope.scaling.yarn_attn_factor", "attention_factor"},
    {"rope.scaling.yarn_beta_fast", "beta_fast"},
    {"rope.scaling.yarn_beta_slow", "beta_slow"},
    {"ssm.group_count", "linear_num_key_heads"},
    {"ssm.time_step_rank", "linear_num_value_heads"},
    {"ssm.state_size", "linear_key_head_dim"},
    {"ssm.inner_size", "linear_value_dims"},
    {"ssm.conv_kernel", "linear_conv_kernel_dim"},
    {"expert_count", "num_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
};

// A list of the same for every layer is one value. What JSON has no word for is described.
json as_json(const GgufValue& v) {
  if (const auto flag = v.flag()) return *flag;
  if (const auto whole = v.whole()) return *whole;
  if (const auto number = v.number()) return *number;
  if (const auto text = v.text()) return printable(*text);
  if (const auto flags = v.flags()) return *flags;
  if (const auto all = v.wholes()) {
    const bool same =
        !all->empty() && std::all_of(all->begin(), all->end(), [&](uint64_t n) { return n == (*all)[0]; });
    return same ? json((*all)[0]) : json(*all);
  }
  return v.describe();
}

// Tokens that end an answer, or a part of it that a person reads, in the families that are read and their kin. Files
// name one of them at most.
constexpr std::string_view kEndTexts[] = {"<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>",  "<|return|>",
                                          "<|call|>",   "<|fim_pad|>",   "<|repo_name|>",   "<|file_sep|>"};

// The tokens that end an answer: those that the file names, and those that are known by their texts.
std::vector<uint32_t> end_tokens(const GgufFile& file) {
  std::vector<uint32_t> ids;
  const auto add = [&](uint64_t id) {
    if (id <= INT32_MAX && std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(static_cast<uint32_t>(id));
  };
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    if (const GgufValue* v = file.find(key); v != nullptr && v->whole()) add(*v->whole());
  }
  const GgufValue* tokens = file.find("tokenizer.ggml.tokens");
  const auto texts = tokens == nullptr ? std::nullopt : tokens->texts();
  for (size_t i = 0; texts && i < texts->size(); ++i) {
    if (std::find(std::begin(kEndTexts), std::end(kEndTexts), (*texts)[i]) != std::end(kEndTexts)) add(i);
  }
  return ids;
}

// Flags of layers that keep a recurrent state, as config.json lists layers. Blocks for drafting follow the layers.
json layer_types(const json& recurrent, uint32_t layers) {
  json types = json::array();
  for (size_t l = 0; l < recurrent.size() && l < layers; ++l) {
    types.push_back(recurrent[l] == true ? "linear_attention" : "full_attention");
  }
  return types;
}

// Layers with an MLP in a model of experts, as config.json lists them. The metadata does not say which these are.
json dense_layers(const GgufFile& file, uint32_t layers) {
  json dense = json::array();
  for (uint32_t l = 0; l < layers; ++l) {
    const auto has = [&](const char* name) { return file.tensor(fmt::format("blk.{}.{}", l, name)) != nullptr; };
    if (has("ffn_gate.weight") && !has("ffn_gate_inp.weight")) dense.push_back(l);
  }
  return dense;
}

// What config.json keeps together, and what the converter left out of it.
void complete_gpt_oss(json& settings) {
  json rope = json::object();
  for (const char* name :
       {"rope_type", "factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow"}) {
    if (!settings.contains(name)) continue;
    rope[name] = settings[name];
    settings.erase(name);
  }
  if (!rope.contains("rope_type")) rope["rope_type"] = "default";
  rope["truncate"] = false;
  settings["rope_scaling"] = rope;
  if (settings.contains("moe_intermediate_size")) settings["intermediate_size"] = settings["moe_intermediate_size"];
}

}  // namespace

Result<GgufConfig> gguf_config(const GgufFile& file) {
  const GgufValue* name = file.find("general.architecture");
  const std::string architecture(name == nullptr ? "" : name->text().value_or(""));
  SWY_LET(const Family* family, family_of_gguf(architecture));
  json settings = json::object();
  for (const Name& n : kNames) {
    const GgufValue* v = file.find(fmt::format("{}.{}", architecture, n.gguf));
    if (v != nullptr) settings[n.config] = as_json(*v);
  }
  const auto label = [architecture](const std::string& config_name) {
    for (const Name& n : kNames) {
      if (config_name == n.config) return fmt::format("{}.{}", architecture, n.gguf);
    }
    return config_name;
  };
  const Config c(settings, {.source = "the metadata", .name = label});
  constexpr uint32_t kMostBlocks = 8192;
  const uint32_t blocks = c.count("num_hidden_layers", kMostBlocks), heads = c.count_or("linear_num_value_heads", 1),
                 inner = c.count_or("linear_value_dims", heads);
  const json* drafting = c.find("num_nextn_predict_layers");
  const uint32_t drafts = drafting == nullptr || *drafting == 0 ? 0 : c.count("num_nextn_predict_layers");
  c.require(drafts < blocks, fmt::format("{} of {} blocks are for drafting", drafts, blocks));
  c.require(inner % heads == 0, fmt::format("{} value heads do not share an inner size of {}", heads, inner));
  const GgufTensor* table = file.tensor("token_embd.weight");
  c.require(table != nullptr, "there is no tensor token_embd.weight");
  SWY_TRY(c.status());

  settings["num_hidden_layers"] = blocks - drafts;
  settings["vocab_size"] = table->rows();
  settings["linear_value_head_dim"] = inner / heads;
  settings["tie_word_embeddings"] = file.tensor("output.weight") == nullptr;
  settings["norm_topk_prob"] = true;  // the file does not say so, but the architectures that are read do
  if (c.find("layer_types") != nullptr) settings["layer_types"] = layer_types(*c.find("layer_types"), blocks - drafts);
  settings["mlp_only_layers"] = dense_layers(file, blocks - drafts);
  if (c.text_or("rope_type", "none") == "none") settings.erase("rope_type");
  if (family->model_type == "gpt_oss") complete_gpt_oss(settings);
  Config whole(settings, {.source = "the metadata", .name = label});
  whole.model_type = family->model_type;
  whole.eos_ids = end_tokens(file);
  return GgufConfig{family, std::move(whole)};
}

}  // namespace switchyard
