// SPDX-License-Identifier: Apache-2.0
// The chat templates of real models on whole conversations, against what Python's jinja2 renders.
#include "core/text/chat_template.h"

#include <map>
#include <thread>

#include <gtest/gtest.h>

#include "tests/text/jinja/template_data.h"

namespace switchyard {
namespace {

using Json = nlohmann::ordered_json;

Result<std::string> render(const ChatTemplate& parsed, const Json& conversation, bool prompt) {
  Json none = nullptr, empty = Json::object();
  return parsed.render(conversation["messages"], prompt, conversation.value("tools", none),
                       conversation.value("extra", empty));
}

TEST(ChatTemplate, RendersConversationsAsPythonDoes) {
  Json cases = jinja::read_json("conversations.json");
  const Json& conversations = cases[0]["conversations"];
  std::map<std::string, ChatTemplate> templates;
  int compared = 0, refused = 0;
  for (size_t i = 1; i < cases.size(); ++i) {
    std::string name = cases[i]["template"].get<std::string>();
    if (templates.count(name) == 0) {
      auto parsed = ChatTemplate::parse(jinja::read_data(name));
      ASSERT_TRUE(parsed.ok()) << name << ": " << parsed.status().message();
      templates.emplace(name, *parsed);
    }
    const Json& conversation = conversations[cases[i]["conversation"].get<std::string>()];
    auto text = render(templates.at(name), conversation, cases[i]["prompt"].get<bool>());
    std::string where = name + ", " + cases[i]["conversation"].get<std::string>();
    if (cases[i].contains("error")) {
      EXPECT_FALSE(text.ok()) << where << " gives " << *text << " where Python says " << cases[i]["error"];
      ++refused;
    } else {
      EXPECT_EQ(text.ok() ? *text : text.status().message(), cases[i]["text"].get<std::string>()) << where;
      ++compared;
    }
  }
  EXPECT_EQ(templates.size(), 4u);
  EXPECT_GT(compared, 150);
  EXPECT_GT(refused, 20);
}

TEST(ChatTemplate, ReportsTheTemplatesOwnRefusal) {
  auto parsed = ChatTemplate::parse(jinja::read_data("Qwen3.5-4B.jinja"));
  ASSERT_TRUE(parsed.ok());
  auto text = parsed->render(Json::array(), true);
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.status().code(), Code::usage);
  EXPECT_EQ(text.status().message(),
            "chat template line 43: the template refuses this conversation: No messages provided.");
}

TEST(ChatTemplate, ExtraVariablesReachTheTemplate) {
  auto parsed = ChatTemplate::parse("{{ bos_token }}{{ messages|length }}{{ tools is none }}{{ documents }}{{ x }}");
  ASSERT_TRUE(parsed.ok());
  auto text = parsed->render(Json::array(), false, nullptr, {{"bos_token", "<s>"}, {"x", {1, 2}}});
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(*text, "<s>0TrueNone[1, 2]");
  EXPECT_EQ(parsed->render(Json::array(), false, nullptr, Json::array()).status().code(), Code::usage);
}

TEST(ChatTemplate, RefusesTextThatIsNotUtf8AndJsonThatIsTooDeep) {
  auto parsed = ChatTemplate::parse("{{ messages[0].content }}");
  ASSERT_TRUE(parsed.ok());
  auto bad = parsed->render(Json::array({{{"content", "\xff"}}}), false);
  ASSERT_FALSE(bad.ok());
  EXPECT_NE(bad.status().message().find("UTF-8"), std::string::npos);
  Json deep = 1;
  for (int i = 0; i < 2000; ++i) deep = Json::array({deep});
  EXPECT_FALSE(parsed->render(deep, false).ok());
  EXPECT_FALSE(parsed->render(Json::array({18446744073709551615u}), false).ok());
}

TEST(ChatTemplate, RendersOnManyThreadsAtOnce) {
  auto parsed = ChatTemplate::parse(jinja::read_data("Qwen3-Coder.jinja"));
  ASSERT_TRUE(parsed.ok());
  Json cases = jinja::read_json("conversations.json");
  const Json& conversation = cases[0]["conversations"]["two calls and two responses"];
  auto expected = render(*parsed, conversation, true);
  ASSERT_TRUE(expected.ok());
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        auto text = render(*parsed, conversation, true);
        wrong[t] += !text.ok() || *text != *expected;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

}  // namespace
}  // namespace switchyard
