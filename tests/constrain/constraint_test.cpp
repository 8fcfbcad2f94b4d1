// SPDX-License-Identifier: Apache-2.0
// Constraints: which texts they have, and that masks allow exactly the tokens of these.
#include "core/constrain/constraint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <random>
#include <thread>

namespace switchyard {
namespace {

using ::testing::HasSubstr;

// Every byte, and some longer tokens.
const std::vector<std::string>& pieces() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> out = {""};  // the end
    for (int b = 0; b < 256; ++b) out.emplace_back(1, static_cast<char>(b));
    for (const char* more :
         {"{\"", "\":", "\": ", "\", \"", "\",\"a\"", "\"}", "},",    "[]",   "ab",  "abc", "aaaaaaaa",    "12",
          "0.5", "  ",  "\n\n", "true",   "null",     "é",   "\\u00", "日本", "a\"", "x",   "<tool_call>", "name"}) {
      out.emplace_back(more);
    }
    return out;
  }();
  return all;
}

std::shared_ptr<const TokenTrie> vocabulary() {
  static const auto trie = *TokenTrie::create(static_cast<uint32_t>(pieces().size()),
                                              [](uint32_t id) -> std::string_view { return pieces()[id]; });
  return trie;
}

const std::vector<int32_t> kEnds = {0};

std::shared_ptr<const Constraint> compile(ConstraintKind kind, const std::string& text) {
  auto compiled = Constraint::compile(kind, text, vocabulary());
  EXPECT_TRUE(compiled.ok()) << text << ": " << compiled.status().message();
  return compiled.ok() ? *compiled : nullptr;
}

std::string refusal(ConstraintKind kind, const std::string& text) {
  auto compiled = Constraint::compile(kind, text, vocabulary());
  EXPECT_FALSE(compiled.ok()) << text;
  return compiled.ok() ? "" : compiled.status().message();
}

bool has(const std::shared_ptr<const Constraint>& c, const std::string& text) {
  ConstraintMatcher m(c);
  return m.accept_text(text).ok() && m.can_end();
}

void expect_texts(ConstraintKind kind, const std::string& constraint, const std::vector<std::string>& yes,
                  const std::vector<std::string>& no) {
  const auto c = compile(kind, constraint);
  if (c == nullptr) return;
  for (const std::string& text : yes) EXPECT_TRUE(has(c, text)) << constraint << " has " << text;
  for (const std::string& text : no) EXPECT_FALSE(has(c, text)) << constraint << " has not " << text;
}

std::vector<bool> mask_of(ConstraintMatcher& m) {
  std::vector<uint32_t> words((pieces().size() + 31) / 32);
  EXPECT_TRUE(m.mask(words).ok());
  std::vector<bool> out;
  for (size_t id = 0; id < pieces().size(); ++id) out.push_back((words[id / 32] >> id % 32 & 1) != 0);
  return out;
}

TEST(Constraint, RegularExpressions) {
  expect_texts(ConstraintKind::regex, "^(yes|no)$", {"yes", "no"}, {"", "y", "yesno"});
  expect_texts(ConstraintKind::regex, "[^a-c]{2,3}?x", {"dex", "déx", "---x"}, {"dx", "adx", "----x", "d\xC3x"});
  expect_texts(ConstraintKind::regex, R"(\d+(\.\d+)?\s*\u{20ac})", {"12€", "1.5 €"}, {"1.€", "1 $"});
  expect_texts(ConstraintKind::regex, "(?i:straße)[\\p{Lu}]", {"sTRAßEA", "straßeÉ"}, {"straßea"});
  expect_texts(ConstraintKind::regex, "a.c|(?s)a.d", {"abc", "a\nd"}, {"a\nc"});
  EXPECT_THAT(refusal(ConstraintKind::regex, "(a"), HasSubstr("wrong at byte 2: a group without ')'"));
  EXPECT_THAT(refusal(ConstraintKind::regex, "(?P<a"), HasSubstr("wrong at byte 5: a group's name without an end"));
  EXPECT_THAT(refusal(ConstraintKind::regex, "(a)\\1"), HasSubstr("back references are not supported"));
  expect_texts(ConstraintKind::regex, "(?!ab|c$)(?=.*x)[a-dx]+", {"acx", "cx", "x"}, {"abx", "c", "ac"});
  expect_texts(ConstraintKind::regex, "-(a|(?!ba)b.)", {"-a", "-bb"}, {"-ba", "-b"});
  EXPECT_THAT(refusal(ConstraintKind::regex, "((?=x).)y"), HasSubstr("look-ahead is supported only where"));
  EXPECT_THAT(refusal(ConstraintKind::regex, "(?=x)*y"), HasSubstr("look-ahead cannot be repeated"));
  EXPECT_THAT(refusal(ConstraintKind::regex, "(?<=x)y"), HasSubstr("look-behind is not supported"));
  EXPECT_THAT(refusal(ConstraintKind::regex, "a\\bc"), HasSubstr("word boundaries"));
  EXPECT_THAT(refusal(ConstraintKind::regex, "a^b"), HasSubstr("'^' is supported only at an end"));
  EXPECT_THAT(refusal(ConstraintKind::regex, "[b-a]"), HasSubstr("ends before it begins"));
}

TEST(Constraint, WrittenGrammars) {
  const std::string sum =
      "root ::= sum # a comment\nsum ::= sum \"+\" one | one\none ::= [0-9]{1,3} | \"(\" sum \")\"\n";
  expect_texts(ConstraintKind::gbnf, sum, {"1", "1+(2+333)"}, {"", "1+", "(1", "1234"});
  expect_texts(ConstraintKind::gbnf, "root ::= \"a\" root \"a\" | \"b\" root \"b\" | [ab]", {"a", "aba", "abbba"},
               {"ab", "aab"});
  expect_texts(ConstraintKind::gbnf, "root ::= s?\ns ::= s s | \"a\"", {"", "a", "aaaa"}, {"b"});
  EXPECT_THAT(refusal(ConstraintKind::gbnf, "root ::= a\na ::= b \"x\" | \"y\"\nb ::= a \"z\""),
              HasSubstr("begins with itself, through other rules"));
  EXPECT_THAT(refusal(ConstraintKind::gbnf, "root ::= x"), HasSubstr("there is no rule 'x'"));
  EXPECT_THAT(refusal(ConstraintKind::gbnf, "root ::= [a-"), HasSubstr("a class without ']'"));
  EXPECT_THAT(refusal(ConstraintKind::gbnf, "root ::= root"), HasSubstr("no text can satisfy it"));
  const std::string calls =
      "start: NAME \"(\" [value (\",\" value)*] \")\"\nvalue: SIGNED_NUMBER -> number\n  | ESCAPED_STRING | start\n"
      "NAME: /[a-z]+/i\n%import common (SIGNED_NUMBER, ESCAPED_STRING)\n%import common.WS\n%ignore WS\n";
  expect_texts(ConstraintKind::lark, calls, {"f()", "F( 1, \"x\" , g(-2.5) )"}, {"f(", "f(1,)", "1()"});
  expect_texts(ConstraintKind::lark, "start: \"a\"~2..3 [\"b\"i]", {"aa", "aaaB"}, {"a", "aaaa"});
  EXPECT_THAT(refusal(ConstraintKind::lark, "start: x{y}"), HasSubstr("templates are not supported"));
}

TEST(Constraint, ChoicesAndTools) {
  expect_texts(ConstraintKind::choice, R"(["yes", "no", "yesterday"])", {"yes", "yesterday"}, {"", "yest"});
  const std::string tools =
      R"("tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"n": {"type": "integer"},)"
      R"("s": {"type": "string"}}, "required": ["s"], "additionalProperties": false}}}, {"name": "g"}])";
  const std::string json = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"x\", \"n\": 1}}\n</tool_call>";
  const std::string xml =
      "<tool_call>\n<function=f>\n<parameter=n>\n7\n</parameter>\n<parameter=s>\n\"a\" <b>\nc\n</parameter>\n"
      "</function>\n</tool_call>";
  expect_texts(ConstraintKind::tool_calls, "{" + tools + "}", {json, json + "\n" + json},
               {"", "hi", "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>", xml});
  expect_texts(ConstraintKind::tool_calls, "{" + tools + R"(, "format": "xml", "parallel": false})", {xml},
               {json, xml + "\n" + xml, "<tool_call>\n<function=f>\n</function>\n</tool_call>"});
  expect_texts(ConstraintKind::tool_calls, "{" + tools + R"(, "choice": "auto"})", {"", "hi", "hi\n" + json},
               {"hi <tool_call>", json + "hi"});
  expect_texts(ConstraintKind::tool_calls, "{" + tools + R"(, "choice": {"name": "g"}})",
               {"<tool_call>\n{\"name\":\"g\",\"arguments\":{\"any\":[1]}}\n</tool_call>"}, {json});
  EXPECT_THAT(refusal(ConstraintKind::tool_calls, "{" + tools + R"(, "choice": {"name": "h"}})"),
              HasSubstr("names none of the tools"));
}

TEST(Constraint, AMaskHasExactlyTheTokensThatCanBeFollowed) {
  const std::pair<ConstraintKind, std::string> all[] = {
      {ConstraintKind::regex, "(ab|abc)*x{2}é?"},
      {ConstraintKind::json_schema, R"({"type": "object"})"},
      {ConstraintKind::json_schema, R"({"type": "string", "maxLength": 9, "pattern": "^[a-z\u00e9\n]*$"})"},
      {ConstraintKind::json_schema,
       R"({"properties": {"ab": {"minimum": 0.5, "maximum": 12}, "name": {"enum": ["x", 12]}},)"
       R"("required": ["ab"], "additionalProperties": false})"},
      {ConstraintKind::json_schema,
       R"({"properties": {"ab": true, "a/c": {"type": "string", "minLength": 1, "maxLength": 3}, "\u00e9": false},)"
       R"("anyOf": [{"required": ["ab"]}, {"properties": {"b": {"type": "integer"}}, "required": ["b"]}]})"},
      {ConstraintKind::json_schema,
       R"({"items": {"type": "string", "pattern": "^(a|b+)$"}, "type": "array", "uniqueItems": true})"},
      {ConstraintKind::json_schema, R"({"items": {"enum": ["a", "ab", "\"", "\ud83d\ude00"]}, "uniqueItems": true})"},
      {ConstraintKind::json_schema,
       R"({"type": "object", "propertyNames": {"not": {"enum": ["ab", "abc"]}}, "minProperties": 1,)"
       R"("additionalProperties": {"format": "uri", "type": "string"}})"},
      {ConstraintKind::gbnf, "root ::= \"[\" (root (\",\" root)*)? \"]\" | [a-c]+"}};
  std::mt19937 random(7);
  for (const auto& [kind, text] : all) {
    const auto c = compile(kind, text);
    ConstraintMatcher m(c, kEnds);
    for (int step = 0; step < 40; ++step) {
      const std::vector<bool> mask = mask_of(m);
      std::vector<int32_t> allowed;
      for (int32_t id = 1; id < static_cast<int32_t>(pieces().size()); ++id) {
        ConstraintMatcher other = m;
        EXPECT_EQ(mask[static_cast<size_t>(id)], other.accept(id).ok())
            << text << " after " << m.text() << ": token " << id;
        if (mask[static_cast<size_t>(id)]) allowed.push_back(id);
      }
      EXPECT_EQ(mask[0], m.can_end()) << text << " after " << m.text();
      EXPECT_TRUE(mask[0] || !allowed.empty()) << "a dead end of " << text << ": " << m.text();
      if (allowed.empty()) break;
      ASSERT_TRUE(m.accept(allowed[random() % allowed.size()]).ok());
    }
  }
}

TEST(Constraint, ForcedTextAndTheEnd) {
  ConstraintMatcher m(compile(ConstraintKind::json_schema, R"({"const": {"name": "x"}})"), kEnds);
  EXPECT_EQ(m.forced_text(), "{");
  ASSERT_TRUE(m.accept_text("{\"n").ok());
  EXPECT_FALSE(m.accept_text("m").ok());
  EXPECT_EQ(m.text(), "{\"n");  // as before
  EXPECT_FALSE(m.accept(0).ok());
  ASSERT_TRUE(m.accept_text("ame\":\"x\"}").ok());
  EXPECT_TRUE(m.can_end() && m.finished());
  EXPECT_TRUE(m.accept(0).ok());
}

// Looking ahead takes a part of a token's limits, and goes on after the next token.
TEST(Constraint, LookingAheadFailsNoText) {
  const auto c = *Constraint::compile(ConstraintKind::regex, "a{500}[ab]*a[ab]{18}", vocabulary(), {.new_states = 100});
  ConstraintMatcher m(c, kEnds);
  size_t most = 0;
  while (m.text().size() < 500) {
    const std::string ahead = m.forced_text(512);
    ASSERT_FALSE(ahead.empty()) << m.text().size();
    ASSERT_TRUE(m.accept_text(ahead).ok());
    most = std::max(most, ahead.size());
  }
  EXPECT_GT(most, 10u);
  EXPECT_LT(most, 50u);
  EXPECT_TRUE(mask_of(m)['b' + 1]);
}

TEST(Constraint, SpaceBetweenPartsEnds) {
  ConstraintMatcher m(compile(ConstraintKind::json_schema, R"({"type": "array"})"), kEnds);
  ASSERT_TRUE(m.accept_text("[" + std::string(255, ' ')).ok());
  EXPECT_TRUE(mask_of(m)[' ' + 1]);
  ASSERT_TRUE(m.accept_text("\n").ok());
  EXPECT_FALSE(mask_of(m)[' ' + 1]);
  EXPECT_TRUE(mask_of(m)[']' + 1]);
  ASSERT_TRUE(m.accept_text("\"" + std::string(300, ' ')).ok());
  EXPECT_TRUE(mask_of(m)[' ' + 1]);  // inside a string it is text
}

TEST(Constraint, LimitsAreKept) {
  std::string wide = R"({"enum": [)";
  for (int i = 0; i < 10'000; ++i) wide += fmt::format("{}\"value{}\"", i == 0 ? "" : ",", i);
  expect_texts(ConstraintKind::json_schema, wide + "]}", {"\"value9999\""}, {"\"value\""});
  EXPECT_THAT(refusal(ConstraintKind::json_schema, R"({"$ref": "#"})"), HasSubstr("refers to itself"));
  EXPECT_THAT(refusal(ConstraintKind::json_schema, R"({"properties": {"n": {"$ref": "#"}}, "required": ["n"],)"
                                                   R"("type": "object"})"),
              HasSubstr("no text can satisfy it"));
  EXPECT_THAT(refusal(ConstraintKind::json_schema,
                      R"({"$defs": {"t": {"type": "object", "properties": {"n": {"$ref": "#/$defs/t"}},)"
                      R"("required": ["n"]}}, "oneOf": [{"$ref": "#/$defs/t"}, {"type": "object", "required": ["n"],)"
                      R"("properties": {"n": {"$ref": "#/$defs/t"}, "x": {"const": 1}}}]})"),
              HasSubstr("no text can satisfy it"));
  EXPECT_THAT(refusal(ConstraintKind::regex, std::string(5000, '(')), HasSubstr("nest too deep"));
  EXPECT_THAT(refusal(ConstraintKind::json_schema, std::string(2'000'000, ' ')), HasSubstr("the limit is 1048576"));
  EXPECT_THAT(refusal(ConstraintKind::json_schema, R"({"type": "string", "pattern": "[ab]*a[ab]{200}$"})"),
              ::testing::AnyOf(HasSubstr("working it out takes more than 16777216 steps; use"),
                               HasSubstr("too long")));  // by the machine
  // A text that needs more states than the limits allow ends its own request.
  const auto c = *Constraint::compile(ConstraintKind::regex, ".*[a-m].{30}", vocabulary(), {.new_states = 20});
  ConstraintMatcher m(c);
  std::vector<uint32_t> words((pieces().size() + 31) / 32);
  EXPECT_THAT(std::string(m.mask(words).message()),
              HasSubstr("the constraint is too large to follow after 0 bytes of text: "));
}

TEST(Constraint, TimeAndWorkAreLimited) {
  std::string one_of = R"({"oneOf": [)";
  for (int i = 0; i < 300; ++i) {
    one_of +=
        fmt::format(R"({}{{"type": "object", "properties": {{"k{}": {{"type": "string"}}}}}})", i == 0 ? "" : ",", i);
  }
  EXPECT_THAT(refusal(ConstraintKind::json_schema, one_of + "]}"),
              ::testing::AnyOf(HasSubstr("working it out takes more than"), HasSubstr("too long")));  // by the machine
  EXPECT_THAT(refusal(ConstraintKind::json_schema, R"({"type": "string", "pattern": "^(a|b)*a(a|b){18}$"})"),
              ::testing::AnyOf(HasSubstr("its compiled form takes more than 32 MiB"), HasSubstr("too long")));
  const auto late = Constraint::compile(ConstraintKind::json_schema, one_of + "]}", vocabulary(), {.compile_ns = 1});
  EXPECT_THAT(std::string(late.status().message()), HasSubstr("it takes too long to compile"));
  // Each byte makes a state or two.
  const auto c = *Constraint::compile(ConstraintKind::regex, "[ab]*a[ab]{18}", vocabulary(),
                                      {.text_states = 50, .byte_states = 0});
  ConstraintMatcher m(c);
  Status last;
  std::mt19937 random(1);
  for (int i = 0; i < 200 && last.ok(); ++i) last = m.accept_text(random() % 2 == 0 ? "a" : "b");
  EXPECT_THAT(std::string(last.message()), HasSubstr("it has had more than 50 states"));
}

TEST(Constraint, AMaskThatFailsIsEmpty) {
  const auto c =
      *Constraint::compile(ConstraintKind::regex, "[ab]*a[ab]{18}", vocabulary(), {.text_states = 1, .byte_states = 0});
  ConstraintMatcher m(c, kEnds);
  std::vector<uint32_t> words((pieces().size() + 31) / 32);
  EXPECT_THAT(std::string(m.mask(words).message()), HasSubstr("it has had more than 1 states"));
  EXPECT_THAT(words, ::testing::Each(0u));
}

TEST(Constraint, AFullAutomatonIsReplaced) {
  const auto c = *Constraint::compile(ConstraintKind::json_schema, R"({"type": "object"})", vocabulary(),
                                      {.memory_bytes = 1 << 19});
  ConstraintMatcher m(c, kEnds);
  ASSERT_TRUE(m.accept_text("{").ok());
  for (int i = 0; i < 500; ++i) {
    const auto depth = static_cast<size_t>(1 + i % 50);
    const std::string lists = std::string(depth, '[') + std::string(depth, ']');
    const std::string more = fmt::format("{}\"k{}\":{}", i == 0 ? "" : ",", i, lists);
    ASSERT_TRUE(m.accept_text(more).ok()) << i;
    if (i % 20 == 0) {
      EXPECT_TRUE(mask_of(m)['}' + 1]);
    }
  }
  ASSERT_TRUE(m.accept_text("}").ok());
  EXPECT_TRUE(m.can_end());
}

// Whatever the items are, and whoever else shares the automaton.
TEST(Constraint, ListsWhoseItemsDifferEndAtALimit) {
  const auto c =
      compile(ConstraintKind::json_schema, R"({"type": "array", "items": {"type": "string"}, "uniqueItems": true})");
  for (const size_t length : {4u, 40u, 400u}) {
    const std::clock_t begin = std::clock();
    ConstraintMatcher m(c, kEnds);
    std::mt19937 random(static_cast<uint32_t>(length));
    std::vector<uint32_t> words((pieces().size() + 31) / 32);
    Status last = m.accept_text("[");
    size_t items = 0;
    for (; items < 2000 && last.ok(); items += last.ok()) {
      std::string item(length, 'a');
      for (char& letter : item) letter = static_cast<char>('a' + random() % 26);
      last = m.accept_text(fmt::format("{}\"{}\"", items == 0 ? "" : ",", item));
      std::fill(words.begin(), words.end(), 0u);
      if (last.ok()) last = m.mask(words);
    }
    const auto ms = (std::clock() - begin) * 1000 / CLOCKS_PER_SEC;
    std::printf("%zu items of %zu letters in %lld ms\n", items, length, static_cast<long long>(ms));
    EXPECT_THAT(std::string(last.message()), HasSubstr("a list whose items must differ may have 500 of them"));
    EXPECT_TRUE(length > 4 ? items > 50 && items < 500 : items == 500) << items;
    EXPECT_LT(ms, 1000);
  }
}

TEST(Constraint, ThreadsShareOne) {
  const auto c = compile(ConstraintKind::json_schema, R"({"type": "array", "items": {"type": ["string", "integer"]}})");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&c, t] {
      for (int round = 0; round < 20; ++round) {
        ConstraintMatcher m(c, kEnds);
        EXPECT_TRUE(m.accept_text(fmt::format("[{}, \"a{}\"", t, round)).ok());
        EXPECT_TRUE(mask_of(m)[']' + 1]);
      }
    });
  }
  for (std::thread& t : threads) t.join();
}

}  // namespace
}  // namespace switchyard
