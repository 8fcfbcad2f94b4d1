// SPDX-License-Identifier: Apache-2.0
// A load's parts without sockets: addresses and lengths as typed, streams in every division, and the figures.
#include "bench/load/load.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "bench/load/answer_reader.h"
#include "bench/load/figures.h"
#include "bench/load/prompts.h"

namespace switchyard::bench {
namespace {

using ::testing::HasSubstr;

TEST(LoadUrl, WhatIsTyped) {
  const auto read = [](const std::string& url) {
    const auto e = parse_url(url);
    return e.ok() ? e->host + "|" + e->port + "|" + e->path : "refused: " + e.status().message();
  };
  EXPECT_EQ(read("http://127.0.0.1:8080"), "127.0.0.1|8080|");
  EXPECT_EQ(read("localhost:9"), "localhost|9|");
  EXPECT_EQ(read("http://host/v1/"), "host|80|");
  EXPECT_EQ(read("http://host:81/proxy/v1"), "host|81|/proxy");
  EXPECT_EQ(read("http://[::1]:8080"), "::1|8080|");
  EXPECT_THAT(read("https://host"), HasSubstr("does not speak TLS"));
  for (const char* bad : {"", "http://", "ftp://host", "http://host:0", "http://host:70000", "http://host:x",
                          "http://a b", "http://u:p@host", "http://[::1", "http://host:"}) {
    EXPECT_THAT(read(bad), HasSubstr("is not the address of a server")) << bad;
  }
}

TEST(LoadLengths, WhatIsTyped) {
  EXPECT_EQ(parse_lengths("128", "--x")->most, 128u);
  EXPECT_EQ(parse_lengths("16-512", "--x")->least, 16u);
  EXPECT_EQ(parse_lengths("16-512", "--x")->most, 512u);
  for (const char* bad : {"", "0", "-1", "5-", "-5", "9-3", "a", "1-2-3", "9999999"}) {
    EXPECT_THAT(parse_lengths(bad, "--x").status().message(), HasSubstr("--x '")) << bad;
  }
}

std::string piece(const std::string& text) {
  return "data: {\"choices\":[{\"delta\":{\"content\":\"" + text + "\"}}]}\r\n\r\n";
}
const std::string kEnd =
    "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\n"
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":4,"
    "\"prompt_tokens_details\":{\"cached_tokens\":5}}}\n\ndata: [DONE]\n\n";

// Bytes in parts of `step`, one part a second.
Exchange read_stream(const std::string& bytes, size_t step, bool whole = true) {
  Exchange e;
  AnswerReader reader(e, true);
  EXPECT_TRUE(reader.head(200, "text/event-stream; charset=utf-8"));
  double now = 0;
  for (size_t at = 0; at < bytes.size(); at += step) {
    if (!reader.push(std::string_view(bytes).substr(at, step), ++now)) break;
  }
  reader.finish(whole);
  return e;
}

TEST(AnswerReader, ReadsAStreamInEveryDivision) {
  const std::string stream = ": a comment\n\nevent: x\n" + piece("one ") +
                             "data:{\"choices\":[{\"delta\":{\"reasoning_content\":\"two \"}}]}\n\n" +
                             "data: {\"choices\":[{\"text\":\"three\"}]}\n\n" + piece("") + kEnd;
  for (size_t step = 1; step <= stream.size(); ++step) {
    const Exchange e = read_stream(stream, step);
    ASSERT_TRUE(e.ok()) << step << ": " << e.message;
    ASSERT_EQ(e.text, "one two three");
    ASSERT_EQ(e.pieces, 3u);
    ASSERT_EQ(e.gaps.size(), 2u);
    ASSERT_EQ(e.prompt_tokens, 7u);
    ASSERT_EQ(e.cached_tokens, 5u);
    ASSERT_EQ(e.drawn(), 4u);
    ASSERT_LE(e.first, e.last);
  }
}

TEST(AnswerReader, TellsWhatIsWrong) {
  const auto fault = [](const std::string& stream, bool whole = true) {
    const Exchange e = read_stream(stream, 11, whole);
    return std::string(fault_name(e.fault)) + ": " + e.message;
  };
  EXPECT_THAT(fault(piece("a")), HasSubstr("cut off"));
  EXPECT_THAT(fault(piece("a") + kEnd, false), HasSubstr("cut off"));
  EXPECT_THAT(fault("data: {\"choices\n\n"), HasSubstr("malformed"));
  EXPECT_THAT(fault("data: 7\n\n"), HasSubstr("malformed: an event is not an object"));
  EXPECT_THAT(fault(kEnd), HasSubstr("malformed: the answer has no text"));
  EXPECT_EQ(fault("data: {\"error\":{\"message\":\"no\\u001bmemory\"}}\n\n"), "reported: no memory");
  EXPECT_EQ(fault("data: {\"error\":\"gone\"}\n\n"), "reported: gone");
  EXPECT_THAT(fault("data: " + std::string(5u << 20, 'x')), HasSubstr("has no end"));
}

TEST(AnswerReader, AReplyThatIsNoStream) {
  Exchange refused;
  AnswerReader reader(refused, false);
  EXPECT_FALSE(reader.head(429, "application/json"));
  EXPECT_TRUE(reader.push(R"({"error":{"message":"too many requests"}})", 1));
  reader.finish(true);
  EXPECT_EQ(refused.fault, Fault::status);
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.message, "too many requests");

  Exchange whole;
  AnswerReader other(whole, false);
  EXPECT_FALSE(other.head(200, "application/json"));
  other.finish(true);
  EXPECT_EQ(whole.fault, Fault::not_sse);
}

Exchange answered(double begin, double first, double last, uint32_t tokens) {
  Exchange e;
  e.begin = begin;
  e.first = first;
  e.last = e.end = last;
  e.prompt_tokens = 10;
  e.tokens = e.pieces = tokens;
  for (uint32_t i = 1; i < tokens; ++i) e.gaps.push_back(static_cast<float>((last - first) / (tokens - 1)));
  return e;
}

TEST(LoadFigures, AreThoseOfTheRequests) {
  LoadResult r;
  r.begin = 100;
  r.end = 110;
  r.exchanges = {answered(100, 100.1, 101, 10), answered(101, 101.5, 105.5, 11), answered(102, 102.1, 110, 80)};
  Exchange failed;
  failed.fault = Fault::status;
  failed.status = 503;
  r.exchanges.push_back(failed);
  r.processor_seconds = 0.5;
  const LoadFigures f = figures_of(r, {.first_token = 0.2, .per_token = 0.1001});
  EXPECT_EQ(f.requests, 4u);
  EXPECT_EQ(f.ended_well, 3u);
  EXPECT_EQ(f.good, 2u) << "the second took 500 ms to its first token, and 400 ms per further one";
  EXPECT_DOUBLE_EQ(f.good_per_second, 0.2);
  EXPECT_NEAR(f.tokens_per_second, 10.1, 1e-9);
  EXPECT_NEAR(f.first_token.at(1), 0.5, 1e-9);
  EXPECT_NEAR(f.per_token.at(1), 0.4, 1e-9);
  EXPECT_EQ(f.gaps.seconds.size(), 9u + 10 + 79);
  EXPECT_NEAR(f.processor_share, 0.05, 1e-9);
  ASSERT_EQ(f.failures.size(), 1u);
  EXPECT_EQ(f.failures[0].status, 503);
  const LoadLimits limits{.first_token = 0.2};
  EXPECT_THAT(render_load({}, f, limits), HasSubstr("first token within 200 ms"));
  EXPECT_EQ(load_json({}, f, limits)["ttft"]["samples"], 3);
}

// A closed loop's throughput is that of the time in which all clients were busy.
TEST(LoadFigures, AClosedLoopCountsWhileAllAreBusy) {
  LoadResult r;
  r.begin = 100;
  r.end = 110;
  r.exchanges = {answered(100, 100.1, 105, 50), answered(100, 100.1, 110, 50)};
  r.steady_end = 105;
  r.steady_pieces = 75;
  EXPECT_NEAR(figures_of(r, {}).tokens_per_second, 15, 1e-9);
}

TEST(LoadPrompts, HaveTheLengthThatIsAskedFor) {
  const TokenRate rate = TokenRate::of(10 + 2 * TokenRate::kFew, 10 + 2 * TokenRate::kMany);
  EXPECT_EQ(rate.words(110), 50u);
  EXPECT_EQ(rate.words(1), 1u);
  EXPECT_EQ(TokenRate::of(0, 0).words(50), 50u) << "a server that does not count";

  Load load;
  load.prompt = {20, 20};
  load.shared = 30;
  load.extra = R"({"top_k": 5})";
  const auto body = [&](uint32_t index) { return nlohmann::json::parse(Conversation(load, {}, index).next_body()); };
  EXPECT_EQ(body(3), body(3));
  EXPECT_NE(body(3)["messages"][1], body(4)["messages"][1]);
  EXPECT_EQ(body(3)["messages"][0], body(4)["messages"][0]);
  EXPECT_EQ(body(3)["top_k"], 5);
  Conversation talk(load, {}, 0);
  const auto first = nlohmann::json::parse(talk.next_body());
  talk.answered("yes");
  const auto second = nlohmann::json::parse(talk.next_body());
  ASSERT_EQ(second["messages"].size(), 4u);
  EXPECT_EQ(second["messages"][1], first["messages"][1]);
  EXPECT_EQ(second["messages"][2]["content"], "yes");
}

}  // namespace
}  // namespace switchyard::bench
