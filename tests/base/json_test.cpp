// SPDX-License-Identifier: Apache-2.0
// The reader of JSON: the texts that it accepts, the position of an error, and that no text costs more than its limits.
#include "core/base/json.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace switchyard {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::string nested(size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

std::string fault(std::string_view text, const JsonLimits& limits = {}) {
  const auto read = read_json(text, "x.json", limits);
  EXPECT_FALSE(read.ok());
  EXPECT_EQ(read.status().code(), Code::invalid_data);
  return read.status().message();
}

TEST(Json, ReadsEveryKindOfValue) {
  const std::string text =
      R"( {"a": [1, -2, 1.5, 18446744073709551615], "b": {"c": null, "d": {}, "e": []}, "f": true, "g": "\u00e9\n"} )";
  const auto read = read_json(text, "x.json");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, json::parse(text));
  EXPECT_EQ(*read_json("7", "x.json"), 7);
  EXPECT_EQ((*read_json(R"({"a":1,"a":[2]})", "x.json"))["a"][0], 2) << "the last of equal keys counts";
}

TEST(Json, KeepsTheOrderOfKeysWhereItIsAsked) {
  const std::string text = R"({"z":1,"a":{"y":[],"b":{"x":null}},"m":"t"})";
  EXPECT_EQ(read_ordered_json(text, "x.json")->dump(), text);
  EXPECT_EQ(read_json(text, "x.json")->dump(), R"({"a":{"b":{"x":null},"y":[]},"m":"t","z":1})");
  EXPECT_EQ(read_ordered_json(R"({"b":1,"a":2,"b":[3],"a":4,"c":5,"b":6})", "x.json")->dump(), R"({"b":6,"a":4,"c":5})")
      << "the last of equal keys counts, in the place of the first";
  std::string many = "{";
  for (int i = 0; i < 300'000; ++i)
    many += (i == 0 ? "\"k" : ",\"k") + std::to_string(i % 200'000) + "\":" + std::to_string(i);
  const auto read = read_ordered_json(many + "}", "x.json");  // hours, if each key were compared with all others
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->size(), 200'000);
  EXPECT_EQ(read->front(), 200'000);
}

TEST(Json, SaysWhereATextIsWrong) {
  EXPECT_EQ(fault(""), "x.json is not valid JSON at byte 0");
  EXPECT_EQ(fault("{\"a\": 1,,}"), "x.json is not valid JSON at byte 8");
  EXPECT_EQ(fault("[1, 2"), "x.json is not valid JSON at byte 5");
  EXPECT_EQ(fault("[1] 2"), "x.json is not valid JSON at byte 4");
  EXPECT_EQ(fault("[NaN]"), "x.json is not valid JSON at byte 1");
  EXPECT_EQ(fault("[\"\xff\"]"), "x.json is not valid JSON at byte 2");
  EXPECT_EQ(fault("[1e999]"), "x.json has a number beyond all bounds at byte 5");
}

TEST(Json, NestsToItsBoundAndNoDeeper) {
  const auto deepest = read_json(nested(kMaxJsonDepth), "x.json");
  ASSERT_TRUE(deepest.ok());
  EXPECT_EQ(deepest->dump(), nested(kMaxJsonDepth));
  for (const size_t depth : {kMaxJsonDepth + 1, size_t{1000000}}) {
    EXPECT_EQ(fault(nested(depth)), "x.json has more than 64 levels of nesting at byte 64");
  }
  EXPECT_THAT(fault(R"({"a":)" + nested(kMaxJsonDepth) + "}"), HasSubstr("at byte 68"));
}

TEST(Json, TakesNoMoreThanItsLimits) {
  const JsonLimits limits{.bytes = 40, .values = 4};
  EXPECT_TRUE(read_json(R"({"a":1,"b":2,"c":3})", "x.json", limits).ok());
  EXPECT_EQ(fault(R"({"a":1,"b":2,"c":3,"d":4})", limits), "x.json has more than 4 values at byte 24");
  EXPECT_EQ(fault("\"" + std::string(60, 'a') + "\"", limits), "x.json has 62 bytes; at most 40 are read");
  EXPECT_EQ(fault(std::string(size_t{65} << 20, ' ')), "x.json has 68157440 bytes; at most 67108864 are read");
}

TEST(Json, ValuesInMessagesAreShort) {
  EXPECT_EQ(brief(json::parse("[1,2.5,\"a\",null]")), "[1,2.5,\"a\",null]");
  EXPECT_EQ(brief(std::string(1 << 20, 'a')), "a long string");
  EXPECT_EQ(brief(json::parse(nested(60))), "an array");
  EXPECT_EQ(brief(json::array({std::string(65, 'a')})), "an array");
  EXPECT_EQ(brief(json::object()), "an object");
  EXPECT_EQ(brief("\x1b[2J"), "\"\\u001b[2J\"") << "nothing that a terminal obeys";
  EXPECT_EQ(brief("\xff"), "\"\xEF\xBF\xBD\"") << "always UTF-8";
}

}  // namespace
}  // namespace switchyard
