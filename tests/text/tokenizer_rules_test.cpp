// SPDX-License-Identifier: Apache-2.0
// Rules of a tokenizer.json one by one, on vocabularies of 256 bytes and a few tokens. The expected ids are those of
// the `tokenizers` package.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "core/base/os.h"
#include "core/text/tokenizer.h"

namespace switchyard {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;

// The character that stands for a byte: itself, or one of the 68 from U+0100 on.
std::string stand_in(int byte) {
  const auto printable = [](int b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; };
  int character = byte;
  if (!printable(byte)) {
    character = 256;
    for (int b = 0; b < byte; ++b) character += printable(b) ? 0 : 1;
  }
  if (character < 128) return std::string(1, static_cast<char>(character));
  return {static_cast<char>(0xC0 | character >> 6), static_cast<char>(0x80 | (character & 63))};
}

// Every byte is the token of its number; `more` follow from 256 on.
json bytes_and(const std::vector<std::string>& more = {}) {
  json j = {{"model", {{"type", "BPE"}, {"vocab", json::object()}, {"merges", json::array()}}},
            {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}};
  json& vocab = j["model"]["vocab"];
  for (int b = 0; b < 256; ++b) vocab[stand_in(b)] = b;
  for (const std::string& token : more) vocab[token] = vocab.size();
  return j;
}

// `merges` is the text of a list.
json with_merges(const std::string& merges, const std::vector<std::string>& more) {
  json j = bytes_and(more);
  j["model"]["merges"] = json::parse(merges);
  return j;
}

struct Added {
  const char* content;
  bool special = false, normalized = false;
};

// Added tokens from 256 on.
json with_added(const std::vector<Added>& all) {
  json j = bytes_and();
  for (const Added& a : all) {
    j["added_tokens"].push_back({{"id", 256 + j["added_tokens"].size()},
                                 {"content", a.content},
                                 {"special", a.special},
                                 {"normalized", a.normalized}});
  }
  return j;
}

Ids ids_of(const json& j, const std::string& text, Specials specials = Specials::tokens) {
  const auto tokenizer = Tokenizer::parse(j.dump());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  if (!tokenizer.ok()) return {};
  const auto ids = tokenizer->encode(text, specials);
  EXPECT_TRUE(ids.ok()) << ids.status().message();
  return ids.ok() ? *ids : Ids{};
}

std::string refusal(const json& j) {
  const auto tokenizer = Tokenizer::parse(j.dump());
  return tokenizer.ok() ? "accepted" : tokenizer.status().message();
}

double seconds_of(const std::function<void()>& work) {
  const uint64_t begin = thread_cpu_ns();
  work();
  return static_cast<double>(thread_cpu_ns() - begin) / 1e9;
}

TEST(TokenizerRules, OfMergesTheEarlierGoesFirst) {
  EXPECT_EQ(ids_of(with_merges(R"([["a", "b"], ["b", "c"]])", {"ab", "bc"}), "abc"), (Ids{256, 'c'}));
  EXPECT_EQ(ids_of(with_merges(R"([["b", "c"], ["a", "b"]])", {"ab", "bc"}), "abc"), (Ids{'a', 257}));
}

TEST(TokenizerRules, AMergeThatIsThereTwiceHasItsLastPlace) {
  EXPECT_EQ(ids_of(with_merges(R"([["a", "b"], ["b", "c"], ["a", "b"]])", {"ab", "bc"}), "abc"), (Ids{'a', 257}));
}

TEST(TokenizerRules, AMergeAsTextHasOneBlank) {
  EXPECT_EQ(ids_of(with_merges(R"(["a b"])", {"ab"}), "ab"), Ids{256});
  for (const std::string merge : {"a b c", "a  b", " a b", "a b ", "ab"}) {
    EXPECT_THAT(
        refusal(with_merges("[\"" + merge + "\"]", {"a b", "b c", "ab", "abc", "a bc", "ab c", " b", " ab", "b "})),
        HasSubstr("is not two tokens with a blank between them"))
        << merge;
  }
}

TEST(TokenizerRules, WholeWordsGoFirstWhereMergesAreIgnored) {
  json j = with_merges(R"([["a", "b"]])", {"ab", "abc"});
  EXPECT_EQ(ids_of(j, "abc"), (Ids{256, 'c'}));
  j["model"]["ignore_merges"] = true;
  EXPECT_EQ(ids_of(j, "abc"), Ids{257});
  EXPECT_EQ(ids_of(j, "abcd"), (Ids{256, 'c', 'd'})) << "no word of the vocabulary";
}

TEST(TokenizerRules, TheLongestAddedTokenIsFoundInWhateverOrder) {
  const std::string text = "<xyz<xy<x<xyq<";
  EXPECT_EQ(ids_of(with_added({{"<x"}, {"<xy"}, {"<xyz"}}), text), (Ids{258, 257, 256, 257, 'q', '<'}));
  EXPECT_EQ(ids_of(with_added({{"<xyz"}, {"<xy"}, {"<x"}}), text), (Ids{256, 257, 258, 257, 'q', '<'}));
  EXPECT_EQ(ids_of(with_added({{"ab"}, {"bcd"}}), "abcd"), (Ids{256, 'c', 'd'})) << "the leftmost before the longest";
}

TEST(TokenizerRules, OfEqualAddedTokensTheFirstCounts) {
  EXPECT_EQ(ids_of(with_added({{"<x"}, {"<x"}}), "<x"), Ids{256});
  EXPECT_EQ(ids_of(with_added({{"<x", true}, {"<x"}}), "<x", Specials::letters), (Ids{'<', 'x'}));
}

TEST(TokenizerRules, SpecialTokensOfAUsersTextStayText) {
  const json j = with_added({{"<x"}, {"<xy", true}});
  EXPECT_EQ(ids_of(j, "<xy<x"), (Ids{257, 256}));
  EXPECT_EQ(ids_of(j, "<xy<x", Specials::letters), (Ids{'<', 'x', 'y', 256})) << "from its first byte to its last";
  EXPECT_EQ(ids_of(with_added({{"<x", true}, {"<xy"}}), "<xy<x", Specials::letters), (Ids{257, '<', 'x'}));
  EXPECT_EQ(ids_of(with_added({{"<s>", true, true}, {"<b"}}), "a<s><b", Specials::letters), (Ids{97, 60, 115, 62, 257}))
      << "after normalisation, too";
}

TEST(TokenizerRules, NormalizedAddedTokensAreFoundInNormalizedText) {
  json j = with_added({{"e\u0301", false, true}, {"o\u0301"}});
  j["normalizer"] = {{"type", "NFC"}};
  EXPECT_EQ(ids_of(j, "xe\u0301\u00e9"), (Ids{'x', 256, 256}));
  EXPECT_EQ(ids_of(j, "o\u0301\u00f3"), (Ids{257, 0xC3, 0xB3}));
}

TEST(TokenizerRules, ManyAddedTokensAreFoundQuickly) {
  json j = bytes_and();
  for (int i = 0; i < 100'000; ++i) {
    j["added_tokens"].push_back({{"id", 256 + i}, {"content", fmt::format("<t{}>", i)}, {"special", true}});
  }
  const std::string text = j.dump();
  std::string prompt;
  for (int i = 0; i < 20'000; ++i) prompt += fmt::format("<t{}><t", i * 5);
  const double seconds = seconds_of([&] {
    const auto tokenizer = Tokenizer::parse(text);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    const auto ids = tokenizer->encode(prompt);
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(ids->size(), 60'000u);
    EXPECT_EQ((*ids)[3], 256 + 5);
  });
  EXPECT_LT(seconds, 10) << "of processor time; a search through all of them takes a minute";
}

TEST(TokenizerRules, BoundsOnWhatAFileMayHold) {
  json j = bytes_and();
  const auto split = [](const char* pattern) {
    return json{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}};
  };
  j["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", json::array()}};
  for (int i = 0; i < 64; ++i) j["pre_tokenizer"]["pretokenizers"].push_back(split("a"));
  EXPECT_EQ(ids_of(j, "xax"), (Ids{'x', 'a', 'x'}));
  j["pre_tokenizer"]["pretokenizers"].push_back(split("a"));
  EXPECT_THAT(refusal(j), HasSubstr("splits by more than 64 patterns"));
  EXPECT_THAT(refusal(with_added({{std::string(1025, 'a').c_str()}})), HasSubstr("has 1025 bytes; at most 1024"));
  j = bytes_and();
  j["model"]["vocab"]["far"] = 1 << 23;
  EXPECT_THAT(refusal(j), HasSubstr("token 'far' has the id 8388608, in a vocabulary of 257 tokens"));
  j = bytes_and();
  j["pre_tokenizer"] = split(std::string(20000, 'a').c_str());
  EXPECT_THAT(refusal(j), HasSubstr("the split pattern has 20000 bytes"));
}

TEST(TokenizerRules, MessagesAreShort) {
  const std::string deep = std::string(60, '[') + std::string(60, ']'), huge(1 << 20, 'x');
  json j = bytes_and();
  j["model"]["merges"] = {json::parse(deep)};
  EXPECT_LT(refusal(j).size(), 200u);
  j["model"]["merges"] = {huge};
  EXPECT_LT(refusal(j).size(), 200u);
  j = bytes_and();
  j["model"]["vocab"][huge] = json::parse(deep);
  EXPECT_LT(refusal(j).size(), 300u);
  for (const char* part : {"pre_tokenizer", "post_processor", "normalizer", "model"}) {
    j = bytes_and();
    j[part]["type"] = huge;
    EXPECT_LT(refusal(j).size(), 200u) << part;
    j[part] = json::parse(deep);
    EXPECT_LT(refusal(j).size(), 200u) << part;
  }
}

TEST(TokenizerRules, APatternThatTriesEverythingEnds) {
  json j = bytes_and();
  j["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "(?:a|aa)+(?<=b)"}}}, {"behavior", "Isolated"}};
  const auto tokenizer = Tokenizer::parse(j.dump());
  ASSERT_TRUE(tokenizer.ok());
  const double seconds = seconds_of([&] {
    const auto ids = tokenizer->encode(std::string(100'000, 'a'));
    ASSERT_FALSE(ids.ok());
    EXPECT_EQ(ids.status().code(), Code::invalid_data);
  });
  EXPECT_LT(seconds, 5);
  // Each match stays within its steps here, and all together do not.
  j["pre_tokenizer"]["pattern"]["Regex"] = "(?:a|a){16}(?<=b)";
  const auto slow = Tokenizer::parse(j.dump());
  ASSERT_TRUE(slow.ok());
  const double all = seconds_of([&] {
    const auto ids = slow->encode(std::string(100'000, 'a'));
    ASSERT_FALSE(ids.ok());
  });
  EXPECT_LT(all, 8);
}

}  // namespace
}  // namespace switchyard
