// SPDX-License-Identifier: Apache-2.0
// The forms in which one model comes: each gives the same program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "switchyard/weights.h"
#include "tests/import/checkpoint.h"

namespace switchyard::testing {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Every weight of `a` under the same name in `b`, bit for bit, and the same operations.
void expect_same_model(const Program& a, const Program& b) {
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  ASSERT_EQ(a.main().ops.size(), b.main().ops.size());
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const auto ours = a.segment_bytes(a.tensors[i]), theirs = b.segment_bytes(b.tensors[i]);
    EXPECT_EQ(a.tensors[i].dims, b.tensors[i].dims) << a.tensors[i].name;
    EXPECT_TRUE(std::equal(ours.begin(), ours.end(), theirs.begin(), theirs.end())) << a.tensors[i].name;
  }
  for (size_t i = 0; i < a.main().ops.size(); ++i) {
    const Op &x = a.main().ops[i], &y = b.main().ops[i];
    EXPECT_EQ(x.id, y.id);
    EXPECT_TRUE(std::equal(x.attrs.begin(), x.attrs.end(), y.attrs.begin(), y.attrs.end())) << "op " << i;
  }
}

// Experts one by one -> two tensors over all of them.
RawTensors fused(const RawTensors& tensors, size_t experts, size_t width, size_t hidden) {
  RawTensors out;
  for (const auto& [name, t] : tensors) {
    const size_t at = name.find(".experts.0.gate_proj.weight");
    if (at == std::string::npos) {
      if (name.find(".experts.") == std::string::npos) out[name] = t;
      continue;
    }
    const std::string from = name.substr(0, at) + ".experts.";
    RawTensor gate_up{"BF16", {experts, 2 * width, hidden}, ""}, down{"BF16", {experts, hidden, width}, ""};
    for (size_t e = 0; e < experts; ++e) {
      const std::string expert = from + std::to_string(e);
      gate_up.bytes += tensors.at(expert + ".gate_proj.weight").bytes + tensors.at(expert + ".up_proj.weight").bytes;
      down.bytes += tensors.at(expert + ".down_proj.weight").bytes;
    }
    out[from + "gate_up_proj"] = gate_up;
    out[from + "down_proj"] = down;
  }
  return out;
}

TEST(Layout, FusedExpertsAndSingleOnes) {
  const TinyCheckpoint single, together;
  const json c = single.config();
  together.set_tensors(fused(single.tensors(), c["num_experts"], c["moe_intermediate_size"], c["hidden_size"]));
  EXPECT_LT(together.tensors().size(), single.tensors().size());
  for (const WeightEncoding encoding : {WeightEncoding{}, WeightEncoding{SWY_I4A, 32}}) {
    expect_same_model(converted(single, encoding), converted(together, encoding));
  }
}

TEST(Layout, PlainConfigAndNestedOne) {
  const TinyCheckpoint plain, nested;
  nested.set_config(
      {{"model_type", "qwen3_5_moe"}, {"text_config", plain.config()}, {"vision_config", {{"depth", 1}}}});
  RawTensors prefixed;
  for (const auto& [name, t] : plain.tensors()) {
    prefixed[name.starts_with("model.") ? "model.language_model." + name.substr(6) : name] = t;
  }
  nested.set_tensors(prefixed);
  expect_same_model(converted(plain), converted(nested));
}

TEST(Layout, OneFileAndManyShards) {
  const TinyCheckpoint many("multimodal"), one("multimodal");
  one.set_tensors(many.tensors());
  expect_same_model(converted(many), converted(one));
}

TEST(Layout, WhatTextDoesNotNeedIsSkippedWithANote) {
  const TinyCheckpoint checkpoint("multimodal");
  const TemporaryFolder out;
  const auto report = convert_to(checkpoint.path(), out.path("out.swy"));
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_THAT(report->notes, ElementsAre("skipped 2 tensors of the vision encoder",
                                         "skipped 2 tensors of the multi-token prediction head",
                                         HasSubstr("no tokenizer"), HasSubstr("no chat template")));
  const auto program = Program::load(Os::real(), out.path("out.swy"));
  ASSERT_TRUE(program.ok());
  for (const Tensor& t : program->tensors) {
    EXPECT_EQ(t.name.find("visual"), std::string_view::npos);
    EXPECT_EQ(t.name.find("mtp"), std::string_view::npos);
  }
}

TEST(Layout, AnUnknownTensorIsNamed) {
  const TinyCheckpoint checkpoint;
  RawTensors tensors = checkpoint.tensors();
  tensors["model.layers.0.mystery"] = {"F32", {1}, "0123"};
  checkpoint.set_tensors(tensors);
  const TemporaryFolder out;
  const auto report = convert_to(checkpoint.path(), out.path("out.swy"));
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->notes[0],
            "skipped 1 tensors that this architecture does not use, the first is "
            "model.layers.0.mystery");
}

TEST(Layout, TiedEmbeddingsAreStoredOnce) {
  const TinyCheckpoint tied("tied-embeddings"), copied("tied-embeddings");
  RawTensors tensors = tied.tensors();
  ASSERT_EQ(tensors.count("lm_head.weight"), 0u);
  tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"];  // some checkpoints hold it all the same
  copied.set_tensors(tensors);
  const Program program = converted(tied);
  expect_same_model(program, converted(copied));
  EXPECT_EQ(program.find_tensor("lm_head.weight"), nullptr);
  EXPECT_EQ(program.main().ops.front().weights[0], program.main().ops.back().weights[0]);

  json config = tied.config();
  config.erase("tie_word_embeddings");
  tied.set_config(config);
  const TemporaryFolder out;
  const auto report = convert_to(tied.path(), out.path("out.swy"));
  ASSERT_FALSE(report.ok());
  EXPECT_THAT(report.status().message(), HasSubstr("the checkpoint has no tensor lm_head.weight"));
}

TEST(Layout, TiedIsReadFromTheOuterConfigToo) {
  const TinyCheckpoint tied("tied-embeddings");
  json text = tied.config();
  text.erase("tie_word_embeddings");
  tied.set_config({{"model_type", "qwen3_5_moe"}, {"text_config", text}, {"tie_word_embeddings", true}});
  EXPECT_EQ(converted(tied).find_tensor("lm_head.weight"), nullptr);
}

TEST(Layout, WideTensorsKeepTheirType) {
  const TinyCheckpoint checkpoint;
  RawTensors tensors = checkpoint.tensors();
  const std::string norm = "model.norm.weight", log = "model.layers.0.linear_attn.A_log",
                    table = "model.embed_tokens.weight";
  const auto widen = [&](const std::string& name) {
    RawTensor& t = tensors[name];
    std::string wide;
    for (size_t i = 0; i < t.bytes.size(); i += 2) wide += std::string(2, '\0') + t.bytes.substr(i, 2);
    t = {"F32", t.shape, wide};
  };
  for (const std::string& name : {norm, log, table}) widen(name);
  checkpoint.set_tensors(tensors);
  const Program wide = converted(checkpoint), narrow = converted(TinyCheckpoint());
  EXPECT_EQ(wide.find_tensor(norm)->dtype, SWY_F32);
  EXPECT_EQ(narrow.find_tensor(norm)->dtype, SWY_BF16);
  EXPECT_EQ(wide.find_tensor(log)->dtype, SWY_F32);
  EXPECT_EQ(wide.find_tensor(table)->dtype, SWY_BF16) << "the encoding that was asked for";
  for (const std::string& name : {norm, log, table}) EXPECT_EQ(weight_values(wide, name), weight_values(narrow, name));
}

TEST(Layout, HalfPrecisionIsRead) {
  const TinyCheckpoint checkpoint;
  RawTensors tensors = checkpoint.tensors();
  RawTensor& norm = tensors["model.norm.weight"];
  norm.dtype = "F16";
  const std::string raw = norm.bytes;
  checkpoint.set_tensors(tensors);
  const auto values = weight_values(converted(checkpoint), "model.norm.weight");
  ASSERT_EQ(values.size() * 2, raw.size());
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t half = 0;
    std::memcpy(&half, raw.data() + 2 * i, 2);
    EXPECT_EQ(values[i], swy_f16_to_f32(half));
  }
}

// Room for a larger tokenizer: rows of zeros for the ids that the checkpoint does not have.
void with_vocabulary(const TinyCheckpoint& checkpoint, size_t vocab) {
  json config = checkpoint.config();
  config["vocab_size"] = vocab;
  checkpoint.set_config(config);
  RawTensors tensors = checkpoint.tensors();
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
    RawTensor& t = tensors[name];
    t.shape[0] = vocab;
    t.bytes.resize(vocab * t.shape[1].get<size_t>() * 2);
  }
  checkpoint.set_tensors(tensors);
}

TEST(Layout, TextsAreTakenAlong) {
  const TinyCheckpoint checkpoint;
  const std::string demo = SWITCHYARD_TEST_DATA "/demo";
  with_vocabulary(checkpoint, 4096);
  checkpoint.write("tokenizer.json", read_file(demo + "/tokenizer.json"));
  checkpoint.write("tokenizer_config.json", R"({"chat_template": "{{ messages[0].content }}"})");
  checkpoint.write("generation_config.json", R"({"eos_token_id": [125, 127]})");
  const TemporaryFolder out;
  const auto report = convert_to(checkpoint.path(), out.path("out.swy"));
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_THAT(report->notes, IsEmpty());
  const auto program = Program::load(Os::real(), out.path("out.swy"));
  ASSERT_TRUE(program.ok());
  EXPECT_EQ(program->tokenizer_json, read_file(demo + "/tokenizer.json"));
  EXPECT_EQ(program->chat_template, "{{ messages[0].content }}");
  EXPECT_EQ(program->source_config, read_file(checkpoint.path("config.json")));
  EXPECT_THAT(program->eos_ids, ElementsAre(127u, 126u, 125u));
  EXPECT_EQ(program->context_length, 512u);

  checkpoint.write("chat_template.jinja", "a file of its own wins");
  EXPECT_EQ(converted(checkpoint).chat_template, "a file of its own wins");
}

TEST(Layout, ParametersAndBytesAreReported) {
  const TinyCheckpoint checkpoint;
  size_t elements = 0;
  for (const auto& [name, t] : checkpoint.tensors()) elements += t.bytes.size() / 2;
  const TemporaryFolder out;
  const auto report = convert_to(checkpoint.path(), out.path("out.swy"));
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->parameters, elements);
  EXPECT_EQ(report->file_bytes, std::filesystem::file_size(out.path("out.swy")));
}

}  // namespace
}  // namespace switchyard::testing
