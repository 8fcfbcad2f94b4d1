// SPDX-License-Identifier: Apache-2.0
// The paths that answer at once.
#include "server/app/application.h"
#include "server/page/page.h"
#include "server/protocol/collected.h"

namespace switchyard::server {

using json = nlohmann::ordered_json;

HttpReply Application::page(const HttpRequest& request) {
  if (!options_.page) return error_reply(request, not_found("there is no page here"));
  HttpReply reply{.type = "text/html; charset=utf-8"};
  reply.body = page_html();
  reply.headers = {{"Cache-Control", "no-cache"},
                   {"X-Content-Type-Options", "nosniff"},
                   {"Referrer-Policy", "no-referrer"},
                   // The page has no external resources, and model output cannot bring any in.
                   {"Content-Security-Policy",
                    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; "
                    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}};
  return reply;
}

HttpReply Application::openapi(const HttpRequest& /*request*/) {
  HttpReply reply;
  reply.body = openapi_json();
  return reply;
}

// A process that answers but computes nothing is not well.
HttpReply Application::health(const HttpRequest& request) {
  constexpr uint64_t kStuckSeconds = 300;
  const ServiceStats stats = service_.stats();
  const uint64_t now_ns = Os::real().now_ns();
  const uint64_t idle = stats.last_step_ns == 0 || now_ns < stats.last_step_ns ? 0 : now_ns - stats.last_step_ns;
  if (stats.running > 0 && idle > kStuckSeconds * 1'000'000'000) {
    return error_reply(request, overloaded(fmt::format("no step has ended for {} seconds", idle / 1'000'000'000), 0));
  }
  HttpReply reply;
  reply.body = R"({"status":"ok"})";
  return reply;
}

HttpReply Application::ready(const HttpRequest& request) {
  if (draining_) return error_reply(request, overloaded("the server is stopping", 1000));
  return health(request);
}

HttpReply Application::metrics(const HttpRequest& /*request*/) {
  HttpReply reply{.type = "text/plain; version=0.0.4; charset=utf-8"};
  std::map<std::pair<std::string, int>, uint64_t> counts;
  {
    const std::lock_guard lock(counts_mutex_);
    counts = counts_;
  }
  reply.body = metrics_text(service_.stats(), options_.model_names[0], counts);
  return reply;
}

HttpReply Application::models(const HttpRequest& request) {
  constexpr std::string_view kOne = "/v1/models/";
  const auto describe = [&](const std::string& name) {
    return json{{"id", name},
                {"object", "model"},
                {"created", options_.now()},
                {"owned_by", "switchyard"},
                {"max_model_len", service_.loaded().model->context()}};
  };
  HttpReply reply;
  if (std::string_view(request.path).starts_with(kOne)) {
    const std::string name = request.path.substr(kOne.size());
    if (Refusal no = check_model(name)) return error_reply(request, *no);
    reply.body = to_text(describe(name));
    return reply;
  }
  json list = json::array();
  for (const std::string& name : options_.model_names) {
    if (name != "*") list.push_back(describe(name));
  }
  reply.body = to_text({{"object", "list"}, {"data", list}});
  return reply;
}

HttpReply Application::count_tokens(const HttpRequest& request) {
  json body;
  ChatRequest chat;
  if (Refusal no = read_body(request, body)) return error_reply(request, *no);
  if (Refusal no = parse_anthropic(body, options_.defaults, true, chat)) return error_reply(request, *no);
  ChatPrompt prompt;
  if (Refusal no = model_.prompt(chat, prompt)) return error_reply(request, *no);
  HttpReply reply;
  reply.body = to_text({{"input_tokens", prompt.ids.size()}});
  return reply;
}

// {"prompt": text} or {"content": text}, or a conversation as in chat completions.
HttpReply Application::tokenize(const HttpRequest& request) {
  json body;
  if (Refusal no = read_body(request, body)) return error_reply(request, *no);
  std::vector<int32_t> ids;
  if (body.is_object() && body.contains("messages")) {
    ChatRequest chat;
    ChatPrompt prompt;
    if (Refusal no = parse_chat(body, options_.defaults, chat)) return error_reply(request, *no);
    if (Refusal no = model_.prompt(chat, prompt)) return error_reply(request, *no);
    ids = std::move(prompt.ids);
  } else {
    Refusal refusal;
    Fields fields(body, "", refusal);
    auto text = fields.text("prompt");
    if (!text) text = fields.text("content");
    if (!text) fields.refuse("prompt", "a string", nullptr);
    if (refusal) return error_reply(request, *refusal);
    auto encoded = model_.tokenizer().encode(*text);
    if (!encoded.ok()) return error_reply(request, failed(encoded.status()));
    ids = std::move(*encoded);
  }
  HttpReply reply;
  reply.body = to_text({{"count", ids.size()}, {"max_model_len", service_.loaded().model->context()}, {"tokens", ids}});
  return reply;
}

HttpReply Application::detokenize(const HttpRequest& request) {
  json body;
  if (Refusal no = read_body(request, body)) return error_reply(request, *no);
  Refusal refusal;
  Fields fields(body, "", refusal);
  const json* tokens = fields.list("tokens");
  const int64_t vocab = service_.loaded().model->vocab();
  std::vector<int32_t> ids;
  if (tokens == nullptr) fields.refuse("tokens", "an array of token ids", nullptr);
  for (size_t i = 0; tokens != nullptr && i < tokens->size() && !refusal; ++i) {
    const json& id = (*tokens)[i];
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= vocab) {
      fields.refuse(fmt::format("tokens[{}]", i), fmt::format("a token id from 0 to {}", vocab - 1), id);
      break;
    }
    ids.push_back(id.get<int32_t>());
  }
  if (refusal) return error_reply(request, *refusal);
  const std::string text = model_.tokenizer().decode(ids);
  HttpReply reply;
  reply.body = to_text({{"prompt", text}, {"content", text}});
  return reply;
}

HttpReply Application::embeddings(const HttpRequest& request) {
  return error_reply(request, not_supported("this model generates text and has no embeddings; load an embedding model "
                                            "into a server that supports them"));
}

}  // namespace switchyard::server
