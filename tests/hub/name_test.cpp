// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/hub/name.h"

namespace switchyard::hub {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(HubName, IsOwnerAndNameWithASelector) {
  EXPECT_EQ(parse_name("unsloth/Qwen3.5-35B-A3B-GGUF")->repo, "unsloth/Qwen3.5-35B-A3B-GGUF");
  EXPECT_EQ(parse_name("o/n:Q4_K_M")->selector, "Q4_K_M");
  EXPECT_EQ(parse_name("o/n:sub/x.gguf")->selector, "sub/x.gguf");
  EXPECT_EQ(parse_name("o/n:Q4_K_M")->text(), "o/n:Q4_K_M");
  for (const char* other :
       {"", "n", "/n", "o/", "o/n/m", "/abs/n", "./n", "../n", "o/..", "o/.hidden", "o/n:", "o/a..b", "o/m.swy",
        "o/m.gguf", "models/m.safetensors", "o/n\x1b:x", "o/n:\nx", "o n/m", "synth:a/b"}) {
    EXPECT_FALSE(parse_name(other)) << other;
  }
  EXPECT_FALSE(parse_name("o/" + std::string(2000, 'n')));
}

TEST(HubName, OfAFileHasItsQuantization) {
  for (const auto& [path, want] :
       std::vector<std::pair<const char*, const char*>>{{"Qwen3.5-35B-A3B-Q4_K_M.gguf", "Q4_K_M"},
                                                        {"Qwen3.5-35B-A3B-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"},
                                                        {"BF16/Qwen3.5-35B-A3B-BF16-00001-of-00002.gguf", "BF16"},
                                                        {"qwen3-0.6b-q8_0.gguf", "Q8_0"},
                                                        {"x.IQ4_XS.gguf", "IQ4_XS"},
                                                        {"x-MXFP4_MOE.gguf", "MXFP4_MOE"},
                                                        {"Q4_K_M/model.gguf", ""},
                                                        {"Qwen3.gguf", ""}}) {
    EXPECT_EQ(quantization_of(path), want) << path;
  }
}

std::vector<std::string> labels(const std::vector<NamedFile>& files) {
  std::vector<std::string> all;
  for (const Choice& c : models_of(files)) all.push_back(c.gguf ? c.label : "checkpoint");
  return all;
}

TEST(HubName, ModelsAreInTheOrderOfPreference) {
  EXPECT_THAT(labels({{"m-Q8_0.gguf", 9},
                      {"m-IQ1_S.gguf", 1},
                      {"m-UD-Q4_K_XL.gguf", 4},
                      {"m-Q4_K_M.gguf", 5},
                      {"mmproj-F16.gguf", 1},
                      {"m-mmproj-F16.gguf", 1},
                      {"mtp-m-Q8_0.gguf", 1},
                      {"m.imatrix.gguf", 1}}),
              ElementsAre("Q4_K_M", "UD-Q4_K_XL", "Q8_0", "IQ1_S"));
  EXPECT_THAT(labels({{"m.gguf", 2}, {"config.json", 1}, {"model.safetensors", 5}}),
              ElementsAre("m.gguf", "checkpoint"));
  EXPECT_THAT(labels({{"config.json", 1}, {"sub/model.safetensors", 5}, {"README.md", 1}}), ElementsAre());
}

TEST(HubName, PartsAreOneModelIfAllAreThere) {
  const std::vector<NamedFile> all = {
      {"d/m-Q6_K-00002-of-00003.gguf", 20}, {"d/m-Q6_K-00001-of-00003.gguf", 10}, {"d/m-Q6_K-00003-of-00003.gguf", 30}};
  const auto chosen = choose({"o/n", "q6_k"}, all);
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(chosen->bytes, 60u);
  EXPECT_THAT(chosen->files, ElementsAre(all[1].path, all[0].path, all[2].path));
  EXPECT_FALSE(choose({"o/n", ""}, {all[0], all[1]}).ok());
  EXPECT_FALSE(choose({"o/n", ""}, {{"m-00000-of-00001.gguf", 1}}).ok());
  EXPECT_FALSE(choose({"o/n", ""}, {{"m-00001-of-99999.gguf", 1}}).ok());
  EXPECT_FALSE(choose({"o/n", ""}, {{"config.json", 1}, {"model-00001-of-00002.safetensors", 1}}).ok());
}

TEST(HubName, ASelectorThatFitsNothingListsWhatThereIs) {
  const std::vector<NamedFile> files = {{"m-Q8_0.gguf", 9}, {"m-UD-Q4_K_XL.gguf", 4}};
  EXPECT_EQ(choose({"o/n", "Q4_K_XL"}, files)->label, "UD-Q4_K_XL");
  EXPECT_THAT(choose({"o/n", "Q2_K"}, files).status().message(), HasSubstr("it has UD-Q4_K_XL, Q8_0"));
  EXPECT_THAT(choose({"o/n", "i9"}, {{"config.json", 1}, {"model.safetensors", 5}}).status().message(),
              HasSubstr("it has bf16, i8, i4, i4a"));
}

}  // namespace
}  // namespace switchyard::hub
