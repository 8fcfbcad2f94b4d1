// SPDX-License-Identifier: Apache-2.0
// Checkpoints that are incomplete, damaged or foreign: each is refused in one line that names what is wrong, and
// nothing appears where the program would have been written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/import/checkpoint.h"

namespace switchyard::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kEmbedding = "model.embed_tokens.weight";

struct Bad {
  const char* name;
  const char* base;
  std::function<void(const TinyCheckpoint&)> damage;
  Code code;
  const char* message;  // part of it
};
void PrintTo(const Bad& bad, std::ostream* out) { *out << bad.name; }

std::function<void(const TinyCheckpoint&)> config(const std::function<void(json&)>& edit) {
  return [edit](const TinyCheckpoint& c) {
    json config = c.config();
    edit(config);
    c.set_config(config);
  };
}

std::function<void(const TinyCheckpoint&)> tensors(const std::function<void(RawTensors&)>& edit) {
  return [edit](const TinyCheckpoint& c) {
    RawTensors all = c.tensors();
    edit(all);
    c.set_tensors(all);
  };
}

std::function<void(const TinyCheckpoint&)> index(const std::function<void(json&)>& edit) {
  return [edit](const TinyCheckpoint& c) {
    const std::string file = "model.safetensors.index.json";
    json index = json::parse(read_file(c.path(file)));
    edit(index);
    c.write(file, index.dump());
  };
}

std::function<void(const TinyCheckpoint&)> file(const std::string& name, const std::string& text) {
  return [name, text](const TinyCheckpoint& c) { c.write(name, text); };
}

// A safetensors file with this header.
std::string with_header(const std::string& header, const std::string& data = "") {
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + header + data;
}

std::string nested(const std::string& open, const std::string& close, size_t depth) {
  std::string text;
  for (size_t i = 0; i < depth; ++i) text += open;
  for (size_t i = 0; i < depth; ++i) text += close;
  return text;
}

// The key's value becomes an array that is as deep as a file may have it.
std::function<void(const TinyCheckpoint&)> deep(const std::string& key, const std::string& before = "",
                                                const std::string& after = "") {
  return [=](const TinyCheckpoint& c) {
    json config = c.config();
    config.erase(key);
    const std::string rest = config.dump().substr(1);
    c.write("config.json", "{\"" + key + "\":" + before + nested("[", "]", 60) + after + "," + rest);
  };
}

std::vector<Bad> weights() {
  const char* one = "half-rotary";
  const char* sharded = "multimodal";
  return {
      {"MissingShard", sharded, [](const auto& c) { c.remove("model-00002-of-00003.safetensors"); }, Code::not_found,
       "model-00002-of-00003.safetensors is missing, and "},
      {"MissingWeights", one, [](const auto& c) { c.remove("model.safetensors"); }, Code::not_found,
       "has neither model.safetensors nor model.safetensors.index.json; name the folder"},
      {"ShardOutsideTheFolder", sharded,
       index([](json& i) { i["weight_map"]["mtp.norm.weight"] = "../x.safetensors"; }), Code::invalid_data,
       "names the shard ../x.safetensors, which is outside the checkpoint's folder"},
      {"ShardIsNoText", sharded, index([](json& i) { i["weight_map"]["mtp.norm.weight"] = 7; }), Code::invalid_data,
       "tensor mtp.norm.weight names no shard"},
      {"TensorNotInItsShard", sharded,
       index([](json& i) { i["weight_map"]["extra"] = "model-00001-of-00003.safetensors"; }), Code::invalid_data,
       "tensor extra is not in model-00001-of-00003.safetensors, where the index says it is"},
      {"IndexWithoutMap", sharded, index([](json& i) { i.erase("weight_map"); }), Code::invalid_data,
       "has no weight_map"},
      {"IndexIsNoJson", sharded, file("model.safetensors.index.json", "{"), Code::invalid_data, "is not valid JSON"},
      {"TensorTwice", sharded,
       [](const TinyCheckpoint& c) { c.write("model-00002-of-00003.safetensors", safetensors(c.tensors())); },
       Code::invalid_data, "is in two shards"},
      {"MissingTensor", one, tensors([](RawTensors& t) { t.erase("model.layers.1.self_attn.k_proj.weight"); }),
       Code::invalid_data, "the checkpoint has no tensor model.layers.1.self_attn.k_proj.weight; is this the whole"},
      {"MissingExpert", one, tensors([](RawTensors& t) { t.erase("model.layers.0.mlp.experts.4.up_proj.weight"); }),
       Code::invalid_data, "the checkpoint has no tensor model.layers.0.mlp.experts.4.up_proj.weight"},
      {"WrongShape", one, tensors([](RawTensors& t) {
         t[kEmbedding].shape = {48, 128};
       }),
       Code::invalid_data, "tensor model.embed_tokens.weight has shape [48, 128]; config.json asks for [128, 48]"},
      {"WrongRank", one, tensors([](RawTensors& t) {
         t[kEmbedding].shape = {128, 48, 1};
       }),
       Code::invalid_data, "tensor model.embed_tokens.weight has shape [128, 48, 1]"},
      {"ShapeAndBytesDiffer", one, tensors([](RawTensors& t) {
         t[kEmbedding].shape = {128, 49};
       }),
       Code::invalid_data, "tensor model.embed_tokens.weight has 12288 bytes, and its shape [128,49] needs 12544"},
      {"ShapeOfZero", one, tensors([](RawTensors& t) {
         t[kEmbedding].shape = {128, 0};
       }),
       Code::invalid_data, "impossible shape [128,0]"},
      {"ShapeOverflows", one, tensors([](RawTensors& t) {
         t[kEmbedding].shape = {1ull << 40, 1ull << 40};
       }),
       Code::invalid_data, "impossible shape"},
      {"ShapeIsNegative", one, tensors([](RawTensors& t) {
         t[kEmbedding].shape = {-128, -48};
       }),
       Code::invalid_data, "impossible shape"},
      {"ShapeIsANumber", one, tensors([](RawTensors& t) { t[kEmbedding].shape = 6144; }), Code::invalid_data,
       "model.embed_tokens.weight has the impossible shape 6144"},
      {"ShapeIsDeep", one,
       file("model.safetensors",
            with_header(R"({"a":{"dtype":"F32","data_offsets":[0,4],"shape":)" + nested("[", "]", 60) + "}}", "0123")),
       Code::invalid_data, "tensor a has the impossible shape an array"},
      {"UnknownDtype", one, tensors([](RawTensors& t) { t[kEmbedding].dtype = "F8_E4M3"; }), Code::unsupported,
       "tensor model.embed_tokens.weight has dtype F8_E4M3; F32, F16, BF16 and MXFP4 can be converted"},
      {"NotANumber", one, tensors([](RawTensors& t) { t["lm_head.weight"].bytes.replace(200, 2, "\xc0\x7f"); }),
       Code::invalid_data, "tensor lm_head.weight: row 2"},
      {"ShardIsText", one, file("model.safetensors", "version https://git-lfs.github.com/spec/v1"), Code::invalid_data,
       "model.safetensors is not a safetensors file, or is truncated"},
      {"ShardIsEmpty", one, file("model.safetensors", ""), Code::invalid_data, "is not a safetensors file"},
      {"HeaderIsNoJson", one, file("model.safetensors", with_header("{]")), Code::invalid_data,
       "model.safetensors: the safetensors header is not valid JSON at byte 1"},
      {"HeaderIsDeep", one, file("model.safetensors", with_header(nested("[", "]", 1000000))), Code::invalid_data,
       "the safetensors header has more than 64 levels of nesting at byte 64"},
      {"EntryIsANumber", one, file("model.safetensors", with_header(R"({"a":1})")), Code::invalid_data,
       "tensor a has a broken header entry"},
      {"OffsetsReversed", one,
       file("model.safetensors", with_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[8,4]}})", "01234567")),
       Code::invalid_data, "tensor a lies at bytes 8..4"},
      {"OffsetsAreText", one,
       file("model.safetensors", with_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":["0","4"]}})", "0123")),
       Code::invalid_data, "tensor a has broken data_offsets"},
  };
}

std::vector<Bad> texts() {
  const char* one = "half-rotary";
  return {
      {"NoConfig", one, [](const auto& c) { c.remove("config.json"); }, Code::not_found,
       "has no config.json; name the folder of a Hugging Face checkpoint"},
      {"ConfigIsNoJson", one, file("config.json", "{\"a\": 1,,}"), Code::invalid_data,
       "config.json is not valid JSON at byte 8"},
      {"ConfigIsAnArray", one, file("config.json", "[1]"), Code::invalid_data, "config.json is not a JSON object"},
      {"ConfigIsDeep", one, file("config.json", nested("[", "]", 1000000)), Code::invalid_data,
       "config.json has more than 64 levels of nesting at byte 64"},
      {"OtherArchitecture", one, config([](json& c) { c["model_type"] = "llama"; }), Code::unsupported,
       "config.json: model_type 'llama' is not supported; these are: qwen3, "},
      {"NoArchitecture", one, config([](json& c) { c.erase("model_type"); }), Code::unsupported, "model_type '?'"},
      {"OtherActivation", one, config([](json& c) { c["hidden_act"] = "gelu"; }), Code::unsupported,
       "hidden_act 'gelu' is not supported; silu is"},
      {"AttentionBias", one, config([](json& c) { c["attention_bias"] = true; }), Code::unsupported,
       "attention_bias true is not supported"},
      {"OtherRope", one, config([](json& c) { c["rope_parameters"]["rope_type"] = "yarn"; }), Code::unsupported,
       "rope_type 'yarn' is not supported"},
      {"OtherLayerType", one, config([](json& c) { c["layer_types"][0] = "sliding_attention"; }), Code::unsupported,
       "layer type \"sliding_attention\" is not supported"},
      {"TooFewLayerTypes", one, config([](json& c) { c["layer_types"].erase(0); }), Code::invalid_data,
       "layer_types must list 2 layers"},
      {"GenerationConfigIsDeep", one, file("generation_config.json", R"({"eos_token_id":)" + nested("[", "]", 1000000)),
       Code::invalid_data, "generation_config.json has more than 64 levels of nesting at byte 79"},
      {"ManyEnds", one, config([](json& c) { c["eos_token_id"] = std::vector<int>(100000); }), Code::invalid_data,
       "eos_token_id lists 100000 tokens; at most 1024 are read"},
      {"EscapesOfATerminal", one, config([](json& c) { c["model_type"] = "\x1b[2J" + std::string(1000, 'x'); }),
       Code::unsupported, "model_type '\\x1B[2Jxxx"},
      {"TokenizerIsDeep", one, file("tokenizer.json", R"({"model":{},"pre_tokenizer":)" + nested("[", "]", 1000000)),
       Code::invalid_data, "tokenizer.json has more than 64 levels of nesting at byte 91"},
      {"LayerTypeIsDeep", one, deep("layer_types", "[", ",\"full_attention\"]"), Code::unsupported,
       "layer type an array is not supported"},
      {"NumberIsDeep", one, deep("hidden_size"), Code::invalid_data,
       "hidden_size is an array; it must be a whole number"},
      {"UnevenHeads", one, config([](json& c) { c["num_key_value_heads"] = 3; }), Code::invalid_data,
       "4 attention heads cannot share 3 KV heads evenly"},
      {"UnevenDeltaHeads", one, config([](json& c) { c["linear_num_key_heads"] = 3; }), Code::invalid_data,
       "4 value heads cannot share 3 key heads evenly"},
      {"MoreExpertsThanThereAre", one, config([](json& c) { c["num_experts_per_tok"] = 6; }), Code::invalid_data,
       "6 experts are chosen for a token, and there are 5"},
      {"AbsurdSizes", one, config([](json& c) {
         for (const char* size : {"vocab_size", "hidden_size", "moe_intermediate_size"}) c[size] = 1 << 24;
         c["num_experts"] = 65536;
       }),
       Code::invalid_data, "the sizes describe a model of more than 1e+14 parameters, the most that is supported"},
      {"NoNumber", one, file("config.json", R"({"model_type": "qwen3_5_moe_text", "rms_norm_eps": NaN})"),
       Code::invalid_data, "config.json is not valid JSON at byte 51"},
      {"OddRotary", one, config([](json& c) { c["rope_parameters"]["partial_rotary_factor"] = 0.2; }),
       Code::invalid_data, "partial_rotary_factor 0.2 of head_dim 16 gives no even number"},
      {"HugeRotary", one, config([](json& c) { c["rope_parameters"]["partial_rotary_factor"] = 1e300; }),
       Code::invalid_data, "partial_rotary_factor"},
      {"HugeTheta", one, config([](json& c) { c["rope_parameters"]["rope_theta"] = 1e300; }), Code::invalid_data,
       "rope_theta is 1e+300"},
      {"HugeEpsilon", one, config([](json& c) { c["rms_norm_eps"] = 1e300; }), Code::invalid_data,
       "rms_norm_eps is 1e+300"},
      {"TokenizerIsNoJson", one, file("tokenizer.json", "{"), Code::invalid_data, ": tokenizer: "},
      {"TokenizerOfAnotherModel", one, file("tokenizer.json", read_file(SWITCHYARD_TEST_DATA "/demo/tokenizer.json")),
       Code::invalid_data, "the tokenizer has ids up to 4095, and the model's vocabulary is 128"},
      {"TokenizerOfAnotherKind", one, file("tokenizer.json", R"({"model":{"type":"Unigram","vocab":[]}})"),
       Code::unsupported, "Unigram"},
      {"ChatTemplateWithUnknownConstruct", one, file("chat_template.jinja", "{% frobnicate x %}"), Code::unsupported,
       "frobnicate"},
      {"ChatTemplateIsBroken", one, file("tokenizer_config.json", R"({"chat_template":"{% if x %}"})"),
       Code::invalid_data, "chat template"},
  };
}

class BadCheckpoint : public ::testing::TestWithParam<Bad> {};

TEST_P(BadCheckpoint, IsRefusedByName) {
  const TinyCheckpoint checkpoint(GetParam().base);
  GetParam().damage(checkpoint);
  const TemporaryFolder out;
  const auto report = convert_to(checkpoint.path(), out.path("out.swy"), {SWY_I8, 32});
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), GetParam().code) << report.status().message();
  EXPECT_THAT(report.status().message(), HasSubstr(GetParam().message));
  EXPECT_TRUE(std::filesystem::is_empty(out.path()));
}

std::string test_name(const ::testing::TestParamInfo<Bad>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Weights, BadCheckpoint, ::testing::ValuesIn(weights()), test_name);
INSTANTIATE_TEST_SUITE_P(Texts, BadCheckpoint, ::testing::ValuesIn(texts()), test_name);

TEST(BadConfig, EveryRequiredKeyIsAskedForByName) {
  for (const char* key :
       {"hidden_size", "num_hidden_layers", "vocab_size", "num_attention_heads", "linear_num_key_heads",
        "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim", "num_experts", "num_experts_per_tok",
        "moe_intermediate_size", "shared_expert_intermediate_size"}) {
    const TinyCheckpoint checkpoint;
    json config = checkpoint.config();
    config.erase(key);
    checkpoint.set_config(config);
    const TemporaryFolder out;
    const auto report = convert_to(checkpoint.path(), out.path("out.swy"));
    ASSERT_FALSE(report.ok()) << key;
    EXPECT_THAT(report.status().message(), HasSubstr(std::string("config.json has no ") + key));
  }
}

TEST(BadConfig, ManyLayersAndExpertsEndAtTheFirstTensorThatIsMissing) {
  const TinyCheckpoint checkpoint("half-rotary");
  json config = checkpoint.config();
  config.erase("layer_types");
  config["num_hidden_layers"] = 4096;
  config["num_experts"] = 65536;
  checkpoint.set_config(config);
  const TemporaryFolder out;
  const uint64_t begin = thread_cpu_ns();
  const auto report = convert_to(checkpoint.path(), out.path("out.swy"));
  ASSERT_FALSE(report.ok());
  EXPECT_THAT(report.status().message(), HasSubstr("tensor model.layers.0.mlp.gate.weight has shape [5, 48]"));
  EXPECT_LT(thread_cpu_ns() - begin, 5'000'000'000u) << "268 million experts would be looked for";
}

TEST(BadConfig, NoValueOfAnyKeyGetsPast) {
  const TinyCheckpoint checkpoint;
  const json config = checkpoint.config();
  const std::vector<json> values = {
      nullptr,    "x",           true,           -1,   0,       1,       1.5, 1e308, -1e308, 5e-324,
      1ull << 63, json::array(), json::object(), 4096, 1 << 24, {1, "a"}};
  for (const auto& [key, was] : config.items()) {
    for (const json& value : values) {
      json changed = config;
      changed[key] = value;
      checkpoint.set_config(changed);
      const TemporaryFolder out;
      const auto report = convert_to(checkpoint.path(), out.path("out.swy"));
      if (!report.ok()) continue;  // what is accepted must load
      const auto program = Program::load(Os::real(), out.path("out.swy"));
      EXPECT_TRUE(program.ok()) << key << " " << value << ": " << program.status().message();
    }
  }
}

TEST(BadWeights, EveryTruncationIsNoticed) {
  const TinyCheckpoint checkpoint;
  const std::string whole = read_file(checkpoint.path("model.safetensors"));
  const TemporaryFolder out;
  for (size_t size = 0; size < whole.size(); size += size < 64 ? 1 : 1009) {
    checkpoint.write("model.safetensors", whole.substr(0, size));
    const auto report = convert_to(checkpoint.path(), out.path("out.swy"));
    ASSERT_FALSE(report.ok()) << size;
    EXPECT_THAT(report.status().message(), HasSubstr("truncated"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(out.path()));
}

TEST(BadWeights, FlippedBytesOfAHeaderNeverCrash) {
  const TinyCheckpoint checkpoint;
  const std::string whole = read_file(checkpoint.path("model.safetensors"));
  const TemporaryFolder out;
  std::mt19937 random(1);
  size_t refused = 0;
  for (int round = 0; round < 300; ++round) {
    std::string flipped = whole;
    for (uint32_t i = 0; i <= random() % 4; ++i) flipped[random() % 3000] = static_cast<char>(random());
    checkpoint.write("model.safetensors", flipped);
    const auto report = convert_to(checkpoint.path(), out.path("out.swy"));
    if (report.ok()) {
      EXPECT_TRUE(Program::load(Os::real(), out.path("out.swy")).ok());
      std::filesystem::remove(out.path("out.swy"));
    } else {
      ++refused;
    }
    EXPECT_TRUE(std::filesystem::is_empty(out.path()));
  }
  EXPECT_GT(refused, 200u);
}

}  // namespace
}  // namespace switchyard::testing
