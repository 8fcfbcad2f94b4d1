// SPDX-License-Identifier: Apache-2.0
// GGUF files as models: against the checkpoint that one was made from by llama.cpp's own converter, and blocks that are
// repacked against the values that they stand for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/import/gguf_config.h"
#include "core/import/gguf_model.h"
#include "core/import/gguf_repack.h"
#include "core/import/recommended.h"
#include "core/text/tokenizer.h"
#include "switchyard/weights.h"
#include "tests/import/checkpoint.h"
#include "tests/import/gguf_file.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;
using testing::weight_values;

const std::string kConverted = SWITCHYARD_TEST_DATA "/gguf/three-value-heads.gguf";

Program program_of(const testing::TemporaryFolder& folder, const std::string& source,
                   std::optional<WeightEncoding> encoding) {
  ConvertOptions options;
  options.source = source;
  options.output = folder.path("out.swy");
  options.encoding = encoding;
  const auto report = convert(Os::real(), options);
  EXPECT_TRUE(report.ok()) << report.status().message();
  auto program = Program::load(Os::real(), options.output);
  EXPECT_TRUE(program.ok()) << program.status().message();
  return std::move(*program);
}

// Three value heads share a key head, so that their order matters.
TEST(GgufImport, UndoesWhatTheConverterDid) {
  const testing::TemporaryFolder folder;
  const Program ours = program_of(folder, SWITCHYARD_TEST_DATA "/tiny/three-value-heads", WeightEncoding{SWY_BF16, 0});
  const Program theirs = program_of(folder, kConverted, std::nullopt);
  ASSERT_EQ(theirs.tensors.size(), ours.tensors.size());
  for (size_t t = 0; t < ours.tensors.size(); ++t) {
    ASSERT_EQ(theirs.tensors[t].name, ours.tensors[t].name);
    const std::vector<float> want = weight_values(ours, std::string(ours.tensors[t].name)),
                             got = weight_values(theirs, std::string(ours.tensors[t].name));
    ASSERT_EQ(got.size(), want.size()) << ours.tensors[t].name;
    for (size_t i = 0; i < want.size(); ++i) {  // A_log went through exp, norms through + 1
      ASSERT_NEAR(got[i], want[i], 3e-7 * std::max(1.0f, std::abs(want[i]))) << ours.tensors[t].name << " " << i;
    }
  }
  EXPECT_EQ(theirs.quantization, "GGUF: BF16, F32");
}

// gpt-oss by the same converter: MXFP4 blocks dealt out anew, gates and up projections in tensors of their own, YaRN.
TEST(GgufImport, UndoesWhatTheConverterDidToGptOss) {
  const testing::TemporaryFolder folder;
  const Program ours = program_of(folder, SWITCHYARD_TEST_DATA "/tiny/families/gpt_oss", std::nullopt);
  const Program theirs = program_of(folder, SWITCHYARD_TEST_DATA "/gguf/gpt_oss.gguf", std::nullopt);
  ASSERT_EQ(theirs.tensors.size(), ours.tensors.size());
  size_t in_mxfp4 = 0;
  for (size_t t = 0; t < ours.tensors.size(); ++t) {
    const std::string name(ours.tensors[t].name);
    ASSERT_EQ(theirs.tensors[t].name, name);
    EXPECT_EQ(weight_values(theirs, name), weight_values(ours, name)) << name;
    EXPECT_EQ(theirs.tensors[t].dtype == SWY_MXFP4, ours.tensors[t].dtype == SWY_MXFP4) << name;
    in_mxfp4 += theirs.tensors[t].dtype == SWY_MXFP4;
  }
  EXPECT_EQ(in_mxfp4, 6u);  // two of each layer's
  ASSERT_EQ(theirs.functions[0].ops.size(), ours.functions[0].ops.size());
  for (size_t i = 0; i < ours.functions[0].ops.size(); ++i) {
    const auto &a = ours.functions[0].ops[i], &b = theirs.functions[0].ops[i];
    EXPECT_TRUE(a.id == b.id && a.revision == b.revision && std::ranges::equal(a.attrs, b.attrs)) << i;
  }
}

// Three digits at most are one word, and a capital letter after a small one begins another.
TEST(GgufImport, TheTokenizerOfGptOssSplitsAsItsPatternSays) {
  const testing::TemporaryFolder folder;
  testing::GgufWriter w;
  w.text("general.architecture", "gpt-oss").u32("gpt-oss.block_count", 1).u32("gpt-oss.attention.head_count", 2);
  w.u32("gpt-oss.attention.head_count_kv", 1).u32("gpt-oss.attention.key_length", 2);
  w.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "gpt-4o");
  w.texts("tokenizer.ggml.tokens", {"1", "2", "3", "4", "12", "123", "1234", "i", "H", "iH", "Hi", "<|return|>"});
  w.u32s("tokenizer.ggml.token_type", {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3});
  w.texts("tokenizer.ggml.merges", {"1 2", "12 3", "123 4", "i H", "H i"});
  w.tensors.push_back({"token_embd.weight", {32, 12}, 0, std::string(32 * 12 * 4, '\0')});
  auto file = GgufFile::open(Os::real(), folder.write("x.gguf", w.file()));
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto model = GgufModel::create(std::move(*file));
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto text = model->tokenizer_json();
  ASSERT_TRUE(text.ok()) << text.status().message();
  const auto tokenizer = Tokenizer::parse(*text);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const auto ids = tokenizer->encode("1234iHi<|return|>");
  ASSERT_TRUE(ids.ok()) << ids.status().message();
  EXPECT_THAT(*ids, ::testing::ElementsAre(5, 3, 7, 10, 11));
}

TEST(GgufImport, SaysWhichArchitectureAndWhichValueIsWrong) {
  const testing::TemporaryFolder folder;
  const auto refusal = [&](const testing::GgufWriter& w) {
    const auto file = GgufFile::open(Os::real(), folder.write("x.gguf", w.file()));
    EXPECT_TRUE(file.ok()) << file.status().message();
    return gguf_config(*file).status().message();
  };
  testing::GgufWriter w;
  EXPECT_THAT(refusal(w), HasSubstr("architecture '' is not supported"));
  w.text("general.architecture", "qwen35moe");
  EXPECT_THAT(refusal(w), HasSubstr("the metadata has no qwen35moe.block_count"));
  w.text("qwen35moe.block_count", "two");
  EXPECT_THAT(refusal(w), HasSubstr("qwen35moe.block_count is \"two\"; it must be a whole number"));
}

TEST(GgufImport, EndTokensAreKnownByTheirTextsToo) {
  const testing::TemporaryFolder folder;
  testing::GgufWriter w;
  w.text("general.architecture", "qwen3").u32("tokenizer.ggml.eos_token_id", 1).u32("qwen3.block_count", 1);
  w.texts("tokenizer.ggml.tokens",
          {"a", "b", "<|im_end|>", "<|endoftext|>", "<|fim_pad|>", "<|im_start|>", "<|file_sep|>"});
  w.tensors.push_back({"token_embd.weight", {32, 7}, 0, std::string(32 * 7 * 4, '\0')});
  const auto file = GgufFile::open(Os::real(), folder.write("x.gguf", w.file()));
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto config = gguf_config(*file);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_THAT(config->config.eos_ids, ::testing::ElementsAre(1, 2, 3, 4, 6));
}

TEST(GgufImport, RecommendedSamplingIsKeptWhereItIsInRange) {
  using ::testing::ElementsAre;
  using ::testing::Pair;
  const testing::TemporaryFolder folder;
  testing::GgufWriter w;
  w.f32("general.sampling.temp", 0.6f).u32("general.sampling.top_k", 20).f32("general.sampling.top_p", 1.5f);
  w.f32("general.sampling.penalty_repeat", 1.1f).text("general.sampling.min_p", "much");
  const auto file = GgufFile::open(Os::real(), folder.write("x.gguf", w.file()));
  ASSERT_TRUE(file.ok()) << file.status().message();
  const Recommended r = recommended_by(*file);
  EXPECT_THAT(r.entries, ElementsAre(Pair("sampling.temperature", "0.6"), Pair("sampling.top_k", "20"),
                                     Pair("sampling.repetition_penalty", "1.1")));
  EXPECT_THAT(r.notes, ElementsAre("the recommended top_p of 1.5 is out of range, and is not used"));
  EXPECT_THAT(recommended_by(R"({"do_sample": false, "temperature": 0.6})")->entries,
              ElementsAre(Pair("sampling.temperature", "0")));
  EXPECT_THAT(recommended_by(R"({"top_k": 2.5, "min_p": 0.1, "presence_penalty": -3})")->entries,
              ElementsAre(Pair("sampling.min_p", "0.1")));
  EXPECT_THAT(recommended_by(R"({"temperature": "hot"})")->entries, ElementsAre());
}

// Random blocks of a type, with scales of every size.
TEST(GgufImport, RepackedBlocksKeepTheirValues) {
  std::mt19937 random(1);
  for (const auto& [id, error] : std::vector<std::pair<uint32_t, double>>{{kGgufQ4_0, 0},
                                                                          {kGgufQ4_1, 0},
                                                                          {kGgufQ5_0, 0},
                                                                          {kGgufQ8_0, 0},
                                                                          {kGgufIQ4_NL, 0},
                                                                          {kGgufMXFP4, 0},
                                                                          {kGgufQ2_K, 1.0 / 2048},
                                                                          {kGgufQ3_K, 1.0 / 2048},
                                                                          {kGgufQ4_K, 1.0 / 2048},
                                                                          {kGgufQ6_K, 1.0 / 2048},
                                                                          {kGgufIQ4_XS, 1.0 / 2048}}) {
    const GgufBlock& block = **gguf_block(id);
    const WeightEncoding e = encoding_of(block);
    swy_tensor desc{};
    desc.struct_size = sizeof desc;
    desc.dtype = e.dtype;
    desc.group = e.group;
    desc.rank = 1;
    desc.dims[0] = block.elements;
    swy_weight_planes planes;
    ASSERT_EQ(swy_weight_planes_of(&desc, &planes), 0);
    size_t repacked = 0;
    for (int n = 0; n < 200; ++n) {
      std::vector<std::byte> bytes(block.bytes), segment(planes.total_bytes);
      for (std::byte& b : bytes) b = static_cast<std::byte>(random());
      std::vector<float> want(block.elements), got(block.elements);
      block.decode(bytes.data(), want.data());
      bool done = true;
      for (uint64_t g = 0; g < planes.groups; ++g) {
        auto* scales = reinterpret_cast<uint16_t*>(segment.data() + planes.scales);
        auto* offsets = reinterpret_cast<uint16_t*>(segment.data() + planes.offsets);
        const RepackedGroup to{segment.data() + g * planes.group_bytes, scales + g,
                               e.dtype == SWY_I4A ? offsets + g : nullptr};
        done = done && repack_group(block, bytes.data(), g, to);
      }
      if (!done) continue;
      ++repacked;
      swy_weight_row(&desc, &planes, segment.data(), 0, got.data());
      for (size_t i = 0; i < want.size(); ++i) {
        const size_t group = i / e.group * e.group;
        float most = 0;
        for (size_t k = group; k < group + e.group; ++k) most = std::max(most, std::abs(want[k]));
        // The two parts of an offset encoding may each be larger than their sum.
        ASSERT_NEAR(got[i], want[i], error == 0 ? 0 : 4 * error * most + 1e-5) << block.name << " " << i;
      }
    }
    EXPECT_GT(repacked, 10u) << block.name;
  }
}

}  // namespace
}  // namespace switchyard
