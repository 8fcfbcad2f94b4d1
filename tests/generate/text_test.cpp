// SPDX-License-Identifier: Apache-2.0
// The ends of a text, and its constraints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/generate/forced_text.h"
#include "core/generate/stop_strings.h"
#include "core/generate/text_constraint.h"
#include "core/program/program.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;

TEST(Stops, NothingOfThemIsShown) {
  StopStrings s({"</end>", "STOP"});
  EXPECT_EQ(s.push("a<"), "a");
  EXPECT_EQ(s.push("/e"), "");
  EXPECT_EQ(s.push("m>b ST"), "</em>b ");
  EXPECT_EQ(s.push("OPmore"), "");
  EXPECT_TRUE(s.stopped());
  EXPECT_EQ(s.push("and more"), "");
  EXPECT_EQ(s.flush(), "");
}

TEST(Stops, TheFirstCounts) {
  StopStrings s({"bc", "abcd", ""});
  EXPECT_EQ(s.push("xabcd"), "xa");
  EXPECT_TRUE(s.stopped());
}

TEST(Stops, WhatWasNoneIsGivenAtTheEnd) {
  StopStrings s({"###"});
  EXPECT_EQ(s.push("a##"), "a");
  EXPECT_EQ(s.flush(), "##");
  EXPECT_FALSE(s.stopped());
}

TEST(Stops, AreHeldBackAsLongAsTheyAre) {
  const std::string stop = "this is where the story ends, and no later";
  for (size_t n = 1; n < stop.size(); ++n) {
    StopStrings s({stop});
    EXPECT_EQ(s.push("so " + stop.substr(0, n)), "so ") << n;
    EXPECT_EQ(s.push(stop.substr(n) + "!"), "");
    EXPECT_TRUE(s.stopped());
  }
}

// However a text is divided, the part before the first stop string is shown.
TEST(Stops, HoweverTheTextIsCut) {
  std::mt19937 random(2);
  for (int i = 0; i < 5000; ++i) {
    std::string text, shown;
    for (size_t n = random() % 12; n > 0; --n) text += static_cast<char>('a' + random() % 2);
    std::vector<std::string> stops;
    for (size_t n = 1 + random() % 3; n > 0; --n) {
      stops.emplace_back();
      for (size_t m = 1 + random() % 4; m > 0; --m) stops.back() += static_cast<char>('a' + random() % 2);
    }
    size_t first = std::string::npos;
    for (size_t end = 1; end <= text.size() && first == std::string::npos; ++end) {
      for (const std::string& stop : stops) {
        if (std::string_view(text).substr(0, end).ends_with(stop)) first = std::min(first, end - stop.size());
      }
    }
    StopStrings s(stops);
    for (size_t at = 0; at < text.size();) {
      const size_t n = std::min<size_t>(1 + random() % 3, text.size() - at);
      shown += s.push(std::string_view(text).substr(at, n));
      at += n;
    }
    shown += s.flush();
    EXPECT_EQ(shown, text.substr(0, first)) << text;
    EXPECT_EQ(s.stopped(), first != std::string::npos);
  }
}

class Pattern : public ::testing::Test {
 protected:
  Pattern()
      : program_(*Program::load(Os::real(), SWITCHYARD_DEMO_MODEL)),
        tokenizer_(*Tokenizer::parse(program_.tokenizer_json)) {}

  // Every token that may follow `before`, found by trying each.
  void expect_allowed(const std::string& pattern, const std::string& before, const std::vector<std::string>& some) {
    const std::vector<int32_t> ends = {1};
    auto compiled = compile_constraint(ConstraintKind::regex, pattern, tokenizer_, 4096, "it");
    ASSERT_TRUE(compiled.ok()) << compiled.status().message();
    TextConstraint constraint(*compiled, tokenizer_, ends, "it");
    const std::vector<int32_t> ids = before.empty() ? std::vector<int32_t>() : *tokenizer_.encode(before);
    std::vector<uint32_t> bits(128);
    constraint.allow(ids, bits);
    std::vector<std::string> allowed;
    for (int32_t id = 0; id < 4096; ++id) {
      if ((bits[static_cast<size_t>(id) / 32] >> id % 32 & 1) != 0) {
        allowed.push_back(id == 1 ? "END" : std::string(tokenizer_.piece(id)));
      }
    }
    EXPECT_THAT(allowed, ::testing::UnorderedElementsAreArray(some)) << pattern << " after '" << before << "'";
  }

  Program program_;
  Tokenizer tokenizer_;
};

TEST_F(Pattern, AllowsWhatCanStillMatch) {
  expect_allowed("(yes|no)", "", {"y", "ye", "n", "no"});
  expect_allowed("(yes|no)", "y", {"e", "es"});
  expect_allowed("(yes|no)", "no", {"END"});
  expect_allowed("x[ab]*", "x", {"END", "a", "b", "ab", "bb"});
  expect_allowed("q", "z", {});
}

TEST_F(Pattern, EndsWhereNothingCanFollow) {
  auto compiled = compile_constraint(ConstraintKind::regex, "[0-9]{2}", tokenizer_, 4096, "it");
  ASSERT_TRUE(compiled.ok());
  TextConstraint constraint(*compiled, tokenizer_, {}, "it");
  const std::vector<int32_t> ids = *tokenizer_.encode("42");
  EXPECT_FALSE(constraint.finished(std::span(ids).first(ids.size() - 1)));
  EXPECT_TRUE(constraint.finished(ids));
}

// Drafted tokens are followed, and taken back.
TEST_F(Pattern, TakesGuessesBack) {
  auto compiled = compile_constraint(ConstraintKind::regex, "(ab|b[cd]e)x", tokenizer_, 4096, "it");
  ASSERT_TRUE(compiled.ok());
  TextConstraint one(*compiled, tokenizer_, {}, "it"), two(*compiled, tokenizer_, {}, "it");
  const auto id = [&](const char* text) { return tokenizer_.encode(text)->at(0); };
  const auto mask = [](TextConstraint& c, const std::vector<int32_t>& drawn) {
    std::vector<uint32_t> bits(128);
    c.allow(drawn, bits);
    return bits;
  };
  EXPECT_EQ(mask(one, {}), mask(two, {}));
  one.hold();
  mask(one, {id("b")});
  mask(one, {id("b"), id("c")});
  mask(one, {id("b"), id("c"), id("z")});  // a draft that cannot follow
  one.back();
  const std::vector<int32_t> drawn = {id("b"), id("d")};
  EXPECT_EQ(mask(one, drawn), mask(two, drawn));
  EXPECT_EQ(one.likely(drawn, 100), "ex");
  EXPECT_EQ(one.likely(drawn, 1), "e");
  one.back();  // nothing is held any more
  EXPECT_EQ(one.likely(drawn, 100), "ex");
}

TEST_F(Pattern, ForcedTextIsDraftedAsTheTokenizerSplitsIt) {
  const std::string text = "Once upon a time, there was a little girl named Lily. ";
  auto compiled =
      compile_constraint(ConstraintKind::regex, "(?:Once upon a time, there was a little girl named Lily\\. .*|Q)",
                         tokenizer_, 4096, "it");
  ASSERT_TRUE(compiled.ok()) << compiled.status().message();
  std::vector<int32_t> drawn;
  ForcedText drafter(std::make_shared<TextConstraint>(*compiled, tokenizer_, std::span<const int32_t>(), "it"),
                     tokenizer_, drawn);
  const auto proposed = [&](uint32_t most) {
    Guesses guesses;
    EXPECT_TRUE(drafter.propose(most, guesses).ok());
    return guesses.ids();
  };
  EXPECT_TRUE(proposed(100).empty()) << "two texts may follow";
  drawn = *tokenizer_.encode("Once");
  std::vector<int32_t> expected = *tokenizer_.encode(text.substr(4));
  expected.pop_back();  // it may reach beyond the forced text
  EXPECT_EQ(proposed(100), expected);
  EXPECT_EQ(proposed(3), std::vector<int32_t>(expected.begin(), expected.begin() + 3));
}

TEST_F(Pattern, RefusesWhatItCannotFollow) {
  const auto refused = compile_constraint(ConstraintKind::regex, "(a)\\1", tokenizer_, 4096, "--allow-regex");
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("--allow-regex: wrong at byte 5: back references"));
}

}  // namespace
}  // namespace switchyard
