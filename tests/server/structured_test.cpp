// SPDX-License-Identifier: Apache-2.0
// Structured output over sockets: the demo model, which knows nothing of formats, answers in them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <thread>

#include "tests/server/client.h"

namespace switchyard::structured {
namespace {

using testing::post;
using testing::Reply;
using testing::Server;
using json = nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kSchema = R"({"type":"object","properties":{"mood":{"enum":["glad","sad"]},)"
                                R"("tall":{"type":"boolean"}},)"
                                R"("required":["mood","tall"],"additionalProperties":false})";

Server& demo() {
  static Server server;
  return server;
}

// With a published template, which has tools and reasoning.
Server& with_template(const std::string& name) {
  static std::map<std::string, std::unique_ptr<Server>> servers;
  std::unique_ptr<Server>& server = servers[name];
  if (server == nullptr) {
    std::ostringstream source;
    source << std::ifstream(SWITCHYARD_TEST_DATA "/templates/" + name + ".jinja", std::ios::binary).rdbuf();
    server =
        std::make_unique<Server>(server::ApplicationOptions{.model_names = {"demo"}, .chat_template = source.str()});
  }
  return *server;
}

// The demo model likes to fill a JSON text with space; the bias of a token keeps it from that.
std::string no_space() {
  static const std::string biases = [] {
    std::string all;
    for (const char* space : {" ", "\\n", "\\t", "\\r", "  ", "\\n\\n"}) {
      const Reply reply = post(demo(), "/tokenize", R"({"prompt":")" + std::string(space) + "\"}");
      const json read = json::parse(reply.body, nullptr, false);
      for (const json& id : read["tokens"]) {
        all += (all.empty() ? "\"" : ",\"") + std::to_string(id.get<int>()) + "\":-100";
      }
    }
    return R"("logit_bias":{)" + all + "},";
  }();
  return biases;
}

std::string ask(const std::string& fields) {
  return R"({"messages":[{"role":"user","content":"Hello"}],"seed":1,"max_tokens":200,)" + no_space() + fields + "}";
}

json answered(const Reply& reply) {
  EXPECT_EQ(reply.status, 200) << reply.body;
  return json::parse(reply.body, nullptr, false);
}

std::string content(const Reply& reply) { return answered(reply)["choices"][0]["message"]["content"]; }

void expect_person(const std::string& text) {
  const json person = json::parse(text, nullptr, false);
  ASSERT_TRUE(person.is_object()) << text;
  EXPECT_EQ(person.size(), 2) << text;
  EXPECT_TRUE(person["mood"] == "glad" || person["mood"] == "sad") << text;
  EXPECT_TRUE(person["tall"].is_boolean()) << text;
}

TEST(Structured, AnswersFitASchema) {
  for (const char* strict : {"true", "false"}) {
    const std::string format = R"("response_format":{"type":"json_schema","json_schema":{"name":"p","strict":)" +
                               std::string(strict) + R"(,"schema":)" + kSchema + "}}";
    const json reply = answered(post(demo(), kChat, ask(R"("n":3,)" + format)));
    ASSERT_EQ(reply["choices"].size(), 3);
    for (const json& choice : reply["choices"]) {
      expect_person(choice["message"]["content"]);
      EXPECT_EQ(choice["finish_reason"], "stop");
    }
  }
  const std::string any =
      content(post(demo(), kChat, ask(R"("response_format":{"type":"json_object"},"max_tokens":3)")));
  EXPECT_THAT(any, ::testing::StartsWith("{"));
}

TEST(Structured, OtherProtocolsAndNamesDoTheSame) {
  const std::string schema = kSchema;
  const std::string format = R"("text":{"format":{"type":"json_schema","name":"p","schema":{"const":"yes"}}})";
  const json response = answered(post(demo(), "/v1/responses", R"({"input":"Hi",)" + format + "}"));
  EXPECT_EQ(response["output"][0]["content"][0]["text"], "\"yes\"");
  expect_person(content(post(demo(), kChat, ask(R"("guided_json":)" + schema))));
  expect_person(content(post(demo(), kChat, ask(R"("structured_outputs":{"json":)" + schema + "}"))));
  EXPECT_EQ(content(post(demo(), kChat, ask(R"("guided_regex":"ab{3}c")"))), "abbbc");
  EXPECT_EQ(content(post(demo(), kChat, ask(R"("structured_outputs":{"choice":["only"]})"))), "only");
  EXPECT_EQ(content(post(demo(), kChat, ask(R"("guided_grammar":"root ::= \"x\" \"y\"")"))), "xy");
  const json plain = answered(post(demo(), "/v1/completions", R"({"prompt":"Once","guided_regex":"[0-9]{4}"})"));
  EXPECT_TRUE(std::regex_match(plain["choices"][0]["text"].get<std::string>(), std::regex("[0-9]{4}"))) << plain;
}

TEST(Structured, RefusalsNameKeywordAndPlace) {
  const Reply reply = post(demo(), kChat,
                           ask(R"("response_format":{"type":"json_schema","json_schema":{"name":"p","schema":)"
                               R"({"properties":{"tags":{"contains":{"type":"null"}}}}}})"));
  EXPECT_EQ(reply.status, 400);
  const json error = json::parse(reply.body)["error"];
  EXPECT_EQ(error["type"], "invalid_request_error");
  EXPECT_EQ(error["param"], "response_format.json_schema.schema");
  EXPECT_THAT(error["message"], HasSubstr("'contains' at #/properties/tags is not supported"));
  const Reply regex = post(demo(), "/v1/completions", R"({"prompt":"a","guided_regex":"a++"})");
  EXPECT_EQ(regex.status, 400);
  EXPECT_THAT(regex.body, HasSubstr("'guided_regex': "));
}

const std::string kPlain = R"("chat_template_kwargs":{"enable_thinking":false},)";

std::string tools(const std::string& strict, const std::string& schema) {
  return R"("tools":[{"type":"function","function":{"name":"ping"}},{"type":"function","function":{"name":"note",)" +
         strict + R"("parameters":)" + schema + "}}]";
}

TEST(Structured, RequiredCallsFitTheirTools) {
  for (const char* name : {"Qwen3.5-4B", "Qwen-Qwen3-0.6B"}) {
    Server& server = with_template(name);
    const std::string fields = kPlain + tools("", kSchema);
    const std::string note = R"(,"tool_choice":{"type":"function","function":{"name":"note"}})";
    const json called = answered(post(server, kChat, ask(fields + note)))["choices"][0];
    ASSERT_EQ(called["message"]["tool_calls"].size(), 1) << name << called;
    const json& function = called["message"]["tool_calls"][0]["function"];
    EXPECT_EQ(function["name"], "note");
    expect_person(function["arguments"]);
    EXPECT_EQ(called["finish_reason"], "tool_calls");
  }
}

TEST(Structured, StrictToolsAreCheckedAndOthersMayBeLoose) {
  Server& server = with_template("Qwen3.5-4B");
  const std::string odd = R"({"type":"object","properties":{"a":{"contains":{}}}})";
  const Reply strict = post(server, kChat, ask(kPlain + tools(R"("strict":true,)", odd)));
  EXPECT_EQ(strict.status, 400);
  EXPECT_THAT(strict.body, HasSubstr("the parameters of tool 'note': 'contains' at #/properties/a is not supported"));
  const std::string ping = R"("tool_choice":{"type":"function","function":{"name":"ping"}})";
  const json called = answered(post(server, kChat, ask(kPlain + tools("", odd) + "," + ping)));
  EXPECT_EQ(called["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"], "{}");
  // A format beside tools: an answer in it, or calls.
  const std::string format = R"(,"response_format":{"type":"json_schema","json_schema":{"schema":{"const":"yes"}}})";
  const json either = answered(post(server, kChat, ask(kPlain + tools("", odd) + format)));
  const json& message = either["choices"][0]["message"];
  EXPECT_TRUE(message["content"] == "\"yes\"" || message.contains("tool_calls")) << message;
}

// Takes tenths of a second to compile, and is then refused.
std::string slow_schema(int n) {
  json all = json::array();
  for (int i = 5; i < 25; ++i) {
    all.push_back({{"type", "string"}, {"pattern", "(a|b)*a(a|b){" + std::to_string(i) + "}x" + std::to_string(n)}});
  }
  return ask(R"("response_format":{"type":"json_schema","json_schema":{"name":"x","schema":)" +
             json{{"allOf", all}}.dump() + "}}");
}

TEST(Structured, CompilingDelaysNobodyElse) {
  Server server;
  std::vector<std::unique_ptr<testing::Client>> slow;
  for (int i = 0; i < 3; ++i) {
    slow.push_back(std::make_unique<testing::Client>(server));
    ASSERT_TRUE(slow.back()->send(testing::Client::post_text(kChat, slow_schema(i))));
  }
  const auto begun = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(testing::get(server, "/health").status, 200);
  EXPECT_EQ(post(server, kChat, R"({"messages":[{"role":"user","content":"Hi"}],"max_tokens":3})").status, 200);
  const auto others = std::chrono::steady_clock::now() - begun;
  for (const auto& client : slow) EXPECT_EQ(client->reply().status, 400);
  EXPECT_LT(2 * others, std::chrono::steady_clock::now() - begun) << "three were compiled one by one";
}

TEST(Structured, FewConstraintsWaitToBeCompiled) {
  Server server({}, {.works = 1});
  std::vector<std::unique_ptr<testing::Client>> slow;
  for (int i = 0; i < 4; ++i) {
    slow.push_back(std::make_unique<testing::Client>(server));
    ASSERT_TRUE(slow.back()->send(testing::Client::post_text(kChat, slow_schema(i))));
  }
  int refused = 0;
  for (const auto& client : slow) {
    const Reply reply = client->reply();
    if (reply.status != 503) continue;
    EXPECT_THAT(reply.body, HasSubstr("too many requests wait for their format to be compiled; try again later"));
    EXPECT_TRUE(reply.headers.contains("retry-after"));
    ++refused;
  }
  EXPECT_GE(refused, 1);
}

TEST(Structured, ConstraintsOfClientsThatLeftAreNotCompiled) {
  Server server({}, {.works = 1});
  const auto seconds = [&](const std::string& body, int status) {
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_EQ(post(server, kChat, body).status, status);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  };
  const double one = seconds(slow_schema(100), 400);
  for (int i = 0; i < 8; ++i) {
    testing::Client client(server);
    ASSERT_TRUE(client.send(testing::Client::post_text(kChat, slow_schema(i))));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const std::string format = R"("response_format":{"type":"json_schema","json_schema":{"schema":{"const":"left"}}})";
  EXPECT_LT(seconds(ask(format), 200), 4 * one) << "the others were compiled first";
}

TEST(Structured, ScoringHasPlacesOfItsOwn) {
  Server server({}, {.works = 1});
  testing::Client slow(server);
  ASSERT_TRUE(slow.send(testing::Client::post_text(kChat, slow_schema(0))));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::string scored = R"({"echo":true,"max_tokens":0,"logprobs":1,"prompt":[5,6]})";
  EXPECT_EQ(post(server, "/v1/completions", scored).status, 200);
  EXPECT_EQ(slow.reply().status, 400);
}

// The server's end comes between the parts of such a request: in its queue, while it runs, on the way back from there.
TEST(Structured, AServerThatStopsWaitsForNoQueuedConstraint) {
  std::map<int, int> seen;  // by status
  std::mutex mutex;
  server::ApplicationOptions options;
  options.log = [&](const server::RequestLog& log) {
    const std::lock_guard lock(mutex);
    ++seen[log.status];
  };
  Server server(std::move(options));
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<testing::Client>> clients;
    for (int i = 0; i < 8; ++i) {
      clients.push_back(std::make_unique<testing::Client>(server));
      ASSERT_TRUE(clients.back()->send(testing::Client::post_text(kChat, slow_schema(100 * round + i))));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(15 * round));
    server.http.reset();
    for (const auto& client : clients) EXPECT_NE(client->reply().status, 200);
    auto again = server::HttpServer::start(*server.application, {.port = 0});
    ASSERT_TRUE(again.ok()) << again.status().message();
    server.http = std::move(*again);
  }
  EXPECT_GT(seen[503], 0);
  EXPECT_LE(seen[400], 6) << "of 24, of which one a round may run";
}

// The demo model's </think> is a special token.
TEST(Structured, ReasoningIsNeverLimitedInSilence) {
  const Reply reply = post(with_template("Qwen3.5-4B"), kChat, ask(R"("response_format":{"type":"json_object"})"));
  EXPECT_EQ(reply.status, 400);
  EXPECT_THAT(reply.body, HasSubstr("turn the reasoning off"));
}

}  // namespace
}  // namespace switchyard::structured
