// SPDX-License-Identifier: Apache-2.0
// Answers of each protocol, to the byte.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "server/protocol/collected.h"

namespace switchyard::server {
namespace {

using json = nlohmann::ordered_json;

AnswerHead head() {
  auto n = std::make_shared<int>(0);
  return {.id = "ID",
          .model = "m",
          .fingerprint = "fp",
          .created = 7,
          .prompt_tokens = 10,
          .new_id = [n](const char* prefix) { return prefix + std::to_string(++*n); }};
}

ChoiceEnd end(const char* reason, const char* stopped = "end") {
  ChoiceEnd e{.reason = reason, .stopped = stopped, .usage = {}, .reasoning_tokens = 1, .seed = 3};
  e.usage.prompt_tokens = 10;
  e.usage.cached_tokens = 4;
  e.usage.generated_tokens = 5;
  return e;
}

using Kind = Delta::Kind;

// Reasoning, text and a call, as a model gives them.
std::string run(Answer& answer, const ChoiceEnd& ended = end("tool_calls")) {
  std::string out = answer.start();
  const auto add = [&](std::vector<Delta> deltas) {
    out += answer.add({.choice = 0, .deltas = std::move(deltas), .logprobs = {}});
  };
  add({{Kind::reasoning, 0, "why"}});
  add({{Kind::content, 0, "a\n"}});
  add({{Kind::content, 0, "\"b\""}});
  add({{Kind::call, 0, "f"}, {Kind::arguments, 0, "{\"x\": "}});
  add({{Kind::arguments, 0, "1}"}, {Kind::call_end, 0, ""}});
  out += answer.end(0, ended);
  return out + answer.finish();
}

std::string chat_chunk(const std::string& delta, const std::string& reason = "null", const std::string& more = "") {
  return R"(data: {"id":"ID","object":"chat.completion.chunk","created":7,"model":"m","system_fingerprint":"fp",)"
         R"("choices":[{"index":0,"delta":)" +
         delta + R"(,"logprobs":null,"finish_reason":)" + reason + "}]" + more + "}\n\n";
}

TEST(ChatAnswer, Streams) {
  EXPECT_EQ(run(*chat_answer(head(), true)),
            chat_chunk(R"({"role":"assistant","content":""})") + chat_chunk(R"({"reasoning_content":"why"})") +
                chat_chunk(R"({"content":"a\n"})") + chat_chunk(R"({"content":"\"b\""})") +
                chat_chunk(R"({"tool_calls":[{"index":0,"id":"call_1","type":"function",)"
                           R"("function":{"name":"f","arguments":""}}]})") +
                chat_chunk(R"({"tool_calls":[{"index":0,"function":{"arguments":"{\"x\": "}}]})") +
                chat_chunk(R"({"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]})") +
                chat_chunk("{}", "\"tool_calls\"") + "data: [DONE]\n\n");
}

constexpr const char* kUsage =
    R"({"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":4},)"
    R"("completion_tokens_details":{"reasoning_tokens":1}})";
constexpr const char* kTimings =
    R"({"cache_n":4,"prompt_n":6,"prompt_ms":0.0,"prompt_per_second":0.0,"predicted_n":5,"predicted_ms":0.0,)"
    R"("predicted_per_second":0.0})";

TEST(ChatAnswer, StreamsUsageWhereItIsAsked) {
  AnswerHead h = head();
  h.include_usage = true;
  const auto answer = chat_answer(std::move(h), true);
  std::string text = answer->start();
  text += answer->end(0, end("stop"));
  text += answer->finish();
  EXPECT_EQ(
      text,
      chat_chunk(R"({"role":"assistant","content":""})", "null", R"(,"usage":null)") +
          chat_chunk("{}", "\"stop\"", R"(,"usage":null)") +
          R"(data: {"id":"ID","object":"chat.completion.chunk","created":7,"model":"m","system_fingerprint":"fp",)"
          R"("choices":[],"usage":)" +
          kUsage + R"(,"timings":)" + kTimings + "}\n\ndata: [DONE]\n\n");
}

TEST(ChatAnswer, ComesWhole) {
  EXPECT_EQ(run(*chat_answer(head(), false)),
            std::string(R"({"id":"ID","object":"chat.completion","created":7,"model":"m","system_fingerprint":"fp",)"
                        R"("choices":[{"index":0,"message":{"role":"assistant","content":"a\n\"b\"","refusal":null,)"
                        R"("reasoning_content":"why","tool_calls":[{"id":"call_1","type":"function","function":)"
                        R"({"name":"f","arguments":"{\"x\": 1}"}}]},"logprobs":null,"finish_reason":"tool_calls"}],)"
                        R"("usage":)") +
                kUsage + R"(,"timings":)" + kTimings + "}");
}

TEST(ChatAnswer, GivesLogprobs) {
  AnswerHead h = head();
  h.logprobs = true;
  const auto answer = chat_answer(std::move(h), false);
  answer->add({.choice = 0,
               .deltas = {{Kind::content, 0, "é"}},
               .logprobs = {{"\xC3", -0.5F, {{"\xC3", -0.5F}}}, {"\xA9", -1, {}}}});
  answer->end(0, end("stop"));
  EXPECT_EQ(json::parse(answer->finish())["choices"][0]["logprobs"].dump(),
            R"({"content":[{"token":"�","logprob":-0.5,"bytes":[195],)"
            R"("top_logprobs":[{"token":"�","logprob":-0.5,"bytes":[195]}]},)"
            R"({"token":"�","logprob":-1.0,"bytes":[169],"top_logprobs":[]}],"refusal":null})");
}

TEST(ChatAnswer, AnErrorEndsTheStream) {
  const auto answer = chat_answer(head(), true);
  EXPECT_EQ(
      answer->fail({.status = 500, .type = "server_error", .message = "no \"luck\""}),
      "data: {\"error\":{\"message\":\"no \\\"luck\\\"\",\"type\":\"server_error\",\"param\":null,\"code\":null}}\n\n"
      "data: [DONE]\n\n");
}

TEST(CompletionAnswer, StreamsAndComesWhole) {
  const auto feed = [](Answer& answer) {
    std::string out = answer.start();
    out += answer.add({.choice = 0, .deltas = {{Kind::content, 0, "b"}}, .logprobs = {{"b", -1, {{"b", -1.0F}}}}});
    out += answer.end(0, end("length", "length"));
    return out + answer.finish();
  };
  AnswerHead h = head();
  h.logprobs = true;
  const auto echo = std::make_shared<const Echo>(Echo{.text = "aé", .logprobs = {}});
  EXPECT_EQ(feed(*completion_answer(h, false, {echo})),
            std::string(R"({"id":"ID","object":"text_completion","created":7,"model":"m","system_fingerprint":"fp",)"
                        R"("choices":[{"index":0,"text":"aéb","logprobs":{"tokens":["b"],"token_logprobs":[-1.0],)"
                        R"("top_logprobs":[{"b":-1.0}],"text_offset":[2]},"finish_reason":"length"}],"usage":)") +
                kUsage + "}");
  const std::string begin =
      R"(data: {"id":"ID","object":"text_completion","created":7,"model":"m","system_fingerprint":"fp","choices":[)";
  EXPECT_EQ(feed(*completion_answer(head(), true, {})),
            begin + R"({"index":0,"text":"b","logprobs":null,"finish_reason":null}]})" + "\n\n" + begin +
                R"({"index":0,"text":"","logprobs":null,"finish_reason":"length"}]})" + "\n\ndata: [DONE]\n\n");
}

TEST(CompletionAnswer, ChoicesShareWhatTheyRepeat) {
  AnswerHead h = head();
  h.choices = 2;
  h.logprobs = true;
  const auto echo =
      std::make_shared<const Echo>(Echo{.text = "aé", .logprobs = {{"a", std::nanf("")}, {"é", -2, {{"é", -2.0F}}}}});
  for (const bool stream : {false, true}) {
    const auto answer = completion_answer(h, stream, {echo, echo});
    std::string out = answer->start();
    for (const uint32_t i : {0, 1}) {
      out += answer->add({.choice = i, .deltas = {{Kind::content, 0, "b"}}, .logprobs = {{"b", -1, {{"b", -1.0F}}}}});
      out += answer->end(i, end("length", "length"));
    }
    out += answer->finish();
    const std::string begin = stream ? R"("text":"aé","logprobs":{"tokens":["a","é"],"token_logprobs":[null,-2.0],)"
                                     : R"("text":"aéb","logprobs":{"tokens":["a","é","b"],)";
    const std::string ends = stream ? R"("text":"b","logprobs":{"tokens":["b"],"token_logprobs":[-1.0],)"
                                      R"("top_logprobs":[{"b":-1.0}],"text_offset":[2]})"
                                    : R"("top_logprobs":[null,{"é":-2.0},{"b":-1.0}],"text_offset":[0,1,2]})";
    for (const std::string& part : {begin, ends}) {
      const size_t first = out.find(part);
      ASSERT_NE(first, std::string::npos) << part << "\n" << out;
      EXPECT_NE(out.find(part, first + 1), std::string::npos) << "once for each choice";
    }
  }
}

// "NAME key=value …" of each event, with only the fields named.
std::string events(const std::string& stream, const std::vector<std::string>& fields) {
  std::string out;
  for (size_t at = 0; at < stream.size();) {
    const size_t line = stream.find('\n', at), end = stream.find("\n\n", at);
    EXPECT_EQ(stream.substr(at, 7), "event: ");
    const std::string name = stream.substr(at + 7, line - at - 7);
    EXPECT_EQ(stream.substr(line + 1, 6), "data: ");
    const json data = json::parse(stream.substr(line + 7, end - line - 7));
    EXPECT_EQ(data["type"], name);
    out += name;
    for (const std::string& field : fields) {
      if (data.contains(field)) out += " " + field + "=" + data[field].dump();
    }
    out += "\n";
    at = end + 2;
  }
  return out;
}

TEST(ResponsesAnswer, Streams) {
  const std::string text = run(*responses_answer(head(), true, json::object()));
  EXPECT_EQ(events(text, {"sequence_number", "output_index", "content_index", "delta", "text", "arguments"}),
            R"(response.created sequence_number=0
response.in_progress sequence_number=1
response.output_item.added sequence_number=2 output_index=0
response.content_part.added sequence_number=3 output_index=0 content_index=0
response.reasoning_text.delta sequence_number=4 output_index=0 content_index=0 delta="why"
response.reasoning_text.done sequence_number=5 output_index=0 content_index=0 text="why"
response.content_part.done sequence_number=6 output_index=0 content_index=0
response.output_item.done sequence_number=7 output_index=0
response.output_item.added sequence_number=8 output_index=1
response.content_part.added sequence_number=9 output_index=1 content_index=0
response.output_text.delta sequence_number=10 output_index=1 content_index=0 delta="a\n"
response.output_text.delta sequence_number=11 output_index=1 content_index=0 delta="\"b\""
response.output_text.done sequence_number=12 output_index=1 content_index=0 text="a\n\"b\""
response.content_part.done sequence_number=13 output_index=1 content_index=0
response.output_item.done sequence_number=14 output_index=1
response.output_item.added sequence_number=15 output_index=2
response.function_call_arguments.delta sequence_number=16 output_index=2 delta="{\"x\": "
response.function_call_arguments.delta sequence_number=17 output_index=2 delta="1}"
response.function_call_arguments.done sequence_number=18 output_index=2 arguments="{\"x\": 1}"
response.output_item.done sequence_number=19 output_index=2
response.completed sequence_number=20
)");
  const size_t last = text.rfind("data: ");
  const json done = json::parse(text.substr(last + 6));
  EXPECT_EQ(done["response"], json::parse(run(*responses_answer(head(), false, json::object()))))
      << "the last event has what a request without stream gets";
  EXPECT_EQ(done["response"]["output"].dump(),
            R"([{"id":"rs_1","type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"why"}],)"
            R"("status":"completed"},{"id":"msg_2","type":"message","status":"completed","role":"assistant","content":)"
            R"([{"type":"output_text","text":"a\n\"b\"","annotations":[],"logprobs":[]}]},{"id":"fc_3",)"
            R"("type":"function_call","status":"completed","call_id":"call_4","name":"f","arguments":"{\"x\": 1}"}])");
}

TEST(ResponsesAnswer, SaysThatItIsIncomplete) {
  const json whole = json::parse(run(*responses_answer(head(), false, json::object()), end("length", "length")));
  EXPECT_EQ(whole["status"], "incomplete");
  EXPECT_EQ(whole["incomplete_details"].dump(), R"({"reason":"max_output_tokens"})");
  EXPECT_EQ(whole["output"][2]["status"], "incomplete");
  EXPECT_EQ(whole["output"][1]["status"], "completed");
}

TEST(MessagesAnswer, Streams) {
  EXPECT_EQ(events(run(*messages_answer(head(), true)), {"index", "content_block", "delta", "usage"}),
            R"(message_start
ping
content_block_start index=0 content_block={"type":"thinking","thinking":"","signature":""}
content_block_delta index=0 delta={"type":"thinking_delta","thinking":"why"}
content_block_delta index=0 delta={"type":"signature_delta","signature":""}
content_block_stop index=0
content_block_start index=1 content_block={"type":"text","text":""}
content_block_delta index=1 delta={"type":"text_delta","text":"a\n"}
content_block_delta index=1 delta={"type":"text_delta","text":"\"b\""}
content_block_stop index=1
content_block_start index=2 content_block={"type":"tool_use","id":"toolu_1","name":"f","input":{}}
content_block_delta index=2 delta={"type":"input_json_delta","partial_json":"{\"x\": "}
content_block_delta index=2 delta={"type":"input_json_delta","partial_json":"1}"}
content_block_stop index=2
message_delta delta={"stop_reason":"tool_use","stop_sequence":null} )"
            R"(usage={"input_tokens":6,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":5}
message_stop
)");
}

TEST(MessagesAnswer, ComesWhole) {
  EXPECT_EQ(run(*messages_answer(head(), false)),
            R"({"id":"ID","type":"message","role":"assistant","model":"m","content":[)"
            R"({"type":"thinking","thinking":"why","signature":""},{"type":"text","text":"a\n\"b\""},)"
            R"({"type":"tool_use","id":"toolu_1","name":"f","input":{"x":1}}],"stop_reason":"tool_use",)"
            R"("stop_sequence":null,"usage":{"input_tokens":6,"cache_creation_input_tokens":0,)"
            R"("cache_read_input_tokens":4,"output_tokens":5}})");
}

TEST(ErrorBodies, HaveTheirProtocolsForm) {
  const ApiError error{.status = 400, .message = "m", .param = "p", .code = "c"};
  EXPECT_EQ(openai_error(error), R"({"error":{"message":"m","type":"invalid_request_error","param":"p","code":"c"}})");
  EXPECT_EQ(anthropic_error(error), R"({"type":"error","error":{"type":"invalid_request_error","message":"m"}})");
  const ApiError full =
      rejected({.why = Rejection::Why::queue_full, .status = Status(Code::usage, "full"), .retry_after_ms = 1500});
  EXPECT_EQ(full.status, 429);
  EXPECT_EQ(full.retry_after_ms, 1500);
  const ApiError draining = rejected({.why = Rejection::Why::draining, .status = Status(Code::usage, "ends")});
  EXPECT_EQ(draining.status, 503);
  EXPECT_EQ(
      openai_error(rejected({.why = Rejection::Why::too_long,
                             .status = Status(Code::usage, "long"),
                             .retry_after_ms = 0,
                             .prompt_tokens = 9,
                             .context_tokens = 8})),
      R"({"error":{"message":"long","type":"invalid_request_error","param":null,"code":"context_length_exceeded",)"
      R"("n_prompt_tokens":9,"n_ctx":8}})");
}

}  // namespace
}  // namespace switchyard::server
