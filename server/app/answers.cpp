// SPDX-License-Identifier: Apache-2.0
// The paths that generate text.
#include <cmath>
#include <utility>

#include "core/serve/score.h"
#include "server/app/application.h"
#include "server/app/generating.h"

namespace switchyard::server {

using json = nlohmann::ordered_json;

AnswerHead Application::head(const char* prefix, const Generation& g) const {
  return {.id = options_.new_id(prefix),
          .model = options_.model_names[0] == "*" ? g.model : options_.model_names[0],
          .fingerprint = fmt::format("swy-{:016x}", service_.loaded().model->fingerprint()),
          .created = options_.now(),
          .include_usage = g.include_usage,
          .logprobs = g.logprobs,
          .new_id = options_.new_id};
}

Refusal Application::submit(const Generation& g, const std::vector<int32_t>& ids,
                            const std::vector<uint32_t>& checkpoints, const Constraints& constraints,
                            std::vector<GeneratingChoice>& to) {
  for (uint32_t i = 0; i < g.choices; ++i) {
    GenerationRequest r{.prompt = ids, .text = g.text};
    if (r.text.max_tokens == 0) r.text.max_tokens = service_.loaded().model->context();
    if (r.text.sampling.seed) *r.text.sampling.seed += i;  // choices differ, and can be repeated
    r.priority = g.priority;
    r.checkpoints = checkpoints;
    r.cache_scope = g.cache_scope;
    r.cache = g.cache;
    if (constraints) {
      r.constraint = constraints();
      r.text.allow_regex.clear();  // it is a part of the constraint
    }
    Admission admitted = service_.submit(std::move(r));
    if (!admitted.ok()) return rejected(admitted.rejection);
    to.emplace_back().ticket = std::move(admitted.ticket);
  }
  return {};
}

namespace {

void name_stream(HttpReply& reply) {
  reply.type = "text/event-stream";
  reply.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
}

HttpReply reply_with(std::unique_ptr<Generating> work) {
  HttpReply reply;
  if (work->stream()) name_stream(reply);
  reply.pending = std::move(work);
  return reply;
}

// An answer to which nothing is generated.
HttpReply echo_reply(Answer& answer, uint32_t choices, bool stream) {
  HttpReply reply;
  if (stream) name_stream(reply);
  reply.body = answer.start();
  for (uint32_t i = 0; i < choices; ++i)
    reply.body += answer.end(i, {.reason = "length", .stopped = "length", .usage = {}});
  reply.body += answer.finish();
  return reply;
}

std::unique_ptr<Answer> answer_of(Protocol protocol, AnswerHead head, bool stream, const json& repeated) {
  if (protocol == Protocol::messages) return messages_answer(std::move(head), stream);
  if (protocol == Protocol::responses) return responses_answer(std::move(head), stream, repeated);
  return chat_answer(std::move(head), stream);
}

const char* id_prefix(Protocol protocol) {
  if (protocol == Protocol::messages) return "msg_";
  return protocol == Protocol::responses ? "resp_" : "chatcmpl-";
}

}  // namespace

// A request that was read. Of the HTTP request it keeps what replies need.
struct Application::ChatTask {
  HttpRequest request;
  ChatRequest chat;
  ChatPrompt prompt;
  Protocol protocol;
  json repeated;
};

struct Application::CompletionTask {
  HttpRequest request;
  CompletionRequest completion;
  std::vector<std::vector<int32_t>> ids;  // of each prompt
};

template <class Task>
HttpReply Application::begin(HttpReply (Application::*how)(const Task&, const GoesOn*), Task task) {
  HttpReply reply = (this->*how)(task, nullptr);
  if (!reply.work) return reply;
  reply.work = [this, how, task = std::make_shared<const Task>(std::move(task))](const GoesOn& goes_on) {
    return (this->*how)(*task, &goes_on);
  };
  return reply;
}

namespace {

HttpRequest without_body(const HttpRequest& request) {
  HttpRequest head = request;
  std::string().swap(head.body);
  return head;
}

HttpReply is_missing(bool computes = false) {
  HttpReply reply;
  reply.work = [](const GoesOn&) { return HttpReply(); };  // Application::begin sets what it is
  reply.computes = computes;
  return reply;
}

}  // namespace

HttpReply Application::answer_chat(const HttpRequest& request, ChatRequest chat, Protocol protocol,
                                   const json& repeated) {
  if (Refusal no = check_model(chat.generation.model)) return error_reply(request, *no);
  ChatPrompt prompt;
  if (Refusal no = model_.prompt(chat, prompt)) return error_reply(request, *no);
  return begin(&Application::begin_chat,
               ChatTask{without_body(request), std::move(chat), std::move(prompt), protocol, repeated});
}

HttpReply Application::begin_chat(const ChatTask& task, const GoesOn* work) {
  const auto& [request, chat, prompt, protocol, repeated] = task;
  const Generation& g = chat.generation;
  Compiling compiling{work != nullptr};
  Constraints constraints;
  if (Refusal no = constrain_chat(chat, prompt, compiling, constraints)) return error_reply(request, *no);
  if (compiling.missing) return is_missing();
  std::vector<GeneratingChoice> choices;
  if (Refusal no = submit(g, prompt.ids, prompt.checkpoints, constraints, choices)) return error_reply(request, *no);
  for (GeneratingChoice& choice : choices) {
    choice.parser = std::make_unique<OutputParser>(prompt.form);
    choice.one_call = prompt.form.tools && !chat.parallel_tool_calls;
  }
  AnswerHead h = head(id_prefix(protocol), g);
  h.choices = g.choices;
  h.prompt_tokens = static_cast<uint32_t>(prompt.ids.size());
  HttpReply reply =
      reply_with(std::make_unique<Generating>(answer_of(protocol, std::move(h), g.stream, repeated), std::move(choices),
                                              model_.tokenizer(), protocol, g.stream, g.logprobs));
  name_ignored(g, reply);
  return reply;
}

HttpReply Application::chat(const HttpRequest& request) {
  json body;
  ChatRequest chat;
  if (Refusal no = read_body(request, body)) return error_reply(request, *no);
  if (Refusal no = parse_chat(body, options_.defaults, chat)) return error_reply(request, *no);
  return answer_chat(request, std::move(chat), Protocol::chat);
}

HttpReply Application::responses(const HttpRequest& request) {
  json body, repeated;
  ChatRequest chat;
  if (Refusal no = read_body(request, body)) return error_reply(request, *no);
  if (Refusal no = parse_responses(body, options_.defaults, chat, repeated)) return error_reply(request, *no);
  return answer_chat(request, std::move(chat), Protocol::responses, repeated);
}

HttpReply Application::messages(const HttpRequest& request) {
  json body;
  ChatRequest chat;
  if (Refusal no = read_body(request, body)) return error_reply(request, *no);
  if (Refusal no = parse_anthropic(body, options_.defaults, false, chat)) return error_reply(request, *no);
  return answer_chat(request, std::move(chat), Protocol::messages);
}

HttpReply Application::completions(const HttpRequest& request) {
  json body;
  CompletionRequest completion;
  if (Refusal no = read_body(request, body)) return error_reply(request, *no);
  if (Refusal no = parse_completion(body, options_.defaults, completion)) return error_reply(request, *no);
  const Generation& g = completion.generation;
  if (Refusal no = check_model(g.model)) return error_reply(request, *no);
  if (completion.prompts.size() * g.choices > kMostPrompts) {
    return error_reply(
        request, wrong_field("n", fmt::format("'n' times the number of prompts must be at most {}", kMostPrompts)));
  }
  std::vector<std::vector<int32_t>> ids;
  if (Refusal no = all_prompt_ids(completion, ids)) return error_reply(request, *no);
  return begin(&Application::begin_completions,
               CompletionTask{without_body(request), std::move(completion), std::move(ids)});
}

namespace {

// Prompt tokens of one request whose log-probabilities are computed: others of its kind wait for it.
constexpr uint64_t kMostScored = 1u << 16;
// Log-probabilities of prompts in one reply, each choice's own and its most likely ones counted.
constexpr uint64_t kMostEchoed = 1u << 19;

uint64_t tokens_of(const std::vector<std::vector<int32_t>>& prompts) {
  uint64_t tokens = 0;
  for (const auto& ids : prompts) tokens += ids.size();
  return tokens;
}

Refusal check_echo(const CompletionRequest& completion, uint64_t tokens) {
  const Generation& g = completion.generation;
  if (!completion.echo || !g.logprobs) return {};
  if (tokens > kMostScored) {
    return wrong_field("prompt", fmt::format("prompts with 'echo' and 'logprobs' may have {} tokens in all, not {}",
                                             kMostScored, tokens));
  }
  const uint64_t echoed = tokens * g.choices * (1 + g.text.sampling.top_logprobs);
  if (echoed <= kMostEchoed) return {};
  return wrong_field("prompt", fmt::format("with 'echo', the tokens of the prompts times 'n' times (1 + 'logprobs') "
                                           "may be at most {}, not {}; ask for less at a time",
                                           kMostEchoed, echoed));
}

}  // namespace

Refusal Application::prompt_ids(const CompletionRequest::Prompt& prompt, std::vector<int32_t>& to) {
  if (const auto* ids = std::get_if<std::vector<int32_t>>(&prompt)) {
    to = *ids;
  } else {
    auto encoded = model_.tokenizer().encode(std::get<std::string>(prompt));
    if (!encoded.ok()) return failed(encoded.status());
    to = std::move(*encoded);
  }
  if (to.empty()) return wrong_field("prompt", "'prompt' has no tokens");
  if (const Rejection no = service_.check_prompt(to); no.why != Rejection::Why::none) return rejected(no);
  return {};
}

Refusal Application::all_prompt_ids(const CompletionRequest& completion, std::vector<std::vector<int32_t>>& to) {
  for (const auto& prompt : completion.prompts) {
    if (Refusal no = prompt_ids(prompt, to.emplace_back())) return no;
  }
  return check_echo(completion, tokens_of(to));
}

Refusal Application::echo_prompt(const CompletionRequest& completion, const CompletionRequest::Prompt& prompt,
                                 const std::vector<int32_t>& ids, const GoesOn* work, Echo& to) {
  const Tokenizer& tokenizer = model_.tokenizer();
  const auto* text = std::get_if<std::string>(&prompt);
  to.text = text != nullptr ? *text : tokenizer.decode(ids);
  if (!completion.generation.logprobs) return {};
  auto scores =
      score_text(service_, ids, completion.generation.text.sampling.top_logprobs, work != nullptr ? *work : GoesOn());
  if (!scores.ok()) {
    const Status& status = scores.status();
    const bool later = status.code() == Code::out_of_device_memory || status.code() == Code::cancelled;
    return later ? overloaded(std::string(status.message()), 1000) : failed(status);
  }
  to.logprobs.push_back({std::string(tokenizer.piece(ids.front())), std::nanf("")});
  for (size_t i = 0; i < scores->size(); ++i) {
    const TokenScore& score = (*scores)[i];
    TokenLogprob token{std::string(tokenizer.piece(ids[i + 1])), score.logprob};
    for (const auto& [id, logprob] : score.top) token.top.emplace_back(std::string(tokenizer.piece(id)), logprob);
    to.logprobs.push_back(std::move(token));
  }
  return {};
}

// All prompts are computed before any is submitted: none waits for a session that another one of the same request has.
HttpReply Application::begin_completions(const CompletionTask& task, const GoesOn* work) {
  const auto& [request, completion, ids] = task;
  const Generation& g = completion.generation;
  const bool scores = completion.echo && g.logprobs;
  Compiling compiling{work != nullptr};
  Constraints constraints;
  if (Refusal no = constrain(g, Reasoning::none, {}, compiling, constraints)) return error_reply(request, *no);
  if (compiling.missing || (scores && work == nullptr)) return is_missing(scores);
  AnswerHead h = head("cmpl-", g);
  h.choices = static_cast<uint32_t>(completion.prompts.size()) * g.choices;
  h.prompt_tokens = static_cast<uint32_t>(tokens_of(ids));
  std::vector<std::shared_ptr<const Echo>> echoes;
  for (size_t i = 0; completion.echo && i < ids.size(); ++i) {
    const auto echo = std::make_shared<Echo>();
    if (Refusal no = echo_prompt(completion, completion.prompts[i], ids[i], work, *echo)) {
      return error_reply(request, *no);
    }
    echoes.insert(echoes.end(), g.choices, echo);
  }
  std::vector<GeneratingChoice> choices;
  for (size_t i = 0; completion.generates && i < ids.size(); ++i) {
    if (Refusal no = submit(g, ids[i], {}, constraints, choices)) return error_reply(request, *no);
  }
  const uint32_t count = h.choices;
  auto answer = completion_answer(std::move(h), g.stream, std::move(echoes));
  HttpReply reply;
  if (completion.generates) {
    reply = reply_with(std::make_unique<Generating>(std::move(answer), std::move(choices), model_.tokenizer(),
                                                    Protocol::completions, g.stream, g.logprobs));
  } else {
    reply = echo_reply(*answer, count, g.stream);
  }
  name_ignored(g, reply);
  return reply;
}

}  // namespace switchyard::server
