// SPDX-License-Identifier: Apache-2.0
#include "core/models/published.h"

namespace switchyard {
namespace {

struct Published {
  std::string_view name, config;
};

constexpr std::string_view kQwen27b = R"({
  "model_type": "qwen3_5_text", "hidden_size": 5120, "num_hidden_layers": 64, "vocab_size": 248320,
  "num_attention_heads": 24, "num_key_value_heads": 4, "head_dim": 256, "full_attention_interval": 4,
  "linear_num_key_heads": 16, "linear_num_value_heads": 48, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
  "linear_conv_kernel_dim": 4, "intermediate_size": 17408, "rms_norm_eps": 1e-06, "tie_word_embeddings": false,
  "max_position_embeddings": 262144, "rope_parameters": {"rope_type": "default", "rope_theta": 10000000,
  "partial_rotary_factor": 0.25}, "eos_token_id": 248046})";

constexpr Published kPublished[] = {
    {"qwen3.5-35b-a3b", R"({
  "model_type": "qwen3_5_moe_text", "hidden_size": 2048, "num_hidden_layers": 40, "vocab_size": 248320,
  "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "full_attention_interval": 4,
  "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
  "linear_conv_kernel_dim": 4, "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512,
  "shared_expert_intermediate_size": 512, "rms_norm_eps": 1e-06, "tie_word_embeddings": false,
  "max_position_embeddings": 262144, "rope_parameters": {"rope_type": "default", "rope_theta": 10000000,
  "partial_rotary_factor": 0.25}, "eos_token_id": 248046})"},
    {"qwen3.5-4b", R"({
  "model_type": "qwen3_5_text", "hidden_size": 2560, "num_hidden_layers": 32, "vocab_size": 248320,
  "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 256, "full_attention_interval": 4,
  "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
  "linear_conv_kernel_dim": 4, "intermediate_size": 9216, "rms_norm_eps": 1e-06, "tie_word_embeddings": true,
  "max_position_embeddings": 262144, "rope_parameters": {"rope_type": "default", "rope_theta": 10000000,
  "partial_rotary_factor": 0.25}, "eos_token_id": 248046})"},
    {"qwen3.5-27b", kQwen27b},
    {"qwen3.8-27b", kQwen27b},
    {"qwen3.5-122b-a10b", R"({
  "model_type": "qwen3_5_moe_text", "hidden_size": 3072, "num_hidden_layers": 48, "vocab_size": 248320,
  "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 256, "full_attention_interval": 4,
  "linear_num_key_heads": 16, "linear_num_value_heads": 64, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
  "linear_conv_kernel_dim": 4, "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 1024,
  "shared_expert_intermediate_size": 1024, "rms_norm_eps": 1e-06, "tie_word_embeddings": false,
  "max_position_embeddings": 262144, "rope_parameters": {"rope_type": "default", "rope_theta": 10000000,
  "partial_rotary_factor": 0.25}, "eos_token_id": 248046})"},
    {"qwen3.5-397b-a17b", R"({
  "model_type": "qwen3_5_moe_text", "hidden_size": 4096, "num_hidden_layers": 60, "vocab_size": 248320,
  "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 256, "full_attention_interval": 4,
  "linear_num_key_heads": 16, "linear_num_value_heads": 64, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
  "linear_conv_kernel_dim": 4, "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 1024,
  "shared_expert_intermediate_size": 1024, "rms_norm_eps": 1e-06, "tie_word_embeddings": false,
  "max_position_embeddings": 262144, "rope_parameters": {"rope_type": "default", "rope_theta": 10000000,
  "partial_rotary_factor": 0.25}, "eos_token_id": 248046})"},
    {"qwen3-next-80b-a3b", R"({
  "model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 48, "vocab_size": 151936,
  "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "full_attention_interval": 4,
  "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
  "linear_conv_kernel_dim": 4, "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512,
  "shared_expert_intermediate_size": 512, "norm_topk_prob": true, "rms_norm_eps": 1e-06, "tie_word_embeddings": false,
  "max_position_embeddings": 262144, "rope_parameters": {"rope_type": "default", "rope_theta": 10000000,
  "partial_rotary_factor": 0.25}, "eos_token_id": 151645})"},
    {"qwen3-30b-a3b", R"({
  "model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "vocab_size": 151936,
  "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8,
  "moe_intermediate_size": 768, "intermediate_size": 6144, "norm_topk_prob": true, "decoder_sparse_step": 1,
  "mlp_only_layers": [], "rms_norm_eps": 1e-06, "tie_word_embeddings": false, "max_position_embeddings": 40960,
  "rope_theta": 1000000, "rope_scaling": null, "use_sliding_window": false, "eos_token_id": 151645})"},
    {"qwen3-8b", R"({
  "model_type": "qwen3", "hidden_size": 4096, "num_hidden_layers": 36, "vocab_size": 151936,
  "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 12288,
  "rms_norm_eps": 1e-06, "tie_word_embeddings": false, "max_position_embeddings": 40960, "rope_theta": 1000000,
  "rope_scaling": null, "use_sliding_window": false, "eos_token_id": 151645})"},
    {"gpt-oss-20b", R"({
  "model_type": "gpt_oss", "hidden_size": 2880, "num_hidden_layers": 24, "vocab_size": 201088,
  "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "attention_bias": true, "sliding_window": 128,
  "num_local_experts": 32, "num_experts_per_tok": 4, "intermediate_size": 2880, "swiglu_limit": 7.0,
  "rms_norm_eps": 1e-05, "tie_word_embeddings": false, "max_position_embeddings": 131072, "rope_theta": 150000,
  "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false,
  "original_max_position_embeddings": 4096}, "eos_token_id": 200002})"},
    {"gpt-oss-120b", R"({
  "model_type": "gpt_oss", "hidden_size": 2880, "num_hidden_layers": 36, "vocab_size": 201088,
  "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "attention_bias": true, "sliding_window": 128,
  "num_local_experts": 128, "num_experts_per_tok": 4, "intermediate_size": 2880, "swiglu_limit": 7.0,
  "rms_norm_eps": 1e-05, "tie_word_embeddings": false, "max_position_embeddings": 131072, "rope_theta": 150000,
  "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false,
  "original_max_position_embeddings": 4096}, "eos_token_id": 200002})"},
};

}  // namespace

std::string_view published_config(std::string_view name) {
  for (const Published& p : kPublished) {
    if (p.name == name) return p.config;
  }
  return {};
}

std::vector<std::string_view> published_configs() {
  std::vector<std::string_view> names;
  for (const Published& p : kPublished) names.push_back(p.name);
  return names;
}

}  // namespace switchyard
