// SPDX-License-Identifier: Apache-2.0
// JSON Schemas: which texts they allow, keyword by keyword, and which keywords are refused.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/constrain/constraint.h"

namespace switchyard {
namespace {

std::shared_ptr<const TokenTrie> no_tokens() {
  static const auto trie = *TokenTrie::create(1, [](uint32_t) { return std::string_view("x"); });
  return trie;
}

struct Case {
  const char* name;
  std::string schema;
  std::vector<std::string> yes, no;
};

// A member that says which others are required.
std::string many_ifs() {
  std::string all = R"({"type": "object", "allOf": [true)";
  for (int i = 0; i < 60; ++i) {
    all += fmt::format(R"(,{{"if": {{"properties": {{"k": {{"const": {0}}}}}, "required": ["k"]}},)"
                       R"("then": {{"required": ["a{0}"]}}}})",
                       i);
  }
  return all + "]}";
}

const Case kCases[] = {
    {"Types",
     R"({"type": ["integer", "null", "boolean"]})",
     {"1", "-0", "1.0", "null", "true"},
     {"1.5", "\"1\"", "[]", "01"}},
    {"Anything",
     "true",
     {"{}", "[1, {\"a\" : null}]", "1e9", "\"\\ud83d\\ude00\""},
     {"", "{,}", "\"\\ud83d\"", "\"\n\"", "nul"}},
    {"Bounds",
     R"({"type": "number", "minimum": -1.5, "exclusiveMaximum": 100})",
     {"-1.5", "-1.50", "0", "99.999", "5"},
     {"-1.51", "100", "100.0", "1e1", "-2"}},
    {"Integers",
     R"({"type": "integer", "minimum": 9, "maximum": 110})",
     {"9", "10", "110", "99"},
     {"8", "111", "1000", "-10"}},
    {"Draft4Bounds", R"({"minimum": 0, "exclusiveMinimum": true, "type": "number"})", {"0.1", "7"}, {"0", "-0.0"}},
    {"MultipleOf", R"({"multipleOf": 0.25, "type": "number"})", {"1.75", "-2", "0.250"}, {"1.1", "0.125"}},
    {"Lengths",
     R"({"type": "string", "minLength": 2, "maxLength": 3})",
     {"\"ab\"", "\"\\u0061\\n\"", "\"日本語\"", "\"\\ud83d\\ude00é\""},
     {"\"a\"", "\"abcd\"", "\"\\ud83d\\ude00\""}},
    {"PatternAndLength",
     R"({"type": "string", "pattern": "^a.*z$", "maxLength": 4, "minLength": 3})",
     {"\"abz\"", "\"a\\u0062cz\""},
     {"\"az\"", "\"abcdz\"", "\"abc\""}},
    {"TwoPatterns",
     R"({"type": "string", "allOf": [{"pattern": "b"}, {"pattern": "^[abc]{3}$"}]})",
     {"\"abc\""},
     {"\"aca\""}},
    {"EnumAndType",
     R"({"type": "string", "enum": ["a", "b\"", 1, null]})",
     {"\"a\"", "\"b\\\"\""},
     {"1", "null", "\"c\""}},
    {"Const", R"({"const": {"a": [1, {"b": 2.50}]}})", {R"({"a":[1.0,{"b":2.5}]})"}, {R"({"a":[1]})", "{}"}},
    {"AnyOrder",
     R"({"properties": {"a": {"type": "null"}, "b": {"type": "null"}}, "required": ["b"],)"
     R"("additionalProperties": false, "type": "object"})",
     {R"({"b":null,"a":null})", R"({ "a" : null , "\u0062" : null })", R"({"b":null})"},
     {R"({"a":null})", R"({"b":null,"b":null})", R"({"b":null,"c":1})"}},
    {"OtherNames",
     R"({"properties": {"ab": {"const": 1}}, "additionalProperties": {"type": "string"}, "type": "object"})",
     {R"({"ab":1,"a":"","abc":"","\u0061bd":""})"},
     {R"({"ab":""})", R"({"a\u0062":""})", R"({"x":1})"}},
    {"NamePatterns",
     R"({"patternProperties": {"^s_": {"type": "string"}, "x$": {"maxLength": 1}}, "type": "object",)"
     R"("additionalProperties": {"type": "null"}})",
     {R"({"s_a":"long","s_x":"l","ax":5,"other":null})"},
     {R"({"s_x":"long"})", R"({"other":1})", R"({"s_":1})"}},
    {"PropertyNames",
     R"({"propertyNames": {"pattern": "^[a-c]+$"}, "type": "object"})",
     {R"({"abc":1})", "{}"},
     {R"({"d":1})"}},
    {"MemberCounts",
     R"({"minProperties": 1, "maxProperties": 2, "type": "object"})",
     {R"({"a":1})", R"({"a":1,"b":2})"},
     {"{}", R"({"a":1,"b":2,"c":3})"}},
    {"Items",
     R"({"prefixItems": [{"const": 1}, {"const": 2}], "items": {"type": "null"}, "maxItems": 3, "type": "array"})",
     {"[]", "[1]", "[1, 2, null]"},
     {"[2]", "[1,2,3]", "[1,2,null,null]"}},
    {"UniqueItems",
     R"({"uniqueItems": true, "items": {"enum": ["a", "b", null]}, "minItems": 2, "type": "array"})",
     {R"(["a",null])", R"(["b","\u0061"])"},
     {R"(["a","a"])", R"(["a"])", R"(["\u0061","a"])"}},
    {"UniqueTexts",
     R"({"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string", "minLength": 1},)"
     R"("uniqueItems": true, "minItems": 2}})",
     {R"({"a":["x","y"],"b":["x","\u0079","xy"]})", R"({"\"":["\"","\\","\ud83d\ude00"]})"},
     {R"({"a":["x","x"]})", R"({"a":["x","y","\u0078"]})", R"({"a":["\ud83d\ude00","😀"]})", R"({"a":["x"]})"}},
    {"UniqueTextsInside",
     R"({"type": "array", "items": {"anyOf": [{"type": "null"}, {"type": "array", "uniqueItems": true,)"
     R"("items": {"type": "string", "pattern": "^a$|^b+$"}}]}})",
     {R"([["a","b","bb"],null,["a","b"]])", "[[]]"},
     {R"([["a","a"]])", R"([["b","a","b"]])"}},
    {"ListsOfAnyLength",
     R"({"type": "array", "items": {"type": "array", "prefixItems": [{"const": 0}], "items": {"const": 1}}})",
     {"[]", "[[]]", "[[0],[0,1],[0,1,1]]"},
     {"[[],]", "[[0,]]", "[[0,1,]]", "[,[]]", "[[1]]"}},
    {"AnyOf",
     R"({"anyOf": [{"type": "integer"}, {"minimum": 2.5, "type": "number"}]})",
     {"1", "2.5", "7.25"},
     {"1.5", "null"}},
    {"OneOf", R"({"oneOf": [{"type": "integer"}, {"minimum": 2, "type": "number"}]})", {"1", "2.5"}, {"3", "1.5"}},
    {"OneOfKinds",
     R"({"oneOf": [{"properties": {"kind": {"const": "a"}, "n": {"type": "integer"}}, "required": ["kind"]},)"
     R"({"properties": {"kind": {"const": "b"}}, "required": ["kind"]}], "type": "object"})",
     {R"({"n":1,"kind":"a"})", R"({"n":"x","kind":"b"})"},
     {R"({"n":"x","kind":"a"})", R"({"kind":"c"})", "{}"}},
    {"OneOfClosed",
     R"({"oneOf": [{"properties": {"a": {"type": "integer"}}, "additionalProperties": false, "type": "object"},)"
     R"({"properties": {"b": {"type": "integer"}, "a": {"type": "null"}}, "additionalProperties": false,)"
     R"("type": "object"}, {"type": "array", "items": {"enum": ["x", "y"]}},)"
     R"({"type": "array", "items": {"enum": ["z"]}}]})",
     {R"({"a":1})", R"({"b":1})", R"({"a":null,"b":1})", R"({"a":null})", R"(["x","y"])", R"(["z"])"},
     {"{}", R"({"a":1,"b":1})", "[]", R"(["x","z"])"}},
    {"OneOfSharedItems",
     R"({"oneOf": [{"items": {"type": "integer"}, "maxItems": 3, "type": "array"},)"
     R"({"prefixItems": [{"const": 1}], "type": "array", "items": {"type": ["integer", "null"]}, "maxItems": 3}]})",
     {"[2]", "[2,3]", "[1,null]", "[1,2,null]"},
     {"[]", "[1]", "[1,2]", "[2,null]"}},
    {"NotOfSeveral",
     R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}},)"
     R"("additionalProperties": false, "not": {"allOf": [{"properties": {"a": {"minimum": 0}}},)"
     R"({"properties": {"a": {"maximum": 9}, "b": {"const": true}}}]}})",
     {R"({"a":-1})", R"({"a":10})", R"({"b":false})", R"({"a":5,"b":false})"},
     {"{}", R"({"a":5})", R"({"b":true,"a":0})"}},
    {"Not",
     R"({"type": ["string", "object"], "not": {"anyOf": [{"enum": ["a"]}, {"required": ["x"], "type": "object"}]}})",
     {"\"b\"", "{}", R"({"y":1})"},
     {"\"a\"", R"({"x":1})"}},
    {"IfThenElse",
     R"({"if": {"properties": {"k": {"const": 1}}, "required": ["k"]}, "then": {"required": ["a"]},)"
     R"("else": {"required": ["b"]}, "type": "object"})",
     {R"({"k":1,"a":0})", R"({"k":2,"b":0})", R"({"b":0})"},
     {R"({"k":1,"b":0})", R"({"k":2,"a":0})", "{}"}},
    {"ManyIfs",
     many_ifs(),
     {R"({"k":3,"a3":1})", R"({"k":40,"a40":1,"x":2})", R"({"k":99})", "{}"},
     {R"({"k":3})", R"({"k":40,"a39":1})"}},
    {"Dependencies",
     R"({"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"c": {"maxProperties": 1}}, "type": "object"})",
     {"{}", R"({"a":1,"b":1})", R"({"c":1})"},
     {R"({"a":1})", R"({"c":1,"d":1})"}},
    {"Recursion",
     R"({"$defs": {"t": {"type": "object", "properties": {"v": {"type": "integer"}, "c": {"type": "array",)"
     R"("items": {"$ref": "#/$defs/t"}}}, "required": ["v"], "additionalProperties": false}}, "$ref": "#/$defs/t"})",
     {R"({"v":1,"c":[{"v":2},{"c":[{"v":3}],"v":4}]})"},
     {R"({"v":1,"c":[{}]})", R"({"c":[]})"}},
    {"References",
     R"({"$id": "https://example.com/root", "$defs": {"a": {"$anchor": "n", "const": 1},)"
     R"("b": {"$id": "other", "$defs": {"c": {"const": 2}}}},)"
     R"("anyOf": [{"$ref": "#n"}, {"$ref": "other#/$defs/c"}]})",
     {"1", "2"},
     {"3"}},
    {"Formats",
     R"({"anyOf": [{"format": "date-time"}, {"format": "uuid"}, {"format": "ipv6"}, {"format": "email"},)"
     R"({"format": "uri"}], "type": "string"})",
     {"\"2024-02-29T23:59:59.5Z\"", "\"f81d4fae-7dec-11d0-a765-00a0c91e6bf6\"", "\"1::8\"", "\"::ffff:1.2.3.4\"",
      "\"a.b@example.com\"", "\"http://a/b?c#d\""},
     {"\"2023-02-29T00:00:00Z\"", "\"1::2::3\"", "\"a b@c\"", "\"12345::\"", "\"x\""}},
};

class Schema : public ::testing::TestWithParam<Case> {};

TEST_P(Schema, AllowsTheseTextsOnly) {
  const auto compiled = Constraint::compile(ConstraintKind::json_schema, GetParam().schema, no_tokens(),
                                            {.compile_ns = 120'000'000'000});  // sanitizers are slow
  ASSERT_TRUE(compiled.ok()) << compiled.status().message();
  const auto allows = [&](const std::string& text) {
    ConstraintMatcher m(*compiled);
    return m.accept_text(text).ok() && m.can_end();
  };
  for (const std::string& text : GetParam().yes) EXPECT_TRUE(allows(text)) << text;
  for (const std::string& text : GetParam().no) EXPECT_FALSE(allows(text)) << text;
}

INSTANTIATE_TEST_SUITE_P(Keywords, Schema, ::testing::ValuesIn(kCases), [](const auto& c) { return c.param.name; });

TEST(SchemaRefusals, NameTheKeywordAndItsPlace) {
  const std::pair<const char*, const char*> all[] = {
      {R"({"properties": {"a/b": {"contains": {}}}})", "'contains' at #/properties/a~1b is not supported"},
      {R"({"$defs": {"x": true}, "$dynamicRef": "#x"})", "'$dynamicRef' at # is not supported"},
      {R"({"unevaluatedProperties": false, "allOf": [{}]})", "'unevaluatedProperties' at # is not supported"},
      {R"({"uniqueItems": true, "items": {"type": "integer"}, "type": "array"})",
       "'uniqueItems' is not supported for these items"},
      {R"({"not": {"additionalProperties": {"type": "null"}}})", "'not' at # is not supported"},
      {R"({"oneOf": [{"required": ["a"], "additionalProperties": {"type": "null"}}, {"required": ["b"]}]})",
       "'oneOf' at # is not supported"},
      {R"({"format": "regex"})", "'regex' is none of date-time, date"},
      {R"({"pattern": "(a)\\1"})", "'pattern' at # is not supported: wrong at byte 5: back references"},
      {R"({"items": {"type": "text"}})", "'type' at #/items: \"text\" is no type"},
      {R"({"minLength": -1})", "'minLength' at #: it is no whole number from 0 on"},
      {R"({"$ref": "other.json#/a"})", "there is no such schema in this document, and none is fetched"},
      {R"({"minProperties": 2})", "'minProperties' 2 is not supported beside names that are not in 'properties'"},
      {"[]", "# is no schema"},
      {"{", "not valid JSON"}};
  for (const auto& [schema, message] : all) {
    const auto compiled =
        Constraint::compile(ConstraintKind::json_schema, schema, no_tokens(), {.compile_ns = 120'000'000'000});
    ASSERT_FALSE(compiled.ok()) << schema;
    EXPECT_THAT(std::string(compiled.status().message()), ::testing::HasSubstr(message)) << schema;
  }
}

}  // namespace
}  // namespace switchyard
