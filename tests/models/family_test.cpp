// SPDX-License-Identifier: Apache-2.0
// What the families build: the programs of published sizes, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/models/published.h"
#include "core/models/registry.h"
#include "core/program/checksum.h"
#include "core/program/encode.h"
#include "switchyard/weights.h"
#include "tests/import/checkpoint.h"

namespace switchyard::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

uint64_t checksum(std::span<const std::byte> bytes) {
  Checksum sum;
  sum.add(bytes);
  return sum.value();
}

Result<ModelPlan> plan(const std::string& config) {
  SWY_LET(const Config c, Config::parse(config, ""));
  SWY_LET(const Family* family, family_of(c));
  return plan_model(*family, c, nullptr, WeightEncoding{SWY_I4, 32});
}

double parameters(const ModelPlan& plan) {
  double all = 0;
  for (const auto& tensor : plan.spec.tensors) {
    double product = 1;
    for (const uint64_t d : tensor.dims) product *= static_cast<double>(d);
    all += product;
  }
  return all;
}

// The whole file: operations, their order and attributes, names, weights. A change here changes every model of this
// family that is converted anew.
TEST(Families, Qwen35MoePrograms) {
  const std::vector<std::pair<std::string, uint64_t>> recorded = {
      {"attention-first", 0xc15e4f38273d393e},   {"half-rotary", 0xb0812f5016d4a7c5},
      {"key-value-dims", 0x661433245d9db831},    {"multimodal", 0x1f6fce7b367ea521},
      {"odd-widths", 0x96db4ebfeb933c55},        {"one-kv-head", 0xa2a5ab1a5a2a9545},
      {"three-value-heads", 0x9d3b4462e686c098}, {"tied-embeddings", 0xe46ee2bfa6c51770},
  };
  for (const auto& [name, sum] : recorded) {
    const TemporaryFolder out;
    ASSERT_TRUE(convert_to(TinyCheckpoint(name).path(), out.path("out.swy")).ok());
    const std::string file = read_file(out.path("out.swy"));
    EXPECT_EQ(checksum(std::as_bytes(std::span(file))), sum) << name;
  }
}

TEST(Families, PublishedSizesAreThoseOfTheirNames) {
  const std::vector<std::pair<std::string_view, double>> billions = {
      {"qwen3.5-4b", 4.2},          {"qwen3.5-27b", 26.9},
      {"qwen3.5-35b-a3b", 34.7},    {"qwen3.5-122b-a10b", 122.1},
      {"qwen3.5-397b-a17b", 396.3}, {"qwen3-next-80b-a3b", 79.7},
      {"qwen3-30b-a3b", 30.5},      {"qwen3-8b", 8.2}};
  EXPECT_EQ(published_configs().size(), billions.size());
  for (const auto& [name, size] : billions) {
    const auto planned = plan(std::string(published_config(name)));
    ASSERT_TRUE(planned.ok()) << name << ": " << planned.status().message();
    EXPECT_NEAR(parameters(*planned) / 1e9, size, 0.05) << name;
    EXPECT_TRUE(encode_program(planned->spec).ok()) << name;
  }
}

// 6 value heads share 2 key heads; the parts of each projection stand together, whatever their order in the checkpoint.
TEST(Families, InterleavedProjectionsAreTakenApart) {
  const TinyCheckpoint checkpoint("families/qwen3_next");
  const Program program = converted(checkpoint);
  const uint32_t key_heads = 2, key_dim = 16, values = 2 * 16, head = 2 * key_dim + 2 * values, hidden = 32;
  const std::string raw = checkpoint.tensors().at("model.layers.0.linear_attn.in_proj_qkvz.weight").bytes;
  const std::vector<float> qkv = weight_values(program, "model.layers.0.linear_attn.in_proj_qkv.weight"),
                           z = weight_values(program, "model.layers.0.linear_attn.in_proj_z.weight");
  const auto row = [&](uint64_t r) {
    std::vector<float> out(hidden);
    for (uint64_t i = 0; i < hidden; ++i) {
      uint16_t bits = 0;
      std::memcpy(&bits, raw.data() + 2 * (r * hidden + i), 2);
      out[i] = swy_bf16_to_f32(bits);
    }
    return out;
  };
  const auto expect_row = [&](const std::vector<float>& matrix, uint64_t at, uint64_t from) {
    EXPECT_EQ(std::vector<float>(&matrix[at * hidden], &matrix[(at + 1) * hidden]), row(from)) << at;
  };
  for (uint32_t h = 0; h < key_heads; ++h) {
    for (uint32_t i = 0; i < key_dim; ++i) {
      expect_row(qkv, h * key_dim + i, h * head + i);
      expect_row(qkv, (key_heads + h) * key_dim + i, h * head + key_dim + i);
    }
    for (uint32_t i = 0; i < values; ++i) {
      expect_row(qkv, 2 * key_heads * key_dim + h * values + i, h * head + 2 * key_dim + i);
      expect_row(z, h * values + i, h * head + 2 * key_dim + values + i);
    }
  }
}

struct Refused {
  const char* base;
  std::function<void(json&)> edit;
  const char* message;
};

TEST(Families, WhatCannotRunIsRefusedByName) {
  const std::vector<Refused> all = {
      {"qwen3", [](json& c) { c["model_type"] = "gpt_oss"; },
       "model_type 'gpt_oss' is not supported; these are: qwen3, qwen3_moe, qwen3_next, qwen3_5, qwen3_5_moe"},
      {"qwen3", [](json& c) { c["model_type"] = "qwen4_exp"; }, "model_type 'qwen4_exp' is not supported"},
      {"qwen3", [](json& c) { c["use_sliding_window"] = true; }, "use_sliding_window true is not supported"},
      {"qwen3", [](json& c) { c["layer_types"][1] = "sliding_attention"; },
       "layer type \"sliding_attention\" is not supported; full_attention is"},
      {"qwen3", [](json& c) { c["attention_bias"] = true; }, "attention_bias true is not supported"},
      {"qwen3", [](json& c) { c["hidden_act"] = "gelu"; }, "hidden_act 'gelu' is not supported; silu is"},
      {"qwen3", [](json& c) { c["rope_parameters"]["rope_type"] = "yarn"; }, "rope_type 'yarn' is not supported"},
      {"qwen3", [](json& c) { c["intermediate_size"] = 0; }, "intermediate_size is 0; it must be a whole number"},
      {"qwen3", [](json& c) { c["intermediate_size"] = 80; },
       "tensor model.layers.0.mlp.gate_proj.weight has shape [88, 32]; config.json asks for [80, 32]"},
      {"qwen3", [](json& c) { c["tie_word_embeddings"] = false; }, "the checkpoint has no tensor lm_head.weight"},
      {"qwen3_moe", [](json& c) { c["norm_topk_prob"] = false; }, "norm_topk_prob false is not supported"},
      {"qwen3_moe", [](json& c) { c.erase("norm_topk_prob"); }, "norm_topk_prob false is not supported"},
      {"qwen3_moe", [](json& c) { c["mlp_only_layers"] = json::array(); },
       "the checkpoint has no tensor model.layers.1.mlp.gate.weight"},
      {"qwen3_moe", [](json& c) { c["num_experts_per_tok"] = 17; }, "17 experts are chosen for a token, and there are"},
      {"qwen3_next", [](json& c) { c["norm_topk_prob"] = false; }, "norm_topk_prob false is not supported"},
      {"qwen3_next", [](json& c) { c["linear_num_value_heads"] = 6; }, "in_proj_qkvz.weight has shape [192, 32]"},
      {"qwen3_next", [](json& c) { c["linear_num_key_heads"] = 3; }, "4 value heads cannot share 3 key heads evenly"},
      {"qwen3_next", [](json& c) { c["shared_expert_intermediate_size"] = "x"; },
       "shared_expert_intermediate_size is \"x\"; it must be a whole number"},
      {"qwen3_5", [](json& c) { c["text_config"]["linear_conv_kernel_dim"] = 1; }, "kernel must have at least 2"},
      {"qwen3_5", [](json& c) { c["text_config"]["num_hidden_layers"] = 5000; }, "num_hidden_layers is 5000"},
      {"qwen3_5", [](json& c) { c["text_config"]["head_dim"] = 1 << 24; }, "q_proj.weight has shape [128, 32]"},
      {"qwen3_5", [](json& c) { c["text_config"]["vocab_size"] = c["text_config"]["hidden_size"] = 1 << 24; },
       "the sizes describe a model of more than 1e+14 parameters"},
  };
  for (const Refused& r : all) {
    const TinyCheckpoint checkpoint(std::string("families/") + r.base);
    json config = checkpoint.config();
    r.edit(config);
    checkpoint.set_config(config);
    const TemporaryFolder out;
    const auto report = convert_to(checkpoint.path(), out.path("out.swy"));
    ASSERT_FALSE(report.ok()) << r.message;
    EXPECT_THAT(report.status().message(), HasSubstr(r.message));
    EXPECT_TRUE(std::filesystem::is_empty(out.path()));
  }
}

// Whatever one key becomes: it is refused, or what is made of it loads.
TEST(Families, NoValueOfAnyKeyGetsPast) {
  const std::vector<json> values = {nullptr, "x",   true,          false,          -1,     0, 1,
                                    3,       1e308, json::array(), json::object(), 1 << 24};
  for (const char* family : {"qwen3", "qwen3_moe", "qwen3_next", "qwen3_5-tied"}) {
    const TinyCheckpoint checkpoint(std::string("families/") + family);
    const json config = checkpoint.config();
    const bool nested = config.contains("text_config");
    const json text = nested ? config["text_config"] : config;
    for (const auto& [key, was] : text.items()) {
      for (const json& value : values) {
        json changed = config;
        (nested ? changed["text_config"] : changed)[key] = value;
        checkpoint.set_config(changed);
        const TemporaryFolder out;
        if (!convert_to(checkpoint.path(), out.path("out.swy")).ok()) continue;
        const auto program = Program::load(Os::real(), out.path("out.swy"));
        EXPECT_TRUE(program.ok()) << family << " " << key << " " << value << ": " << program.status().message();
      }
    }
  }
}

TEST(Families, AMissingTensorIsNamed) {
  for (const char* family : {"qwen3", "qwen3_moe", "qwen3_next", "qwen3_5"}) {
    const TinyCheckpoint checkpoint(std::string("families/") + family);
    const RawTensors tensors = checkpoint.tensors();
    size_t tried = 0;
    for (const auto& [name, tensor] : tensors) {
      if (name.find("visual") != std::string::npos) continue;
      if (name.find(".experts.") != std::string::npos && name.find(".experts.1.") == std::string::npos) continue;
      if (tried++ % 5 != 0) continue;
      RawTensors fewer = tensors;
      fewer.erase(name);
      checkpoint.set_tensors(fewer);
      const TemporaryFolder out;
      const auto report = convert_to(checkpoint.path(), out.path("out.swy"));
      ASSERT_FALSE(report.ok()) << name;
      EXPECT_THAT(report.status().message(), HasSubstr("the checkpoint has no tensor "));
      EXPECT_TRUE(std::filesystem::is_empty(out.path()));
    }
  }
}

}  // namespace
}  // namespace switchyard::testing
