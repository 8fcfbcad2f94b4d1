// SPDX-License-Identifier: Apache-2.0
// The tokenizer compared with the `tokenizers` package on the same strings (tools/make_tokenizer_cases.py).
#include "core/text/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/text/detokenizer.h"

namespace switchyard {
namespace {

using nlohmann::json;

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

const std::string& demo_json() {
  static const std::string text = read(SWITCHYARD_TEST_DATA "/demo/tokenizer.json");
  return text;
}

const Tokenizer& demo() {
  static const Tokenizer tokenizer = [] {
    auto parsed = Tokenizer::parse(demo_json());
    EXPECT_TRUE(parsed.ok()) << parsed.status().message();
    return std::move(*parsed);
  }();
  return tokenizer;
}

std::vector<json> cases() {
  // SWITCHYARD_TOKENIZER_CASES names a larger recording, for a soak.
  const char* other = std::getenv("SWITCHYARD_TOKENIZER_CASES");
  std::ifstream in(other != nullptr ? other : SWITCHYARD_TEST_DATA "/tokenizer/cases.jsonl");
  std::vector<json> out;
  for (std::string line; std::getline(in, line);) out.push_back(json::parse(line));
  return out;
}

TEST(Tokenizer, ExactIds) {
  const std::vector<json> all = cases();
  ASSERT_GE(all.size(), 2000u);
  size_t wrong = 0;
  for (const json& c : all) {
    const auto ids = demo().encode(c["text"].get<std::string>());
    ASSERT_TRUE(ids.ok()) << ids.status().message();
    if (*ids == c["ids"].get<std::vector<int32_t>>()) continue;
    if (++wrong <= 5)
      ADD_FAILURE() << c["text"].dump() << "\ngot  " << json(*ids).dump() << "\nwant " << c["ids"].dump();
  }
  EXPECT_EQ(wrong, 0u) << "of " << all.size();
}

TEST(Tokenizer, DecodesWholeAndIncrementally) {
  for (const json& c : cases()) {
    const auto ids = c["ids"].get<std::vector<int32_t>>();
    const auto want = c["decoded"].get<std::string>();
    EXPECT_EQ(demo().decode(ids), want);
    Detokenizer stream(demo(), false);
    std::string text;
    for (const int32_t id : ids) {
      const std::string part = stream.push(id);
      EXPECT_EQ(utf8_valid_prefix(part), part.size()) << "half a character was emitted";
      text += part;
    }
    EXPECT_EQ(text + stream.flush(), want);
  }
}

TEST(Tokenizer, DecodesBrokenSequences) {  // every id alone, and pairs: mostly parts of characters
  for (int32_t id = 0; id + 1 < demo().vocab_size(); ++id) {
    const int32_t pair[] = {id, demo().vocab_size() - 1 - id};
    const std::string text = demo().decode(pair);
    EXPECT_EQ(utf8_valid_prefix(text), text.size());
    Detokenizer stream(demo(), false);
    std::string parts = stream.push(pair[0]);
    parts += stream.push(pair[1]);
    EXPECT_EQ(parts + stream.flush(), text);
  }
}

TEST(Tokenizer, LongWordsAreNotQuadratic) {
  const auto ids = demo().encode(std::string(200000, 'a') + std::string(200000, ' '));
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(demo().decode(*ids).size(), 400000u);
}

TEST(Tokenizer, SpecialTokensCanBeTakenAsText) {
  const std::string text = "<|im_start|>user";
  const auto plain = demo().encode(text, Specials::letters);
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(std::count(plain->begin(), plain->end(), 4092), 0);
  EXPECT_EQ(demo().decode(*plain), text);
}

TEST(Tokenizer, MarkedSpecialTokensAreLettersAndOthersTokens) {
  const std::string written = "naïve <|im_end|>\n<|im_start|>system";
  const auto ids = demo().encode("<|im_start|>" + demo().quote_specials(written) + "<|im_end|>", Specials::marked);
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(demo().decode(*ids), "<|im_start|>" + written + "<|im_end|>");
  const auto letters = demo().encode(written, Specials::letters);
  ASSERT_TRUE(letters.ok());
  ASSERT_GT(ids->size(), 2u);
  EXPECT_TRUE(demo().is_special(ids->front()) && demo().is_special(ids->back()));
  EXPECT_EQ(std::vector<int32_t>(ids->begin() + 1, ids->end() - 1), *letters);
  EXPECT_EQ(demo().quote_specials(demo().quote_specials(written)), demo().quote_specials(written));
}

TEST(Tokenizer, RefusesInvalidUtf8WithTheOffset) {
  for (const std::string bad : {"ab\xff", "ab\xc3", "ab\xed\xa0\x80", "ab\xc0\x80", "ab\xf4\x90\x80\x80"}) {
    const auto ids = demo().encode(bad);
    ASSERT_FALSE(ids.ok());
    EXPECT_EQ(ids.status().code(), Code::usage);
    EXPECT_NE(ids.status().message().find("at byte 2"), std::string::npos) << ids.status().message();
  }
}

TEST(Tokenizer, RefusesWhatItDoesNotSupportByName) {
  const auto refusal = [](const std::function<void(json&)>& change) {
    json j = json::parse(demo_json());
    change(j);
    const auto t = Tokenizer::parse(j.dump());
    return t.ok() ? std::string("accepted") : t.status().message();
  };
  const auto expect = [](const std::string& got, const std::string& want) {
    EXPECT_NE(got.find(want), std::string::npos) << got;
  };
  expect(refusal([](json& j) { j["model"]["type"] = "WordPiece"; }), "model 'WordPiece'");
  expect(refusal([](json& j) { j["model"]["byte_fallback"] = true; }), "byte_fallback");
  expect(refusal([](json& j) { j["model"]["dropout"] = 0.1; }), "dropout");
  expect(refusal([](json& j) { j["normalizer"] = {{"type", "Lowercase"}}; }), "normalizer 'Lowercase'");
  expect(refusal([](json& j) { j["pre_tokenizer"] = {{"type", "Whitespace"}}; }), "pre-tokenizer 'Whitespace'");
  expect(refusal([](json& j) { j["pre_tokenizer"] = nullptr; }), "pre-tokenizer 'none'");
  expect(refusal([](json& j) { j["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(a"; }), "split pattern");
  expect(refusal([](json& j) { j["added_tokens"][0]["lstrip"] = true; }), "lstrip");
  expect(refusal([](json& j) { j["post_processor"] = {{"type", "RobertaProcessing"}}; }), "RobertaProcessing");
  expect(refusal([](json& j) {
           j["model"]["merges"].push_back(json::array({"Q", "nosuchtoken"}));
         }),
         "not in the vocabulary");
  expect(refusal([](json& j) { j["model"]["vocab"]["x"] = -4; }), "has the id -4");
  EXPECT_FALSE(Tokenizer::parse("").ok());
  EXPECT_FALSE(Tokenizer::parse("[1,2").ok());
  EXPECT_FALSE(Tokenizer::parse("{\"model\": 7}").ok());
}

TEST(Tokenizer, ReadsMergesWrittenAsStrings) {
  json j = json::parse(demo_json());
  for (json& m : j["model"]["merges"]) m = m[0].get<std::string>() + " " + m[1].get<std::string>();
  const auto t = Tokenizer::parse(j.dump());
  ASSERT_TRUE(t.ok()) << t.status().message();
  EXPECT_EQ(*t->encode("Once upon a time"), *demo().encode("Once upon a time"));
}

}  // namespace
}  // namespace switchyard
