// SPDX-License-Identifier: Apache-2.0
// Every recorded small template gives what Python's jinja2 gives, and fails where it fails.
#include <gtest/gtest.h>

#include "core/text/jinja/template.h"
#include "tests/text/jinja/template_data.h"

namespace switchyard::jinja {
namespace {

Result<std::string> render(const std::string& source, const Value& globals) {
  SWY_LET(Template parsed, Template::parse(source));
  return parsed.render(globals, Limits{}, recorded_time);
}

TEST(JinjaCases, AgreeWithPython) {
  nlohmann::ordered_json cases = read_json("expressions.json");
  ASSERT_GT(cases.size(), 800u);
  auto globals = Value::from_json(cases[0]["variables"]);
  ASSERT_TRUE(globals.ok()) << globals.status().message();
  for (size_t i = 1; i < cases.size(); ++i) {
    std::string source = cases[i]["source"].get<std::string>();
    auto text = render(source, *globals);
    bool fails = cases[i].contains("error") || cases[i].contains("refused");
    if (fails) {
      EXPECT_FALSE(text.ok()) << source << "\n  gives: " << (text.ok() ? *text : "") << "\n  Python: " << cases[i];
      EXPECT_EQ(text.status().message().find('\n'), std::string::npos) << text.status().message();
    } else {
      EXPECT_EQ(text.ok() ? *text : text.status().message(), cases[i]["text"].get<std::string>()) << source;
    }
  }
}

}  // namespace
}  // namespace switchyard::jinja
