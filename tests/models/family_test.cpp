// SPDX-License-Identifier: Apache-2.0
// What the families build: the programs of published sizes, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/import/synthetic.h"
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

// Each MLP is one operation, which a planner fuses with the sum after it and a backend without it runs in pieces.
TEST(Families, DenseLayersHaveAnMlpEach) {
  const std::vector<std::tuple<const char*, size_t, size_t>> all = {
      {"qwen3", 3, 0}, {"qwen3_5", 4, 0}, {"qwen3_5-tied", 2, 0}, {"qwen3_moe", 1, 2}};
  for (const auto& [name, mlps, moes] : all) {
    const Program program = converted(TinyCheckpoint(std::string("families/") + name));
    const std::vector<Op>& ops = program.main().ops;
    const auto count = [&](swy_op_id id) {
      return static_cast<size_t>(std::count_if(ops.begin(), ops.end(), [&](const Op& op) { return op.id == id; }));
    };
    EXPECT_EQ(count(SWY_OP_MLP), mlps) << name;
    EXPECT_EQ(count(SWY_OP_MOE), moes) << name;
    EXPECT_EQ(count(SWY_OP_SILU_MUL), 0u) << name;
  }
}

TEST(Families, PublishedSizesAreThoseOfTheirNames) {
  const std::vector<std::pair<std::string_view, double>> billions = {
      {"qwen3.5-4b", 4.2},          {"qwen3.5-27b", 26.9},        {"qwen3.8-27b", 26.9},
      {"qwen3.5-35b-a3b", 34.7},    {"qwen3.5-122b-a10b", 122.1}, {"qwen3.5-397b-a17b", 396.3},
      {"qwen3-next-80b-a3b", 79.7}, {"qwen3-30b-a3b", 30.5},      {"qwen3-8b", 8.2},
      {"gpt-oss-20b", 20.9},        {"gpt-oss-120b", 116.8}};
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

// YaRN of gpt-oss-20b: pairs that keep their speed, the ramp from 8.09 to 17.4, and pairs that are 32 times slower.
TEST(Families, SyntheticModelsTurnAsTheirConfigurationSays) {
  const auto request = parse_synthetic("gpt-oss-20b,layers=2,vocab=512,quant=mxfp4");
  ASSERT_TRUE(request.ok()) << request.status().message();
  const auto program = synthetic_program(Os::real(), *request, 1);
  ASSERT_TRUE(program.ok()) << program.status().message();
  const std::vector<float> speeds = weight_values(*program, "rope.inv_freq");
  ASSERT_EQ(speeds.size(), 32u);
  const std::vector<std::pair<size_t, double>> expected = {{0, 1.0},
                                                           {8, 0.050813274815},
                                                           {9, 0.031705696185},
                                                           {13, 0.0038603593172},
                                                           {17, 0.00012931870125},
                                                           {18, 3.83088124e-5},
                                                           {31, 3.02351143e-7}};
  for (const auto& [pair, speed] : expected) EXPECT_NEAR(speeds[pair], speed, 1e-6 * speed) << pair;
  const auto& ops = program->main().ops;
  const auto first = std::find_if(ops.begin(), ops.end(), [](const Op& op) { return op.id == SWY_OP_ATTENTION; });
  ASSERT_NE(first, ops.end());
  EXPECT_EQ(first->attrs_as<swy_attention_attrs>().window, 128u);
  EXPECT_NEAR(first->attrs_as<swy_attention_attrs>().rope_scale, 1.34657359, 1e-6);
}

std::string bytes_of(const TinyCheckpoint& checkpoint, const std::string& name) {
  return checkpoint.tensors().at("model.layers.1.mlp.experts." + name).bytes;
}

// The bytes of MXFP4 are the checkpoint's, whether 4 bits are asked for or nothing; only the rows of gates and of up
// projections, which take turns there, lie apart.
TEST(Families, Mxfp4IsKeptByteForByte) {
  const TinyCheckpoint checkpoint("families/gpt_oss");
  const uint64_t experts = 6, width = 96, hidden = 64, row_bytes = hidden / 2, row_scales = hidden / 32;
  const std::string blocks = bytes_of(checkpoint, "gate_up_proj_blocks"),
                    scales = bytes_of(checkpoint, "gate_up_proj_scales");
  for (const std::optional<WeightEncoding> encoding : {std::optional<WeightEncoding>(), {{SWY_I4, 32}}}) {
    const TemporaryFolder out;
    ConvertOptions options;
    options.source = checkpoint.path();
    options.output = out.path("out.swy");
    options.encoding = encoding;
    ASSERT_TRUE(convert(Os::real(), options).ok());
    const auto program = Program::load(Os::real(), options.output);
    ASSERT_TRUE(program.ok());
    const auto gate_up = std::find_if(program->tensors.begin(), program->tensors.end(), [](const Tensor& t) {
      return t.name == "model.layers.1.mlp.experts.gate_up_proj";
    });
    ASSERT_NE(gate_up, program->tensors.end());
    EXPECT_EQ(gate_up->dtype, SWY_MXFP4);
    const swy_tensor desc = describe(*gate_up);
    swy_weight_planes planes;
    ASSERT_EQ(swy_weight_planes_of(&desc, &planes), 0);
    const auto* segment = reinterpret_cast<const char*>(program->segment_bytes(*gate_up).data());
    for (uint64_t e = 0; e < experts; ++e) {
      for (uint64_t i = 0; i < 2 * width; ++i) {
        const uint64_t to = e * 2 * width + i, from = e * 2 * width + (i < width ? 2 * i : 2 * (i - width) + 1);
        EXPECT_EQ(std::string(segment + to * row_bytes, row_bytes), blocks.substr(from * row_bytes, row_bytes));
        EXPECT_EQ(std::string(segment + planes.scales + to * row_scales, row_scales),
                  scales.substr(from * row_scales, row_scales));
      }
    }
  }
}

struct BrokenHalf {
  std::function<void(RawTensors&)> edit;
  const char* message;
};

TEST(Families, BrokenMxfp4IsRefusedByName) {
  const std::string name = "model.layers.1.mlp.experts.down_proj", scales = name + "_scales", blocks = name + "_blocks";
  const std::vector<BrokenHalf> all = {
      {[&](RawTensors& t) { t.erase(scales); },
       "the checkpoint has no tensor model.layers.1.mlp.experts.down_proj_scales"},
      {[&](RawTensors& t) { t.erase(blocks); }, "down_proj_scales has no blocks to scale"},
      {[&](RawTensors& t) {
         t.at(scales).shape = {6, 32, 6};
       },
       "its blocks [6, 64, 3, 16] and scales [6, 32, 6] do not"},
      {[&](RawTensors& t) {
         t.at(blocks).shape = {6, 64, 6, 8};
       },
       "its blocks [6, 64, 6, 8] and scales [6, 64, 3] do"},
      {[&](RawTensors& t) { t.at(scales).bytes[40] = '\xff'; }, "row 13: a scale is 255, which stands for no number"},
      {[&](RawTensors& t) {
         t["odd"] = {"U8", {4}, "abcd"};
       },
       "tensor odd has dtype U8; F32, F16, BF16 and MXFP4 can"},
  };
  for (const BrokenHalf& broken : all) {
    const TinyCheckpoint checkpoint("families/gpt_oss");
    RawTensors tensors = checkpoint.tensors();
    broken.edit(tensors);
    checkpoint.set_tensors(tensors);
    const TemporaryFolder out;
    const auto report = convert_to(checkpoint.path(), out.path("out.swy"), {SWY_I4, 32});
    ASSERT_FALSE(report.ok()) << broken.message;
    EXPECT_THAT(report.status().message(), HasSubstr(broken.message));
    EXPECT_TRUE(std::filesystem::is_empty(out.path()));
  }
}

struct Refused {
  const char* base;
  std::function<void(json&)> edit;
  const char* message;
};

TEST(Families, WhatCannotRunIsRefusedByName) {
  const std::vector<Refused> all = {
      {"qwen3", [](json& c) { c["model_type"] = "olmoe"; },
       "model_type 'olmoe' is not supported; these are: qwen3, qwen3_moe, qwen3_next, qwen3_5, qwen3_5_moe, gpt_oss"},
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
      {"gpt_oss", [](json& c) { c["rope_parameters"]["rope_type"] = "longrope"; },
       "rope_type 'longrope' is not supported; default and yarn are"},
      {"gpt_oss", [](json& c) { c["rope_parameters"]["factor"] = "NaN"; }, "factor is \"NaN\"; it must be a number"},
      {"gpt_oss", [](json& c) { c["rope_parameters"]["factor"] = -8; }, "factor is -8; it must be a number from 1e-30"},
      {"gpt_oss", [](json& c) { c["rope_parameters"].erase("original_max_position_embeddings"); },
       "config.json has no original_max_position_embeddings"},
      {"gpt_oss", [](json& c) { c["rope_parameters"]["rope_theta"] = 1; }, "rope_theta is 1; it must be more than 1"},
      {"gpt_oss", [](json& c) { c["rope_parameters"]["partial_rotary_factor"] = 0.5; },
       "partial_rotary_factor must be 1"},
      {"gpt_oss", [](json& c) { c["hidden_act"] = "gelu"; }, "hidden_act 'gelu' is not supported; silu is"},
      {"gpt_oss", [](json& c) { c["swiglu_limit"] = 0; }, "swiglu_limit is 0; it must be a number from"},
      {"gpt_oss", [](json& c) { c["layer_types"][1] = "chunked_attention"; },
       "layer type \"chunked_attention\" is not supported; sliding_attention and full_attention are"},
      {"gpt_oss", [](json& c) { c["layer_types"] = {"full_attention"}; }, "layer_types must list 3 layers"},
      {"gpt_oss", [](json& c) { c["sliding_window"] = 0; }, "sliding_window is 0; it must be a whole number"},
      {"gpt_oss", [](json& c) { c["head_dim"] = 21; }, "head_dim is 21; it must be an even number of at most 65536"},
      {"gpt_oss", [](json& c) { c["num_experts_per_tok"] = 7; }, "7 experts are chosen for a token, and there are 6"},
      {"gpt_oss", [](json& c) { c["num_local_experts"] = 5; }, "router.weight has shape [6, 64]; config.json asks for"},
      {"gpt_oss", [](json& c) { c["intermediate_size"] = 64; },
       "gate_up_proj has shape [6, 192, 64]; config.json asks for [6, 128, 64]"},
      {"gpt_oss-bf16", [](json& c) { c["intermediate_size"] = 30; },
       "gate_up_proj has shape [5, 40, 56]; config.json asks for [5, 40, 60]"},
      {"gpt_oss", [](json& c) { c["intermediate_size"] = 1e300; }, "intermediate_size is 1e+300; it must be a whole"},
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
  for (const char* family : {"qwen3", "qwen3_moe", "qwen3_next", "qwen3_5-tied", "gpt_oss-bf16"}) {
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
  for (const char* family : {"qwen3", "qwen3_moe", "qwen3_next", "qwen3_5", "gpt_oss"}) {
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
