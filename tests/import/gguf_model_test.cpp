// SPDX-License-Identifier: Apache-2.0
// What GgufModel makes of the tensors and settings of small files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/import/gguf_model.h"
#include "core/import/gguf_repack.h"
#include "core/program/quantize.h"
#include "switchyard/weights.h"
#include "tests/import/checkpoint.h"
#include "tests/import/gguf_file.h"

namespace switchyard {
namespace {

using testing::GgufWriter;
using ::testing::HasSubstr;

GgufWriter::Tensor counted(const std::string& name, const std::vector<uint64_t>& dims) {
  uint64_t elements = 1;
  for (const uint64_t d : dims) elements *= d;
  std::string bytes;
  for (uint64_t i = 0; i < elements; ++i) bytes += GgufWriter::raw(static_cast<float>(i));
  return {name, dims, kGgufF32, bytes};
}

// One layer of the gated delta rule: 2 key heads, 4 value heads, 2 elements of each token.
GgufWriter delta_layer(const std::string& architecture, uint32_t key_heads = 2, uint32_t value_heads = 4) {
  const std::string a = architecture + ".";
  GgufWriter w;
  w.text("general.architecture", architecture).u32(a + "block_count", 1).u32(a + "attention.head_count", 2);
  w.u32(a + "attention.head_count_kv", 1).u32(a + "attention.key_length", 2);
  w.u32(a + "ssm.group_count", key_heads).u32(a + "ssm.time_step_rank", value_heads);
  w.u32(a + "ssm.inner_size", 2 * value_heads).u32(a + "ssm.state_size", 2);
  w.tensors = {counted("token_embd.weight", {2, 3}), counted("blk.0.ssm_a", {4}),
               counted("blk.0.attn_qkv.weight", {2, 16}), counted("blk.0.ssm_ba.weight", {2, 8}),
               counted("blk.0.ssm_out.weight", {8, 2})};
  return w;
}

Result<GgufModel> model_of(const GgufWriter& w) {
  const testing::TemporaryFolder folder;
  SWY_LET(GgufFile file, GgufFile::open(Os::real(), folder.write("x.gguf", w.file())));
  return GgufModel::create(std::move(file));
}

// The first element of each row; -1 where there is no such tensor.
std::vector<float> first_of_rows(const GgufModel& model, const std::string& name) {
  const SourceTensor* t = model.find("model.layers.0.linear_attn." + name);
  if (t == nullptr) return {-1};
  std::vector<float> all, row(t->width());
  for (uint64_t r = 0; r < t->rows(); ++r) {
    t->read_row(r, row);
    all.push_back(row[0]);
  }
  return all;
}

// Rows of betas and alphas take turns, two of a key head at a time, and the heads keep the checkpoint's order.
TEST(GgufModel, Qwen3NextHasOneTensorForBetasAndAlphas) {
  const auto model = model_of(delta_layer("qwen3next"));
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(first_of_rows(*model, "in_proj_b.weight"), (std::vector<float>{0, 2, 8, 10}));
  EXPECT_EQ(first_of_rows(*model, "in_proj_a.weight"), (std::vector<float>{4, 6, 12, 14}));
  EXPECT_EQ(first_of_rows(*model, "in_proj_qkv.weight")[15], 30);
  EXPECT_EQ(first_of_rows(*model, "in_proj_qkv.weight")[10], 20);
}

// Value heads that share a key head are neighbours in the checkpoint, and lie apart in the file.
TEST(GgufModel, ValueHeadsAreInTheOrderOfTheCheckpoint) {
  const auto model = model_of(delta_layer("qwen35moe"));
  ASSERT_TRUE(model.ok()) << model.status().message();
  const std::vector<float> rows = first_of_rows(*model, "in_proj_qkv.weight");
  EXPECT_EQ((std::vector<float>(rows.begin() + 8, rows.end())), (std::vector<float>{16, 18, 24, 26, 20, 22, 28, 30}));
}

TEST(GgufModel, RefusesHeadsThatDoNotShare) {
  for (const auto& [keys, values] : std::vector<std::pair<uint32_t, uint32_t>>{{4, 2}, {3, 4}, {1, 1u << 20}}) {
    for (const char* architecture : {"qwen35", "qwen3next"}) {
      const auto model = model_of(delta_layer(architecture, keys, values));
      ASSERT_FALSE(model.ok()) << keys << " " << values;
      EXPECT_THAT(model.status().message(), HasSubstr("do not share"));
    }
  }
}

// The tensor is as large as another model's: its rows are not read.
TEST(GgufModel, LeavesBetasAndAlphasOfAnotherSizeAlone) {
  GgufWriter w = delta_layer("qwen3next");
  w.tensors[3] = counted("blk.0.ssm_ba.weight", {2, 7});
  const auto model = model_of(w);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->find("model.layers.0.linear_attn.in_proj_b.weight"), nullptr);
}

TEST(GgufModel, LayersWithAnMlpAreThoseWithoutARouter) {
  GgufWriter w = delta_layer("qwen3moe");
  w.tensors.push_back(counted("blk.0.ffn_gate.weight", {2, 2}));
  const auto dense = model_of(w);
  ASSERT_TRUE(dense.ok()) << dense.status().message();
  EXPECT_EQ(dense->config().find("mlp_only_layers")->dump(), "[0]");
  w.tensors.push_back(counted("blk.0.ffn_gate_inp.weight", {2, 2}));
  const auto experts = model_of(w);
  ASSERT_TRUE(experts.ok()) << experts.status().message();
  EXPECT_EQ(experts->config().find("mlp_only_layers")->dump(), "[]");
}

// The file names one; files often lack the others, which the model ends its texts with all the same.
TEST(GgufModel, EndTokensAreFoundByTheirTexts) {
  GgufWriter w = delta_layer("qwen3next");
  w.texts("tokenizer.ggml.tokens", {"a", "<|im_end|>", "<|fim_pad|>", "<|endoftext|>", "end"});
  w.u32("tokenizer.ggml.eos_token_id", 4);
  const auto model = model_of(w);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->config().eos_ids, (std::vector<uint32_t>{4, 1, 2, 3}));
}

TEST(GgufModel, BlocksForDraftingAreLeftOut) {
  GgufWriter w = delta_layer("qwen35moe");
  w.u32("qwen35moe.nextn_predict_layers", 1);
  EXPECT_THAT(model_of(w).status().message(), HasSubstr("1 of 1 blocks are for drafting"));
  GgufWriter two;
  two.tensors = w.tensors;
  two.tensors.push_back(counted("blk.1.nextn.eh_proj.weight", {4, 2}));
  two.text("general.architecture", "qwen35").u32("qwen35.block_count", 2).u32("qwen35.nextn_predict_layers", 1);
  two.u32("qwen35.attention.head_count", 2).u32("qwen35.attention.head_count_kv", 1);
  two.u32("qwen35.attention.key_length", 2);
  const auto model = model_of(two);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->config().count("num_hidden_layers"), 1u);
  EXPECT_THAT(model->names(), ::testing::Contains("mtp.blk.1.nextn.eh_proj.weight"));
}

// A whole one has the names of a checkpoint's, and norms less 1; one with a head of its own is left out.
TEST(GgufModel, BlocksForDraftingAreTheMtpLayer) {
  GgufWriter w = delta_layer("qwen35moe");
  w.tensors.push_back(counted("blk.1.nextn.eh_proj.weight", {4, 2}));
  w.tensors.push_back(counted("blk.1.attn_q.weight", {2, 4}));
  for (const char* norm : {"nextn.enorm", "nextn.hnorm", "nextn.shared_head_norm", "attn_norm"}) {
    w.tensors.push_back(counted(std::string("blk.1.") + norm + ".weight", {2}));
  }
  const auto model = model_of(w);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto row = [&](const std::string& name, uint64_t r) {
    const SourceTensor* t = model->find(name);
    std::vector<float> values(t == nullptr ? 0 : t->width());
    if (t != nullptr) t->read_row(r, values);
    return values;
  };
  EXPECT_EQ(row("mtp.fc.weight", 1), (std::vector<float>{4, 5, 6, 7}));
  EXPECT_EQ(row("mtp.layers.0.self_attn.q_proj.weight", 3), (std::vector<float>{6, 7}));
  for (const char* norm : {"pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm", "layers.0.input_layernorm"}) {
    EXPECT_EQ(row(fmt::format("mtp.{}.weight", norm), 0), (std::vector<float>{-1, 0})) << norm;
  }
  w.tensors.push_back(counted("blk.1.nextn.shared_head_head.weight", {2, 3}));
  EXPECT_EQ(model_of(w)->find("mtp.fc.weight"), nullptr);
}

// How far our encoding is from blocks of a type, as a part of the error that rounding to the type's own steps makes.
double relative_error(uint32_t id, const std::function<void(std::vector<std::byte>&)>& set_scales,
                      const std::function<double(const std::byte*, uint64_t)>& step_of) {
  const GgufBlock& block = **gguf_block(id);
  const uint32_t group = encoding_of(block).group;
  EXPECT_EQ(encoding_of(block).dtype, static_cast<uint32_t>(SWY_I8));
  std::mt19937 random(1);
  double ours = 0, own = 0;
  for (int n = 0; n < 300; ++n) {
    std::vector<std::byte> bytes(block.bytes);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    set_scales(bytes);
    std::vector<float> want(block.elements);
    block.decode(bytes.data(), want.data());
    for (uint64_t g = 0; g < block.elements / group; ++g) {
      std::vector<std::byte> quants(group);
      uint16_t scale = 0;
      EXPECT_TRUE(repack_group(block, bytes.data(), g, {quants.data(), &scale, nullptr}));
      for (uint64_t i = 0; i < group; ++i) {
        const double got = static_cast<int8_t>(quants[i]) * static_cast<double>(swy_f16_to_f32(scale));
        ours += std::pow(got - static_cast<double>(want[g * group + i]), 2);
        own += std::pow(step_of(bytes.data(), g * group + i), 2) / 12;
      }
    }
  }
  return ours / own;
}

void set_half(std::vector<std::byte>& bytes, size_t at, float value) {
  const uint16_t half = f32_to_f16(value);
  std::memcpy(bytes.data() + at, &half, sizeof half);
}

TEST(GgufModel, KQuantsComeNearToTheirValues) {
  // Values around zero, as weights are: the offset is half of the range of 31 steps.
  const double q5 = relative_error(
      kGgufQ5_K,
      [](std::vector<std::byte>& b) {
        set_half(b, 0, 1e-3f);
        set_half(b, 2, 15.5e-3f);
        for (size_t i = 4; i < 8; ++i) b[i] = b[i + 4] = static_cast<std::byte>(40 + static_cast<int>(b[i]) % 24);
        for (size_t i = 12; i < 16; ++i) b[i] = static_cast<std::byte>((8u + (static_cast<uint32_t>(b[i]) & 7u)) * 17);
      },
      [](const std::byte* b, uint64_t i) { return q4_k_scale(b, i / 32).scale; });
  EXPECT_LT(q5, 0.012);
  const double q6 = relative_error(
      kGgufQ6_K,
      [](std::vector<std::byte>& b) {
        set_half(b, 208, 1e-4f);
        for (size_t i = 192; i < 208; ++i) b[i] = static_cast<std::byte>(80 + static_cast<int>(b[i]) % 47);
      },
      [](const std::byte* b, uint64_t i) { return (*gguf_block(kGgufQ6_K))->sixteen(b, i / 16).scale; });
  EXPECT_LT(q6, 0.001);
}

}  // namespace
}  // namespace switchyard
