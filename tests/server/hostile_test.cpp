// SPDX-License-Identifier: Apache-2.0
// Clients that go away, do not read, or send what is no request: others do not notice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/server/client.h"

namespace switchyard {
namespace {

using testing::Client;
using testing::get;
using ::testing::HasSubstr;
using testing::post;
using testing::Reply;
using testing::Server;

constexpr const char* kPath = "/v1/chat/completions";
const std::string kLong =
    R"({"messages":[{"role":"user","content":"Hello"}],"ignore_eos":true,"max_tokens":2000,"stream":)";

server::HttpOptions impatient() {
  server::HttpOptions o;
  o.header_bytes = 4096;
  o.body_bytes = 64 << 10;
  o.bodies_bytes = 128 << 10;
  o.header_seconds = o.body_seconds = o.write_seconds = 1;
  o.connections = 40;
  o.send_buffer_bytes = 8 << 10;
  return o;
}

Server& hostile() {
  static Server server({}, impatient(), {.events = 8});
  return server;
}

void expect_well(Server& server) {
  EXPECT_TRUE(server.idle());
  EXPECT_EQ(get(server, "/health").status, 200);
  EXPECT_EQ(post(server, kPath, R"({"messages":[{"role":"user","content":"Hello"}],"max_tokens":2})").status, 200);
}

TEST(Hostile, AClientThatGoesEndsItsRequest) {
  for (const char* stream : {"true}", "false}"}) {
    for (const bool reset : {false, true}) {
      const uint64_t before = hostile().service->stats().finished["cancelled"];
      {
        Client client(hostile());
        ASSERT_TRUE(client.send(Client::post_text(kPath, kLong + stream)));
        if (stream[0] == 't') {
          ASSERT_TRUE(client.wait_for("\"content\":\""));
        }
        for (int i = 0; i < 10000 && hostile().service->stats().running == 0; ++i) {
          std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
        ASSERT_EQ(hostile().service->stats().running, 1);
        if (reset) client.reset();
      }
      EXPECT_TRUE(hostile().idle());
      EXPECT_EQ(hostile().service->stats().finished["cancelled"], before + 1) << stream << reset;
    }
  }
  expect_well(hostile());
}

TEST(Hostile, AClientThatDoesNotReadIsGivenUp) {
  Client slow(hostile());
  slow.shrink_window();
  // Every token brings a long chunk, so that what the kernel holds is soon full.
  ASSERT_TRUE(
      slow.send(Client::post_text(kPath, R"({"n":3,"logprobs":true,"top_logprobs":20,)" + kLong.substr(1) + "true}")));
  EXPECT_EQ(post(hostile(), kPath, R"({"messages":[{"role":"user","content":"Hello"}],"max_tokens":5})").status, 200)
      << "another client is served meanwhile";
  expect_well(hostile());
}

TEST(Hostile, HalfRequestsEndInTime) {
  Client head(hostile()), body(hostile());
  ASSERT_TRUE(head.send("POST /v1/chat/completions HTTP/1.1\r\nHost"));
  ASSERT_TRUE(body.send("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"mess"));
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_TRUE(head.ended());
  EXPECT_TRUE(body.ended());
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(5));
  expect_well(hostile());
}

TEST(Hostile, WhatIsNoRequestIsRefused) {
  const std::pair<std::string, int> requests[] = {
      {"\x16\x03\x01\x02hello\r\n\r\n", 400},
      {"GET\r\n\r\n", 400},
      {"GET nowhere HTTP/1.1\r\n\r\n", 400},
      {"GET /%zz HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/9.9\r\n\r\n", 400},
      {"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400},
      {"POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
      {"GET / HTTP/1.1\r\nX: " + std::string(5000, 'a') + "\r\n\r\n", 431},
      {"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n", 413},
      {"POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n11000\r\n" + std::string(0x11000, 'a'),
       413},
      {Client::post_text(kPath, "{"), 400},
      {Client::post_text(kPath, ""), 400},
      {Client::post_text(kPath, "{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}"), 400},
      {Client::post_text(kPath, R"({"messages":[{"role":"user","content":"\ud800"}]})"), 400},
      {Client::post_text(kPath, std::string(60000, '[')), 400},
      {Client::post_text("/v1/completions", R"({"prompt":[2000000000]})"), 400},
      {Client::post_text("/v1/completions", R"({"prompt":"a","allow_regex":"("})"), 400},
  };
  for (const auto& [text, status] : requests) {
    Client client(hostile());
    ASSERT_TRUE(client.send(text));
    const Reply reply = client.reply();
    EXPECT_EQ(reply.status, status) << text.substr(0, 80) << reply.body;
    EXPECT_THAT(reply.body, HasSubstr("\"message\":\""));
  }
  expect_well(hostile());
}

TEST(Hostile, FloodsOfHeadersAndConnectionsAreBounded) {
  Client headers(hostile());
  for (int i = 0; i < 10000 && headers.send("X-" + std::to_string(i) + ": 1\r\n"); ++i) {
  }
  std::vector<std::unique_ptr<Client>> many;
  for (int i = 0; i < 60; ++i) many.push_back(std::make_unique<Client>(hostile()));
  for (int i = 0; i < 90 && hostile().http->connections() < 40; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // until the server has seen them
  }
  int refused = 0;
  for (const auto& client : many) {
    client->send("GET /health HTTP/1.1\r\nConnection: close\r\n\r\n");
    refused += client->reply().status == 503 ? 1 : 0;
  }
  EXPECT_GE(refused, 10) << "at most 40 connections at a time";
  EXPECT_LE(hostile().http->connections(), 40);
  many.clear();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  expect_well(hostile());
}

TEST(Hostile, BodiesTogetherAreBounded) {
  std::vector<std::unique_ptr<Client>> many;
  int refused = 0;
  for (int i = 0; i < 4; ++i) {
    many.push_back(std::make_unique<Client>(hostile()));
    many.back()->send("POST " + std::string(kPath) + " HTTP/1.1\r\nContent-Length: 60000\r\n\r\n");
  }
  for (const auto& client : many) refused += client->reply().status == 503 ? 1 : 0;
  EXPECT_EQ(refused, 2) << "two of four fit";
  expect_well(hostile());
}

TEST(Hostile, WaitsForAClientThatExpectsAWord) {
  Client client(hostile());
  const std::string body = R"({"messages":[{"role":"user","content":"Hello"}],"max_tokens":2})";
  ASSERT_TRUE(client.send("POST /v1/chat/completions HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: " +
                          std::to_string(body.size()) + "\r\n\r\n"));
  ASSERT_TRUE(client.wait_for("HTTP/1.1 100 Continue\r\n\r\n"));
  client.unread.clear();
  ASSERT_TRUE(client.send(body));
  EXPECT_EQ(client.reply().status, 200);
}

TEST(Hostile, FullQueuesAreSaid) {
  Server server({}, {}, {.queue = 1}, 1);
  std::vector<std::unique_ptr<Client>> many;
  for (int i = 0; i < 8; ++i) {
    many.push_back(std::make_unique<Client>(server));
    many.back()->send(Client::post_text(kPath, kLong + "true}"));
  }
  int full = 0;
  for (const auto& client : many) {
    if (!client->wait_for("\r\n\r\n") || client->unread.substr(9, 3) != "429") continue;
    const Reply reply = client->reply();
    EXPECT_TRUE(reply.headers.contains("retry-after"));
    EXPECT_THAT(reply.body, HasSubstr("\"type\":\"rate_limit_error\""));
    ++full;
  }
  EXPECT_GE(full, 5);
}

}  // namespace
}  // namespace switchyard
