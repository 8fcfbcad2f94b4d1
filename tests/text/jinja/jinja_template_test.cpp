// SPDX-License-Identifier: Apache-2.0
// Tests that have no equivalent in Python: our own error messages, limits, and hostile templates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/text/jinja/template.h"

namespace switchyard::jinja {
namespace {

using ::testing::HasSubstr;

Result<std::string> render(const std::string& source, const Limits& limits = {}) {
  SWY_LET(Template parsed, Template::parse(source));
  SWY_LET(Value globals, Value::from_json({{"messages", nlohmann::ordered_json::array()}}));
  return parsed.render(globals, limits);
}

std::string problem(const std::string& source, const Limits& limits = {}) {
  auto text = render(source, limits);
  return text.ok() ? "rendered: " + text->substr(0, 60) : text.status().message();
}

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

TEST(JinjaTemplate, UnknownNamesAreRefusedWhenParsing) {
  auto message = [](const char* source) {
    auto parsed = Template::parse(source, "m.jinja");
    EXPECT_EQ(parsed.status().code(), Code::unsupported) << source;
    return parsed.status().message();
  };
  EXPECT_EQ(message("a\n{{ 1|foo }}"), "m.jinja line 2: unknown filter 'foo'; rewrite the template without it");
  EXPECT_EQ(message("{% if false %}\n\n{{ 1 is foo }}{% endif %}"),
            "m.jinja line 3: unknown test 'foo'; rewrite the template without it");
  EXPECT_THAT(message("{{ x.zfill(3) }}"), HasSubstr("line 1: unknown method 'zfill'"));
  EXPECT_THAT(message("{% if 0 %}{{ nosuch() }}{% endif %}"), HasSubstr("unknown function 'nosuch'"));
  EXPECT_THAT(message("{{ xs.append(1) }}"), HasSubstr("method 'append' changes its list or dict"));
  EXPECT_THAT(message("{% include 'x' %}"), HasSubstr("unknown statement 'include'"));
  EXPECT_THAT(message("{{ []|map('foo') }}"), HasSubstr("unknown filter 'foo' in 'map'"));
  EXPECT_THAT(message("{{ []|selectattr('a', 'foo') }}"), HasSubstr("unknown test 'foo' in 'selectattr'"));
  EXPECT_THAT(message("{% for x in y recursive %}{% endfor %}"), HasSubstr("recursive"));
  EXPECT_THAT(message("{% macro m() %}{{ varargs }}{% endmacro %}"), HasSubstr("'varargs'"));
  EXPECT_THAT(message("{{ range(*x) }}"), HasSubstr("'*'"));
}

TEST(JinjaTemplate, ErrorsNameTheLine) {
  EXPECT_EQ(problem("\n\n{{ 1 + 'a' }}"), "template line 3: '+' does not work between int and str");
  EXPECT_EQ(problem("\n{% if t %}"), "template line 2: 'if' is never closed; add '{% endif %}'");
  EXPECT_EQ(problem("x\n{{ a.b }}"), "template line 2: 'a' is undefined, so 'b' cannot be taken from it");
  EXPECT_EQ(problem("{{ (1, 2 }}"), "template line 1: ')' is expected here, not '}'");
  EXPECT_EQ(problem("{{ 9223372036854775807 + 1 }}"),
            "template line 1: the result of '+' does not fit a 64-bit integer");
  EXPECT_THAT(problem("{{ 99999999999999999999 }}"), HasSubstr("does not fit 64 bits"));
  EXPECT_THAT(problem("\xff"), HasSubstr("UTF-8"));
  EXPECT_THAT(problem(std::string(kMaxSourceBytes + 1, 'a')), HasSubstr("at most"));
  EXPECT_EQ(render("{{ raise_exception('no') }}").status().code(), Code::usage);
}

TEST(JinjaTemplate, WorkIsBounded) {
  Limits few;
  few.max_steps = 1000;
  const char* endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
  EXPECT_THAT(problem(endless), HasSubstr("more than"));
  EXPECT_THAT(problem("{% for a in range(99999) %}{% for b in '' %}{% endfor %}{{ a * a / 7 + a }}{% endfor %}", few),
              HasSubstr("more than 1000 steps"));
  EXPECT_THAT(problem("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), HasSubstr("nesting is deeper"));
  EXPECT_THAT(problem("{{ 'a' * 99999999999 }}"), HasSubstr("bytes of memory"));
  EXPECT_THAT(problem("{{ [1] * 9223372036854775807 }}"), HasSubstr("bytes of memory"));
  EXPECT_THAT(problem("{{ [] * 9223372036854775807 }}"), HasSubstr("[]"));
  EXPECT_THAT(problem("{{ 'a'|indent(99999999999) }}"), HasSubstr("bytes of memory"));
  EXPECT_THAT(problem("{{ ('a' * 1000000)|replace('a', 'b' * 100000) }}"), HasSubstr("bytes of memory"));
  EXPECT_THAT(problem("{{ range(100001) }}"), HasSubstr("100000"));
  std::string doubling =
      "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}";
  EXPECT_THAT(problem(doubling), HasSubstr("bytes of memory"));
  EXPECT_THAT(problem("{% for i in range(99999) %}{{ 'a' * 9999 }}{% endfor %}"), HasSubstr("longer than"));
  Limits small;
  small.max_output_bytes = 3;
  EXPECT_EQ(problem("abc", small), "rendered: abc");
  EXPECT_THAT(problem("abcd", small), HasSubstr("longer than 3 bytes"));
}

// One list held many times over: 2^60 items to print, compare or write as JSON.
TEST(JinjaTemplate, SharedValuesAreChargedForEachUse) {
  std::string shared =
      "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
  EXPECT_THAT(problem(shared + "{{ ns.x }}"), HasSubstr("more than"));
  EXPECT_THAT(problem(shared + "{{ ns.x|tojson }}"), HasSubstr("more than"));
  std::string twice =
      shared +
      "{% set a = ns.x %}{% set ns.x = [1] %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
  EXPECT_THAT(problem(twice + "{{ a == ns.x }}"), HasSubstr("steps"));
}

TEST(JinjaTemplate, NestingIsBounded) {
  using Pair = std::pair<const char*, const char*>;
  for (auto [open, close] : {Pair("(", ")"), Pair("[", "]"), Pair("{1:", "}"), Pair("not ", ""), Pair("-", ""),
                             Pair("1 if 0 else ", ""), Pair("range(", ")"), Pair("1|d(", ")"), Pair("a[", "]")}) {
    std::string source = "{{ " + repeated(open, 50000) + "1" + repeated(close, 50000) + " }}";
    EXPECT_THAT(problem(source), HasSubstr("nests deeper")) << open;
  }
  EXPECT_THAT(problem(repeated("{% if 1 %}", 50000)), HasSubstr("nests deeper"));
  EXPECT_THAT(problem("{% set " + repeated("(", 50000) + "a" + repeated(")", 50000) + " = 1 %}"),
              HasSubstr("nests deeper"));
  EXPECT_THAT(problem("{{ 'a' is eq " + repeated("[", 50000) + repeated("]", 50000) + "}}"), HasSubstr("nests deeper"));
  // Long chains are parsed without recursion; rendering them is bounded.
  for (const char* link : {" + 1", "|string", "[0]", ".a", " or 0", "()", " ** 1"}) {
    auto parsed = Template::parse("{% set m = 1 %}{{ m" + repeated(link, 100000) + " }}");
    ASSERT_TRUE(parsed.ok()) << link << parsed.status().message();
    auto text = parsed->render(Value::none());
    ASSERT_FALSE(text.ok()) << link;
    EXPECT_THAT(text.status().message(), HasSubstr("nesting is deeper")) << link;
  }
  EXPECT_THAT(problem("{% set ns = namespace(x=1) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}"),
              HasSubstr("a value nests deeper"));
  EXPECT_THAT(
      problem("{% set ns = namespace(x={}) %}{% for i in range(9999) %}{% set ns.x = {'a': ns.x.get} %}{% endfor %}"),
      HasSubstr("a value nests deeper"));
  EXPECT_THAT(problem("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}"), HasSubstr("nesting is deeper"));
}

// Chains and circles of namespaces and macros are freed without recursion and without leaks (asan checks).
TEST(JinjaTemplate, CirclesAreFreed) {
  EXPECT_EQ(problem("{% set ns = namespace() %}{% set ns.a = [ns] %}x"), "rendered: x");
  EXPECT_EQ(problem("{% macro m() %}{{ m is callable }}{% endmacro %}{{ m() }}"), "rendered: True");
  EXPECT_EQ(
      problem(
          "{% set ns = namespace(p=1) %}{% for i in range(50000) %}{% set ns.p = namespace(p=ns.p) %}{% endfor %}x"),
      "rendered: x");
}

TEST(JinjaTemplate, QuadraticTextWorkIsAvoidedOrCharged) {
  std::string big = "{% set a = 'a' * 1000000 %}{% set b = 'a' * 500000 ~ 'b' %}";
  EXPECT_EQ(problem(big + "{{ b in a }}{{ a.find(b) }}{{ a.count(b) }}{{ a.split(b)|length }}"), "rendered: False-101");
  EXPECT_THAT(problem(big + "{{ a.rfind('b' ~ b) }}"), HasSubstr("steps"));
  EXPECT_THAT(problem(big + "{{ a.strip(a) }}"), HasSubstr("steps"));
}

}  // namespace
}  // namespace switchyard::jinja
