// SPDX-License-Identifier: Apache-2.0
// A model's text taken apart: the same, in whichever pieces it comes.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "server/protocol/output_parser.h"

namespace switchyard::server {
namespace {

ToolSchemas schemas() {
  return ToolSchemas(*read_ordered_json(R"([{"type":"function","function":{"name":"f","parameters":{"properties":{
      "text":{"type":"string"},"count":{"type":"integer"},"on":{"type":"boolean"},"list":{"type":"array"},
      "maybe":{"anyOf":[{"type":"string"},{"type":"null"}]},"mixed":{"type":["string","integer"]},
      "any":{},"kind":{"enum":["x","y"]}}}}}])",
                                        "tools"));
}

// As text: "r(…)" reasoning, "…" content, "name{arguments}" a call, "!" where it has no end.
std::string shown(const std::vector<Delta>& deltas) {
  std::string out;
  bool open = false, reasoning = false;
  for (const Delta& d : deltas) {
    if (reasoning && d.kind != Delta::Kind::reasoning) out += ")";
    if (!reasoning && d.kind == Delta::Kind::reasoning) out += "r(";
    reasoning = d.kind == Delta::Kind::reasoning;
    if (d.kind == Delta::Kind::call) out += "[" + std::to_string(d.call) + ":";
    out += d.text;
    if (d.kind == Delta::Kind::call) out += " ";
    if (d.kind == Delta::Kind::call) open = true;
    if (d.kind == Delta::Kind::call_end) out += "]", open = false;
  }
  return out + (reasoning ? ")" : "") + (open ? "!" : "");
}

std::string parsed(const OutputForm& form, const std::string& text, size_t piece) {
  OutputParser parser(form);
  std::vector<Delta> deltas;
  for (size_t i = 0; i < text.size(); i += piece) parser.push(text.substr(i, piece), deltas);
  parser.flush(deltas);
  return shown(deltas);
}

void expect(const OutputForm& form, const std::string& text, const std::string& want) {
  for (size_t piece = 1; piece <= text.size(); ++piece)
    EXPECT_EQ(parsed(form, text, piece), want) << piece << ": " << text;
}

const OutputForm kPlain{};
OutputForm thinking() { return {.reasoning = true, .thinks = true, .tools = false, .schemas = {}}; }
OutputForm tools(bool reasoning = false) {
  return {.reasoning = reasoning, .thinks = reasoning, .tools = true, .schemas = schemas()};
}
std::string call(const std::string& parameters) {
  return "<tool_call>\n<function=f>\n" + parameters + "</function>\n</tool_call>";
}
std::string parameter(const std::string& name, const std::string& value) {
  return "<parameter=" + name + ">\n" + value + "\n</parameter>\n";
}

TEST(OutputParser, LeavesPlainTextAsItIs) {
  expect(kPlain, "\n\n a <b> </think> <tool_call> \n", "\n\n a <b> </think> <tool_call> \n");
  expect(kPlain, "<think>x</think>y", "<think>x</think>y");
}

TEST(OutputParser, SplitsReasoningFromTheAnswer) {
  expect(thinking(), "so\n\nit is\n</think>\n\nYes.\n", "r(so\n\nit is)Yes.\n");
  expect(thinking(), "\nnever ends < </thin", "r(never ends < </thin)");
  expect(thinking(), "a</think>b</think>c", "r(a)bc");
  expect({.thinks = true}, "<think>\na\n</think>\n\nb", "r(a)b");
  expect({.thinks = true}, " \n<think>a</think>b", "r(a)b");
  expect({.thinks = true}, " <thin air", " <thin air");
  expect({.thinks = true}, "<thi", "<thi");
}

TEST(OutputParser, ReadsCalls) {
  expect(tools(), call(parameter("text", "two\nlines \"quoted\"") + parameter("count", "5")),
         R"([0:f {"text": "two\nlines \"quoted\"", "count": 5}])");
  expect(tools(), "Let me see.\n\n" + call("") + "\n" + call(parameter("on", "True")) + "\n",
         R"(Let me see.[0:f {}][1:f {"on": true}])");
  expect(tools(true), "why\n</think>\n\n" + call(parameter("list", "[1, {\"a\": 2}]")),
         R"(r(why)[0:f {"list": [1, {"a": 2}]}])");
  expect(tools(true), "I must call\n" + call(parameter("kind", "x")), R"(r(I must call)[0:f {"kind": "x"}])");
}

TEST(OutputParser, GivesValuesTheTypesOfTheSchema) {
  const std::pair<std::string, std::string> values[] = {
      {parameter("text", "5"), R"("5")"},
      {parameter("text", "null"), R"("null")"},
      {parameter("text", ""), R"("")"},
      {parameter("text", "\na\n"), R"("\na\n")"},
      {parameter("count", "five"), R"("five")"},
      {parameter("count", " 12 "), "12"},
      {parameter("on", "false"), "false"},
      {parameter("on", "yes"), R"("yes")"},
      {parameter("list", "[1,"), R"("[1,")"},
      {parameter("maybe", "None"), "null"},
      {parameter("maybe", "5"), R"("5")"},
      {parameter("mixed", "5"), "5"},
      {parameter("mixed", "five"), R"("five")"},
      {parameter("any", "{\"a\": 1}"), R"({"a": 1})"},
      {parameter("any", "plain"), R"("plain")"},
      {parameter("unknown", "5"), R"("5")"},
      {parameter("text", "a <b> </x>"), R"("a <b> </x>")"},
  };
  for (const auto& [text, want] : values) {
    const std::string name = text.substr(11, text.find('>') - 11);
    expect(tools(), call(text), "[0:f {\"" + name + "\": " + want + "}]");
  }
}

TEST(OutputParser, MendsWhatModelsLeaveOut) {
  expect(tools(), "<function=f>\n" + parameter("count", "1") + "</function>", R"([0:f {"count": 1}])");
  expect(tools(), "<tool_call>\n<function=f>\n<parameter=text>\na\n<parameter=count>\n1\n</function>\n</tool_call>",
         R"([0:f {"text": "a", "count": 1}])");
  expect(tools(), "<tool_call>\n<function=f>\n" + parameter("count", "1") + "</tool_call>after",
         R"([0:f {"count": 1}]after)");
  expect(tools(), "<tool_call> no call", "<tool_call> no call");
  expect(tools(), "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>", R"([0:f {"a":1}])");
  expect(tools(), "<tool_call>\n{\"name\": 5}</tool_call>", "<tool_call>\n{\"name\": 5}</tool_call>");
}

TEST(OutputParser, ACallThatIsCutHasNoEnd) {
  expect(tools(), "<tool_call>\n<function=f>\n<parameter=text>\nhalf", R"([0:f {"text": "half!)");
  expect(tools(), "<tool_call>\n<func", "<tool_call>\n<func");
  OutputParser parser(tools());
  std::vector<Delta> deltas;
  parser.push(call("") + "<tool_call><function=f>", deltas);
  EXPECT_EQ(parser.completed_calls(), 1);
}

TEST(OutputParser, StringsAreGivenOutAsTheyGrow) {
  OutputParser parser(tools());
  std::vector<Delta> deltas;
  parser.push("<tool_call>\n<function=f>\n<parameter=text>\nabc", deltas);
  EXPECT_EQ(shown(deltas), R"([0:f {"text": "abc!)");
  parser.push(" \"d", deltas);
  EXPECT_EQ(shown(deltas), R"([0:f {"text": "abc \"d!)");
}

}  // namespace
}  // namespace switchyard::server
