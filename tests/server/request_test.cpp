// SPDX-License-Identifier: Apache-2.0
// What each protocol's requests are read as, and why wrong ones are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "server/protocol/requests.h"

namespace switchyard::server {
namespace {

using json = nlohmann::ordered_json;
using ::testing::ElementsAre;

json body(const std::string& text) { return *read_ordered_json(text, "body"); }

// A chat request with these fields besides its messages.
std::string chat(const std::string& fields) {
  return R"({"messages":[{"role":"user","content":"hi"}])" + (fields.empty() ? "" : "," + fields) + "}";
}

ChatRequest parsed(const std::string& text) {
  ChatRequest r;
  const Refusal refusal = parse_chat(body(text), {}, r);
  EXPECT_FALSE(refusal) << text << ": " << refusal->message;
  return r;
}

TEST(ChatRequest, ReadsEveryField) {
  const ChatRequest r = parsed(chat(
      R"("model":"m","max_tokens":5,"max_completion_tokens":7,"temperature":0.5,"top_p":0.25,"n":3,"stop":["a","","b"],
      "seed":-1,"stream":true,"stream_options":{"include_usage":true},"logprobs":true,"top_logprobs":2,
      "logit_bias":{"7":-100,"3":2.5,"07":1},"presence_penalty":1,"frequency_penalty":-1,"top_k":40,"min_p":0.125,
      "repetition_penalty":1.5,"allow_regex":"a+","ignore_eos":true,"priority":-2,"cache_salt":"s","cache_prompt":false,
      "reasoning_effort":"none","chat_template_kwargs":{"x":[1]},"user":"u","metadata":{},"odd":1)"));
  const Generation& g = r.generation;
  EXPECT_EQ(g.model, "m");
  EXPECT_EQ(g.text.max_tokens, 7) << "the newer name counts";
  EXPECT_EQ(g.text.sampling.temperature, 0.5F);
  EXPECT_EQ(g.text.sampling.top_p, 0.25F);
  EXPECT_EQ(g.text.sampling.top_k, 40);
  EXPECT_EQ(g.text.sampling.min_p, 0.125F);
  EXPECT_EQ(g.text.sampling.repetition_penalty, 1.5F);
  EXPECT_EQ(g.text.sampling.presence_penalty, 1);
  EXPECT_EQ(g.text.sampling.frequency_penalty, -1);
  EXPECT_EQ(g.text.sampling.seed, UINT64_MAX);
  EXPECT_TRUE(g.text.sampling.logprob);
  EXPECT_EQ(g.text.sampling.top_logprobs, 2);
  ASSERT_EQ(g.text.sampling.biases.size(), 2);
  EXPECT_EQ(g.text.sampling.biases[0].id, 3);
  EXPECT_EQ(g.text.sampling.biases[1].bias, -100);
  EXPECT_THAT(g.text.stops, ElementsAre("a", "b"));
  EXPECT_EQ(g.text.allow_regex, "a+");
  EXPECT_TRUE(g.text.ignore_eos);
  EXPECT_EQ(g.choices, 3);
  EXPECT_TRUE(g.stream && g.include_usage && g.logprobs);
  EXPECT_EQ(g.priority, -2);
  EXPECT_EQ(g.cache_scope, "s");
  EXPECT_FALSE(g.cache);
  EXPECT_THAT(g.ignored, ElementsAre("odd"));
  EXPECT_EQ(r.template_arguments.dump(), R"({"reasoning_effort":"none","enable_thinking":false,"x":[1]})");
}

TEST(ChatRequest, TakesTheServersDefaults) {
  Defaults defaults;
  defaults.text.sampling.temperature = 0.125F;
  defaults.text.max_tokens = 9;
  ChatRequest r;
  ASSERT_FALSE(parse_chat(body(chat(R"("top_p":null)")), defaults, r));
  EXPECT_EQ(r.generation.text.sampling.temperature, 0.125F);
  EXPECT_EQ(r.generation.text.max_tokens, 9);
}

struct Wrong {
  const char* text;
  const char* param;
  const char* message;
};

TEST(ChatRequest, NamesTheFieldThatIsWrong) {
  const Wrong wrongs[] = {
      {R"([])", "", "the request's body must be a JSON object, not []"},
      {R"({})", "messages", "'messages' must be an array of messages, not null"},
      {R"({"messages":[]})", "messages", "'messages' must be an array with at least one message, not []"},
      {R"({"messages":[1]})", "messages[0]", "'messages[0]' must be an object, not 1"},
      {R"({"messages":[{"role":"boss"}]})", "messages[0].role",
       "'messages[0].role' must be system, developer, user, assistant or tool, not \"boss\""},
      {R"({"messages":[{"role":"user","content":7}]})", "messages[0].content",
       "'messages[0].content' must be a string or an array of parts, not 7"},
      {R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]})", "messages[0].content[0]",
       "'messages[0].content[0]' is not a text part; this model reads text only"},
      {R"({"messages":[{"role":"user"}],"temperature":"hot"})", "temperature",
       "'temperature' must be a number from 0 to 100, not \"hot\""},
      {R"({"messages":[{"role":"user"}],"top_p":1.5})", "top_p", "'top_p' must be a number from 0 to 1, not 1.5"},
      {R"({"messages":[{"role":"user"}],"n":0})", "n", "'n' must be a whole number from 1 to 128, not 0"},
      {R"({"messages":[{"role":"user"}],"max_tokens":1.5})", "max_tokens",
       "'max_tokens' must be a whole number from 1 to 4294967295, not 1.5"},
      {R"({"messages":[{"role":"user"}],"seed":18446744073709551615})", "seed",
       "'seed' must be a whole number from -9223372036854775808 to 9223372036854775807, not 18446744073709551615"},
      {R"({"messages":[{"role":"user"}],"stop":[1]})", "stop",
       "'stop' must be a string or an array of at most 64 strings, not [1]"},
      {R"({"messages":[{"role":"user"}],"stream":"yes"})", "stream", "'stream' must be true or false, not \"yes\""},
      {R"({"messages":[{"role":"user"}],"top_logprobs":3})", "logprobs",
       "'logprobs' must be true where 'top_logprobs' is given, not false"},
      {R"({"messages":[{"role":"user"}],"logit_bias":{"x":1}})", "logit_bias",
       "'logit_bias' must be an object of token ids and numbers from -100 to 100, not an object"},
      {R"({"messages":[{"role":"user"}],"tools":[{"type":"function"}]})", "tools[0].function",
       "'tools[0].function' must be an object; tools are functions here, not null"},
      {R"({"messages":[{"role":"user"}],"tool_choice":"required"})", "tool_choice",
       "'tool_choice' asks for a call, and 'tools' has no function"},
      {R"({"messages":[{"role":"user"}],"tools":[{"type":"function","function":{"name":"f"}}],
          "tool_choice":{"type":"function","function":{"name":"g"}}})",
       "tool_choice", "'tool_choice' names the function 'g', which 'tools' lacks"},
      {R"({"messages":[{"role":"user"}],"response_format":{"type":"xml"}})", "response_format.type",
       "'response_format.type' must be text, json_object or json_schema, not \"xml\""},
      {R"({"messages":[{"role":"user"}],"response_format":{"type":"json_schema","json_schema":{"name":"n"}}})",
       "response_format.json_schema.schema", "'response_format.json_schema.schema' must be a JSON Schema, not null"},
      {R"({"messages":[{"role":"user"}],"guided_regex":"a","response_format":{"type":"json_object"}})",
       "response_format", "'guided_regex' and 'response_format' exclude each other"},
      {R"({"messages":[{"role":"user"}],"allow_regex":"a","guided_choice":["b"]})", "guided_choice",
       "'allow_regex' and 'guided_choice' exclude each other"},
      {R"({"messages":[{"role":"user"}],"guided_choice":[1]})", "guided_choice",
       "'guided_choice' must be an array of strings, not [1]"},
      {R"({"messages":[{"role":"user"}],"structured_outputs":{"structural_tag":"x"}})",
       "structured_outputs.structural_tag",
       "'structured_outputs.structural_tag' is not supported; 'structured_outputs' takes json, json_object, regex, "
       "choice and grammar"},
      {R"({"messages":[{"role":"user"}],"sampling":"moon"})", "sampling",
       "'sampling' must be auto, fused, candidates or logits, not 'moon'"},
  };
  for (const Wrong& wrong : wrongs) {
    ChatRequest r;
    const Refusal refusal = parse_chat(body(wrong.text), {}, r);
    ASSERT_TRUE(refusal) << wrong.text;
    EXPECT_EQ(refusal->message, wrong.message);
    EXPECT_EQ(refusal->param, wrong.param);
    EXPECT_EQ(refusal->status, 400);
  }
}

TEST(ChatRequest, MessagesGetTheFormOfTemplates) {
  const ChatRequest r = parsed(R"({"messages":[
    {"role":"developer","content":"one"},
    {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
    {"role":"system","content":"two"},
    {"role":"assistant","content":null,"reasoning":"why","tool_calls":[
      {"id":"c1","type":"function","function":{"name":"f","arguments":"{\"z\": 1, \"a\": [2]}"}},
      {"id":"c2","type":"function","function":{"name":"g","arguments":"{cut"}}]},
    {"role":"tool","tool_call_id":"c1","content":"3"}]})");
  EXPECT_EQ(r.messages.dump(),
            R"([{"role":"system","content":"one\n\ntwo"},{"role":"user","content":"ab"},)"
            R"({"role":"assistant","content":"","reasoning_content":"why","tool_calls":[)"
            R"({"id":"c1","type":"function","function":{"name":"f","arguments":{"z":1,"a":[2]}}},)"
            R"({"id":"c2","type":"function","function":{"name":"g","arguments":{"arguments":"{cut"}}}]},)"
            R"({"role":"tool","content":"3","tool_call_id":"c1"}])");
}

TEST(CompletionRequest, TakesTextsAndIds) {
  const auto count = [](const std::string& prompt) {
    CompletionRequest r;
    const Refusal refusal = parse_completion(body(R"({"prompt":)" + prompt + "}"), {}, r);
    return refusal ? refusal->message : std::to_string(r.prompts.size());
  };
  EXPECT_EQ(count("\"a\""), "1");
  EXPECT_EQ(count("[1,2,3]"), "1");
  EXPECT_EQ(count("[\"a\",\"b\"]"), "2");
  EXPECT_EQ(count("[[1],[2,3]]"), "2");
  for (const char* wrong : {"[]", "7", "[1,\"a\"]", "[-1]"}) {
    EXPECT_EQ(count(wrong),
              std::string("'prompt' must be a string, an array of token ids, or an array of either, not ") + wrong);
  }
  CompletionRequest r;
  ASSERT_FALSE(parse_completion(body(R"({"prompt":"a","logprobs":0,"echo":false})"), {}, r));
  EXPECT_TRUE(r.generation.logprobs);
  EXPECT_EQ(r.generation.text.max_tokens, 16) << "the protocol's default";
  EXPECT_EQ(parse_completion(body(R"({"prompt":"a","best_of":2})"), {}, r)->status, 501);
  EXPECT_EQ(parse_completion(body(R"({"prompt":"a","max_tokens":0})"), {}, r)->param, "max_tokens");
  ASSERT_FALSE(parse_completion(body(R"({"prompt":"a","max_tokens":0,"echo":true,"logprobs":1})"), {}, r));
  EXPECT_FALSE(r.generates);
}

TEST(ResponsesRequest, ItemsBecomeMessages) {
  ChatRequest r;
  json repeated;
  const Refusal refusal = parse_responses(body(R"({"instructions":"be brief","input":[
      {"role":"user","content":[{"type":"input_text","text":"q"}]},
      {"type":"reasoning","id":"rs","summary":[],"content":[{"type":"reasoning_text","text":"r"}]},
      {"type":"message","role":"assistant","content":[{"type":"output_text","text":"t"}]},
      {"type":"function_call","call_id":"c","name":"f","arguments":"{}"},
      {"type":"function_call_output","call_id":"c","output":"o"}],
      "tools":[{"type":"function","name":"f","parameters":{"type":"object"}},{"type":"web_search"}],
      "max_output_tokens":4,"reasoning":{"effort":"high"},"tool_choice":{"type":"function","name":"f"},
      "text":{"format":{"type":"json_schema","name":"n","schema":{}}}})"),
                                          {}, r, repeated);
  ASSERT_FALSE(refusal) << refusal->message;
  EXPECT_EQ(r.messages.dump(), R"([{"role":"system","content":"be brief"},{"role":"user","content":"q"},)"
                               R"({"role":"assistant","content":"t","reasoning_content":"r","tool_calls":[)"
                               R"({"id":"c","type":"function","function":{"name":"f","arguments":{}}}]},)"
                               R"({"role":"tool","content":"o","tool_call_id":"c"}])");
  EXPECT_EQ(r.tools.dump(), R"([{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])");
  EXPECT_THAT(r.generation.ignored, ElementsAre("tools[1]"));
  EXPECT_EQ(r.generation.text.max_tokens, 4);
  EXPECT_EQ(r.tool_name, "f");
  ASSERT_TRUE(r.generation.format);
  EXPECT_EQ(r.generation.format->kind, ConstraintKind::json_schema);
  EXPECT_EQ(r.generation.format->text, "{}");
  EXPECT_EQ(r.generation.format->field, "text.format.schema");
  EXPECT_EQ(repeated["tool_choice"].dump(), R"({"type":"function","name":"f"})");
  EXPECT_EQ(parse_responses(body(R"({"input":"a","previous_response_id":"r"})"), {}, r, repeated)->status, 501);
  EXPECT_EQ(parse_responses(body(R"({"input":7})"), {}, r, repeated)->message,
            "'input' must be a string or an array of items, not 7");
}

TEST(ChatRequest, FormatsHaveSeveralNames) {
  struct Case {
    const char* fields;
    ConstraintKind kind;
    const char* text;
    const char* field;
  };
  const Case cases[] = {
      {R"("response_format":{"type":"json_object"})", ConstraintKind::json_object, "", "response_format"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"type":"null"}}})",
       ConstraintKind::json_schema, R"({"type":"null"})", "response_format.json_schema.schema"},
      {R"("guided_json":"{}")", ConstraintKind::json_schema, "{}", "guided_json"},
      {R"("guided_regex":"a+")", ConstraintKind::regex, "a+", "guided_regex"},
      {R"("guided_grammar":"root ::= \"a\"")", ConstraintKind::gbnf, "root ::= \"a\"", "guided_grammar"},
      {R"("structured_outputs":{"json":{"type":"null"}})", ConstraintKind::json_schema, R"({"type":"null"})",
       "structured_outputs.json"},
      {R"("structured_outputs":{"grammar":"start: \"a\""})", ConstraintKind::lark, "start: \"a\"",
       "structured_outputs.grammar"},
      {R"("structured_outputs":{"choice":["a","b"]})", ConstraintKind::choice, R"(["a","b"])",
       "structured_outputs.choice"},
      {R"("structured_outputs":{"json_object":true})", ConstraintKind::json_object, "",
       "structured_outputs.json_object"},
  };
  for (const Case& one : cases) {
    ChatRequest r;
    const Refusal refusal =
        parse_chat(body(R"({"messages":[{"role":"user","content":"q"}],)" + std::string(one.fields) + "}"), {}, r);
    ASSERT_FALSE(refusal) << one.fields << refusal->message;
    ASSERT_TRUE(r.generation.format) << one.fields;
    EXPECT_EQ(r.generation.format->kind, one.kind) << one.fields;
    EXPECT_EQ(r.generation.format->text, one.text);
    EXPECT_EQ(r.generation.format->field, one.field);
  }
}

TEST(AnthropicRequest, BlocksBecomeMessages) {
  ChatRequest r;
  const Refusal refusal = parse_anthropic(body(R"({"model":"m","max_tokens":5,"system":[{"type":"text","text":"s"}],
      "messages":[{"role":"user","content":"q"},
        {"role":"assistant","content":[{"type":"thinking","thinking":"r","signature":""},{"type":"text","text":"t"},
          {"type":"tool_use","id":"c","name":"f","input":{"b":1,"a":2}}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"o"}]},
          {"type":"text","text":"go on"}]}],
      "tools":[{"name":"f","description":"d","input_schema":{"type":"object"}}],
      "tool_choice":{"type":"any","disable_parallel_tool_use":true},"stop_sequences":["x"],
      "thinking":{"type":"disabled"},"top_k":3,"stream":true})"),
                                          {}, false, r);
  ASSERT_FALSE(refusal) << refusal->message;
  EXPECT_EQ(r.messages.dump(),
            R"([{"role":"system","content":"s"},{"role":"user","content":"q"},)"
            R"({"role":"assistant","content":"t","reasoning_content":"r","tool_calls":[)"
            R"({"id":"c","type":"function","function":{"name":"f","arguments":{"b":1,"a":2}}}]},)"
            R"({"role":"tool","content":"o","tool_call_id":"c"},{"role":"user","content":"go on"}])");
  EXPECT_EQ(r.tools.dump(),
            R"([{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}}])");
  EXPECT_EQ(r.tool_choice, ToolChoice::required);
  EXPECT_FALSE(r.parallel_tool_calls);
  EXPECT_EQ(r.template_arguments.dump(), R"({"enable_thinking":false})");
  EXPECT_THAT(r.generation.text.stops, ElementsAre("x"));
  const std::string least = R"({"messages":[{"role":"user","content":"q"}]})";
  EXPECT_EQ(parse_anthropic(body(least), {}, false, r)->param, "max_tokens");
  ChatRequest strict;
  ASSERT_FALSE(parse_anthropic(body(R"({"max_tokens":5,"messages":[{"role":"user","content":"x"}],"tools":[
      {"name":"a","input_schema":{},"strict":true},{"name":"b","input_schema":{},"strict":false}]})"),
                               {}, false, strict));
  EXPECT_EQ(strict.tools[0]["function"]["strict"], true);
  EXPECT_FALSE(strict.tools[1]["function"].contains("strict"));
  EXPECT_FALSE(parse_anthropic(body(least), {}, true, r));
}

}  // namespace
}  // namespace switchyard::server
