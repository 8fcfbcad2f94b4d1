// SPDX-License-Identifier: Apache-2.0
// The server over sockets, with the demo model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "tests/server/client.h"

namespace switchyard {
namespace {

using testing::Client;
using testing::get;
using testing::post;
using testing::Reply;
using testing::Server;
using json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kChat = "/v1/chat/completions";

Server& demo() {
  static Server server;
  return server;
}

std::string ask(const std::string& fields) {
  return R"({"messages":[{"role":"user","content":"Hello"}],"seed":1,"ignore_eos":true,)" + fields + "}";
}

json answered(const Reply& reply) {
  EXPECT_EQ(reply.status, 200) << reply.body;
  return json::parse(reply.body, nullptr, false);
}

// The text of a chat's stream.
std::string streamed(const std::string& body) {
  std::string text;
  for (size_t at = 0; (at = body.find("data: {", at)) != std::string::npos; ++at) {
    const json event = json::parse(body.substr(at + 6, body.find("\n\n", at) - at - 6));
    if (!event["choices"].empty()) text += event["choices"][0]["delta"].value("content", "");
  }
  return text;
}

TEST(Server, StreamsWhatItAlsoGivesWhole) {
  const json whole = answered(post(demo(), kChat, ask(R"("max_tokens":30)")));
  const std::string text = whole["choices"][0]["message"]["content"];
  EXPECT_GT(text.size(), 30);
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(whole["usage"]["completion_tokens"], 30);
  EXPECT_EQ(whole["usage"]["total_tokens"], whole["usage"]["prompt_tokens"].get<int>() + 30);
  const Reply stream = post(demo(), kChat, ask(R"("max_tokens":30,"stream":true)"));
  EXPECT_EQ(stream.headers.at("content-type"), "text/event-stream");
  EXPECT_EQ(stream.headers.at("cache-control"), "no-cache");
  EXPECT_EQ(streamed(stream.body), text);
  EXPECT_TRUE(stream.body.ends_with("data: [DONE]\n\n"));
}

TEST(Server, TheSameConnectionServesSeveralRequests) {
  Client client(demo());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client.post(kChat, ask(R"("max_tokens":2,"stream":true)")).status, 200);
  const std::string two =
      Client::post_text(kChat, ask(R"("max_tokens":2)")) + "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";
  ASSERT_TRUE(client.send(two));  // the second one while the first is answered
  EXPECT_EQ(client.reply().status, 200);
  EXPECT_EQ(client.reply().body, R"({"status":"ok"})");
}

TEST(Server, SeedsRepeatAndChoicesDiffer) {
  const json two = answered(post(demo(), kChat, ask(R"("max_tokens":12,"n":2)")));
  ASSERT_EQ(two["choices"].size(), 2);
  const json one = answered(post(demo(), kChat, ask(R"("max_tokens":12)")));
  EXPECT_EQ(two["choices"][0]["message"], one["choices"][0]["message"]);
  EXPECT_NE(two["choices"][1]["message"], one["choices"][0]["message"]);
}

TEST(Server, StopsAtAStopString) {
  const json whole = answered(post(demo(), kChat, ask(R"("max_tokens":30)")));
  const std::string text = whole["choices"][0]["message"]["content"];
  const size_t second_word = text.find(' ') + 1;
  const std::string stop = text.substr(second_word, text.find(' ', second_word) - second_word);
  const json cut = answered(post(demo(), kChat, ask(R"("max_tokens":30,"stop":)" + json(stop).dump())));
  EXPECT_EQ(cut["choices"][0]["message"]["content"], text.substr(0, text.find(stop)));
  EXPECT_EQ(cut["choices"][0]["finish_reason"], "stop");
}

TEST(Server, GivesLogprobsAndTakesBiases) {
  const json reply =
      answered(post(demo(), kChat, ask(R"("max_tokens":4,"logprobs":true,"top_logprobs":3,"temperature":0)")));
  const json& tokens = reply["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(tokens.size(), 4);
  std::string text;
  for (const json& token : tokens) {
    ASSERT_EQ(token["top_logprobs"].size(), 3);
    EXPECT_EQ(token["top_logprobs"][0]["token"], token["token"]) << "the most likely one";
    EXPECT_LE(token["logprob"], 0);
    for (const json& byte : token["bytes"]) text += static_cast<char>(byte.get<int>());
  }
  EXPECT_EQ(reply["choices"][0]["message"]["content"], text);
  const json ids = answered(post(demo(), "/tokenize", R"({"prompt":"zzz"})"));
  const std::string id = std::to_string(ids["tokens"][0].get<int>());
  const json biased =
      answered(post(demo(), kChat, ask(R"("max_tokens":3,"temperature":0,"logit_bias":{")" + id + R"(":100})")));
  const std::string piece = answered(post(demo(), "/detokenize", R"({"tokens":[)" + id + "]}"))["prompt"];
  EXPECT_EQ(biased["choices"][0]["message"]["content"], piece + piece + piece);
}

TEST(Server, CompletesTextsAndIds) {
  const json ids = answered(post(demo(), "/tokenize", R"({"prompt":"Once upon a"})"));
  const json two = answered(post(demo(), "/v1/completions",
                                 R"({"prompt":["Once upon a","Once upon a"],"max_tokens":6,"seed":4,"echo":true})"));
  ASSERT_EQ(two["choices"].size(), 2);
  EXPECT_THAT(two["choices"][0]["text"].get<std::string>(), StartsWith("Once upon a"));
  EXPECT_EQ(two["choices"][0]["text"], two["choices"][1]["text"]);
  const json same = answered(
      post(demo(), "/v1/completions", R"({"prompt":)" + ids["tokens"].dump() + R"(,"max_tokens":6,"seed":4})"));
  EXPECT_EQ("Once upon a" + same["choices"][0]["text"].get<std::string>(), two["choices"][0]["text"]);
}

// The likelihood of a prompt's tokens is that with which they would have been drawn.
TEST(Server, EchoesPromptsWithTheirLogprobs) {
  const std::vector<int> ids = answered(post(demo(), "/tokenize", R"({"prompt":"Once upon a time there"})"))["tokens"];
  ASSERT_GT(ids.size(), 3);
  const auto ask_for = [](const std::vector<int>& prompt, const std::string& fields) {
    return answered(post(demo(), "/v1/completions",
                         R"({"logprobs":5,"prompt":)" + json(prompt).dump() + "," + fields + "}"))["choices"][0];
  };
  const json echoed = ask_for(ids, R"("echo":true,"max_tokens":0)");
  EXPECT_EQ(echoed["text"], "Once upon a time there");
  EXPECT_EQ(echoed["finish_reason"], "length");
  const json given = echoed["logprobs"];
  ASSERT_EQ(given["tokens"].size(), ids.size());
  EXPECT_TRUE(given["token_logprobs"][0].is_null());
  EXPECT_TRUE(given["top_logprobs"][0].is_null());
  EXPECT_EQ(given["text_offset"][0], 0);
  for (size_t i = 1; i < ids.size(); ++i) {
    const std::vector<int> before(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(i));
    const json drawn = ask_for(before, R"("max_tokens":1,"temperature":1)")["logprobs"]["top_logprobs"][0];
    const json& top = given["top_logprobs"][i];
    EXPECT_EQ(top.size(), 5);
    for (const auto& [text, logprob] : top.items()) {
      ASSERT_TRUE(drawn.contains(text)) << i << drawn << top;
      EXPECT_NEAR(logprob.get<double>(), drawn[text].get<double>(), 1e-3) << i << text;
    }
    const std::string own = given["tokens"][i];
    if (top.contains(own)) {
      EXPECT_EQ(given["token_logprobs"][i], top[own]);
    }
  }
  const json more = ask_for(ids, R"("echo":true,"max_tokens":2,"seed":1)");
  EXPECT_EQ(more["logprobs"]["token_logprobs"].size(), ids.size() + 2);
  EXPECT_EQ(more["logprobs"]["token_logprobs"][1], given["token_logprobs"][1]);
}

TEST(Server, RefusesEchoesOfWhatItCannotRead) {
  const auto ask_for = [](const std::string& fields) {
    return post(demo(), "/v1/completions", R"({"echo":true,"max_tokens":0,)" + fields + "}");
  };
  for (const char* logprobs : {"", R"("logprobs":1,)"}) {
    for (const char* ids : {"[1,2147483000]", "[[5,6],[1,2147483000]]"}) {
      EXPECT_EQ(ask_for(std::string(logprobs) + R"("prompt":)" + ids).status, 400) << logprobs << ids;
    }
    const auto refused = [] { return demo().service->stats().refused["too_long"]; };
    const uint64_t before = refused();
    const Reply longer = ask_for(std::string(logprobs) + R"("prompt":)" + json(std::vector<int>(100000, 5)).dump());
    EXPECT_EQ(longer.status, 400);
    EXPECT_EQ(refused(), before + 1);
    EXPECT_THAT(longer.body, HasSubstr("context_length_exceeded"));
  }
  const json prompt(std::vector<int>(300, 5));
  const Reply many = ask_for(R"("logprobs":20,"n":128,"prompt":)" + prompt.dump());
  EXPECT_EQ(many.status, 400);
  EXPECT_THAT(many.body, HasSubstr("may be at most 524288"));
}

// One session: each of a request's prompts has it in turn.
TEST(Server, ScoresSeveralPromptsWithOneSession) {
  static Server small({}, {}, {}, 1);
  const json reply = answered(
      post(small, "/v1/completions", R"({"prompt":[[5,6,7],[8,9]],"n":2,"echo":true,"logprobs":1,"max_tokens":3})"));
  ASSERT_EQ(reply["choices"].size(), 4);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(reply["choices"][i]["logprobs"]["tokens"].size(), i < 2 ? 6 : 5) << i;
  }
}

// What the reply begins with is more than is sent at a time.
TEST(Server, BeginsWithALongText) {
  std::string prompt;
  while (prompt.size() < 4000) prompt += "Once upon a time there was a house. ";
  const json body = {{"prompt", prompt}, {"echo", true}, {"max_tokens", 2}, {"n", 32}, {"stream", true}};
  const Reply reply = post(demo(), "/v1/completions", body.dump());
  EXPECT_EQ(reply.status, 200) << reply.body.substr(0, 300);
  EXPECT_GT(reply.body.size(), 128u << 10);
  EXPECT_TRUE(reply.body.ends_with("data: [DONE]\n\n"));

  // The same where the first event waits already.
  GenerationRequest request{.prompt = {5, 6}, .text = {}};
  request.text.max_tokens = 2;
  Admission admitted = demo().service->submit(std::move(request));
  ASSERT_TRUE(admitted.ok());
  for (int i = 0; i < 5000 && admitted.ticket->arm(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  ASSERT_FALSE(admitted.ticket->arm());
  const auto echo =
      std::make_shared<const server::Echo>(server::Echo{.text = std::string(100 << 10, 'x'), .logprobs = {}});
  std::vector<server::GeneratingChoice> choices(1);
  choices[0].ticket = std::move(admitted.ticket);
  server::Generating generating(server::completion_answer({}, true, {echo}), std::move(choices),
                                *demo().service->loaded().tokenizer, server::Protocol::completions, true, false);
  std::string out;
  EXPECT_EQ(generating.pull(out), server::Pending::State::more);
  EXPECT_GT(out.size(), 100u << 10);
  out.clear();
  auto state = server::Pending::State::more;
  while (state != server::Pending::State::done) state = generating.pull(out);
}

// Prompts are read only as long as their client waits.
TEST(Server, ScoringEndsWithItsClient) {
  static Server one({}, {}, {}, 1);
  const json ids(std::vector<int>(60, 5));
  std::string prompts = ids.dump();
  for (int i = 0; i < 60; ++i) prompts += "," + ids.dump();
  const std::string body = R"({"echo":true,"max_tokens":0,"logprobs":1,"prompt":[)" + prompts + "]}";
  const auto seconds = [](auto since) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
  };
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_EQ(post(one, "/v1/completions", body).status, 200);
  const double whole = seconds(begun);
  {
    Client client(one);
    ASSERT_TRUE(client.send(Client::post_text("/v1/completions", body)));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  const auto then = std::chrono::steady_clock::now();
  EXPECT_EQ(post(one, "/v1/completions", R"({"echo":true,"max_tokens":0,"logprobs":1,"prompt":[5,6]})").status, 200);
  EXPECT_LT(seconds(then), whole / 2 + 0.2) << "it waited for " << whole << " s of work that nobody wants";
}

TEST(Server, SpeaksTheOtherProtocols) {
  const Reply messages =
      post(demo(), "/v1/messages", R"({"model":"demo","max_tokens":8,"messages":[{"role":"user","content":"Hi"}]})");
  EXPECT_EQ(answered(messages)["usage"]["output_tokens"], 8) << messages.body;
  const Reply responses = post(demo(), "/v1/responses", R"({"input":"Hi","max_output_tokens":8,"stream":true})");
  EXPECT_THAT(responses.body, HasSubstr("event: response.incomplete\n"));
  EXPECT_EQ(answered(post(demo(), "/v1/messages/count_tokens",
                          R"({"messages":[{"role":"user","content":"Hi"}]})"))["input_tokens"],
            answered(messages)["usage"]["input_tokens"]);
}

TEST(Server, CallsOfToolsComeApart) {
  std::ostringstream source;
  source << std::ifstream(SWITCHYARD_TEST_DATA "/templates/Qwen3.5-4B.jinja", std::ios::binary).rdbuf();
  Server server({.model_names = {"demo"}, .chat_template = source.str()});
  const std::string tool = R"("tools":[{"type":"function","function":{"name":"look",)"
                           R"("parameters":{"properties":{"where":{"type":"string"}}}}}])";
  const std::string must = R"("chat_template_kwargs":{"enable_thinking":false},"tool_choice":"required",)"
                           R"("tools":[{"type":"function","function":{"name":"ping"}}])";
  const json called = answered(post(server, kChat, ask(R"("max_tokens":60,)" + must)));
  const json& choice = called["choices"][0];
  ASSERT_TRUE(choice["message"].contains("tool_calls")) << called;
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["name"], "ping");
  const std::string pattern = R"(why\n</think>\n\n<tool_call>\n<function=look>\n)"
                              R"(<parameter=where>\nup\n</parameter>\n</function>\n</tool_call>)";
  const Reply stream =
      post(server, kChat, ask(R"("max_tokens":100,"stream":true,"allow_regex":)" + json(pattern).dump() + "," + tool));
  EXPECT_THAT(stream.body, HasSubstr(R"("reasoning_content":")"));
  EXPECT_THAT(stream.body, HasSubstr(R"("function":{"name":"look","arguments":""}}]})"));
  EXPECT_THAT(stream.body, HasSubstr(R"("finish_reason":"tool_calls")"));
  EXPECT_EQ(streamed(stream.body), "");
}

TEST(Server, ASecondTurnReadsOnlyWhatIsNew) {
  std::string story;
  for (int i = 0; i < 40; ++i) story += "The ship had been at sea. ";
  const std::string first = R"({"role":"user","content":")" + story + "\"}";
  const auto turns = [](const std::string& messages) {
    return R"({"seed":1,"max_tokens":8,"messages":[)" + messages + "]}";
  };
  const json one = answered(post(demo(), kChat, turns(first)));
  EXPECT_EQ(one["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  const std::string answer = one["choices"][0]["message"].dump();
  const json two = answered(post(demo(), kChat, turns(first + "," + answer + R"(,{"role":"user","content":"And?"})")));
  const int cached = two["usage"]["prompt_tokens_details"]["cached_tokens"];
  EXPECT_GT(cached, 200);
  EXPECT_LT(cached, two["usage"]["prompt_tokens"].get<int>());
}

TEST(Server, SaysWhatIsWrong) {
  const Reply wrong = post(demo(), kChat, ask(R"("temperature":"hot")"));
  EXPECT_EQ(wrong.status, 400);
  EXPECT_EQ(wrong.body, R"({"error":{"message":"'temperature' must be a number from 0 to 100, not \"hot\"",)"
                        R"("type":"invalid_request_error","param":"temperature","code":null}})");
  EXPECT_EQ(post(demo(), kChat, ask(R"("model":"other")")).status, 404);
  EXPECT_EQ(post(demo(), "/v1/embeddings", "{}").status, 501);
  EXPECT_EQ(get(demo(), "/nothing").status, 404);
  const Reply method = get(demo(), kChat);
  EXPECT_EQ(method.status, 405);
  EXPECT_EQ(method.headers.at("allow"), "POST");
  std::string text;
  for (int i = 0; i < 6000; ++i) text += "word ";
  const Reply large = post(demo(), "/v1/completions", R"({"prompt":")" + text + "\"}");
  EXPECT_EQ(large.status, 400);
  EXPECT_EQ(json::parse(large.body)["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(post(demo(), kChat, ask(R"("odd":1,"max_tokens":1)")).headers.at("x-switchyard-ignored"), "odd");
  EXPECT_EQ(get(demo(), "/health", "X-Request-Id: my-1\r\n").headers.at("x-request-id"), "my-1");
}

// Every path that the OpenAPI document names is there, with its method.
TEST(Server, DescribesItself) {
  const json document = answered(get(demo(), "/openapi.json"));
  size_t paths = 0;
  for (const auto& [path, methods] : document["paths"].items()) {
    for (const auto& [method, what] : methods.items()) {
      const std::string target = path == "/v1/models/{name}" ? "/v1/models/demo" : path;
      const int status = method == "get" ? get(demo(), target).status : post(demo(), target, "{}").status;
      const bool known = what["responses"].contains(std::to_string(status));
      EXPECT_TRUE(known && status != 404) << method << " " << path << ": " << status;
      ++paths;
    }
  }
  EXPECT_EQ(paths, 16u);
}

TEST(Server, WantsAKey) {
  Server server({.model_names = {}, .api_keys = {"first", "second"}});
  EXPECT_EQ(get(server, "/health").status, 200);
  EXPECT_EQ(get(server, "/").status, 200);
  const Reply none = get(server, "/v1/models");
  EXPECT_EQ(none.status, 401);
  EXPECT_EQ(none.headers.at("www-authenticate"), "Bearer");
  for (const char* wrong : {"Bearer firs", "Bearer firstt", "Bearer ", "first", "Basic first"}) {
    EXPECT_EQ(get(server, "/v1/models", std::string("Authorization: ") + wrong + "\r\n").status, 401) << wrong;
  }
  EXPECT_EQ(get(server, "/v1/models", "Authorization: Bearer first\r\n").status, 200);
  EXPECT_EQ(get(server, "/v1/models", "Authorization: bearer second\r\n").status, 200);
  EXPECT_EQ(get(server, "/v1/models", "x-api-key: second\r\n").status, 200);
  EXPECT_EQ(get(server, "/metrics").status, 401);
}

TEST(Server, OtherSitesPagesMayNotUseIt) {
  Server server({.model_names = {}, .origins = {"https://chat.example"}});
  EXPECT_EQ(get(server, "/v1/models", "Origin: https://bad.example\r\n").status, 403);
  EXPECT_EQ(get(server, "/v1/models", "Origin: http://x\r\n").status, 200) << "its own page";
  const Reply allowed = get(server, "/v1/models", "Origin: https://chat.example\r\n");
  EXPECT_EQ(allowed.headers.at("access-control-allow-origin"), "https://chat.example");
  Client client(server);
  client.send(
      "OPTIONS /v1/models HTTP/1.1\r\nHost: x\r\nOrigin: https://chat.example\r\nAccess-Control-Request-Headers: a, "
      "b\r\n\r\n");
  const Reply preflight = client.reply();
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.headers.at("access-control-allow-headers"), "a, b");
}

TEST(Server, AnswersToItsOwnNamesAlone) {
  Server server({.hosts = std::vector<std::string>{"llm.example"}});
  const auto status = [&](const std::string& headers) {
    Client client(server);
    client.send("GET /v1/models HTTP/1.1\r\n" + headers + "\r\n");
    return client.reply().status;
  };
  for (const char* own : {"localhost", "LOCALHOST:8080", "demo.localhost", "127.0.0.1:1", "127.1.2.3", "[::1]:8080",
                          "llm.example", "LLM.example.:443"}) {
    EXPECT_EQ(status(std::string("Host: ") + own + "\r\n"), 200) << own;
  }
  EXPECT_EQ(status(""), 200) << "no browser leaves it out";
  for (const char* other : {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "127.evil.1.1",
                            "128.0.0.1", "2130706433", "[::2]", "xllm.example", "llm.example.evil", "localhost@evil"}) {
    EXPECT_EQ(status(std::string("Host: ") + other + "\r\n"), 403) << other;
    EXPECT_EQ(status(std::string("Host: ") + other + "\r\nOrigin: http://" + other + "\r\n"), 403) << other;
  }
  const Reply refused = get(server, "/");
  EXPECT_EQ(refused.status, 403);
  EXPECT_THAT(refused.body, HasSubstr("'x' is no name of this server; its operator can allow it with --allow-host"));
}

TEST(Server, TellsPrometheus) {
  answered(post(demo(), kChat, ask(R"("max_tokens":3)")));
  const std::string text = get(demo(), "/metrics").body;
  for (const char* name : {"num_requests_running", "generation_tokens_total", "time_to_first_token_seconds_bucket",
                           "kv_cache_usage_perc", "request_success_total"}) {
    EXPECT_THAT(text, HasSubstr(std::string("\nswitchyard:") + name + "{model_name=\"demo\""));
  }
  EXPECT_THAT(text, HasSubstr("http_requests_total{model_name=\"demo\",path=\"/v1/chat/completions\",status=\"200\"}"));
}

TEST(Server, DrainsAndLosesNothing) {
  Server server;
  Client busy(server), waiting(server);
  EXPECT_EQ(waiting.get("/ready").status, 200);
  ASSERT_TRUE(busy.send(Client::post_text(kChat, ask(R"("max_tokens":50,"stream":true)"))));
  ASSERT_TRUE(busy.wait_for("\"content\":\""));
  server.application->drain();
  const Reply ready = waiting.get("/ready");
  EXPECT_EQ(ready.status, 503);
  EXPECT_EQ(ready.headers.at("retry-after"), "1");
  EXPECT_EQ(post(server, kChat, ask(R"("max_tokens":1)")).status, 503);
  std::thread drains([&] { EXPECT_TRUE(server.http->drain(30)); });
  const Reply reply = busy.reply();
  EXPECT_TRUE(reply.body.ends_with("data: [DONE]\n\n"));
  EXPECT_TRUE(waiting.ended()) << "a connection without a request is closed";
  drains.join();
}

}  // namespace
}  // namespace switchyard
