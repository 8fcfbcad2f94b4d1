// SPDX-License-Identifier: Apache-2.0
// Which requests are taken: routes, errors.
#include "server/app/application.h"

#include <algorithm>
#include <ctime>

#include "core/base/json.h"
#include "server/page/page.h"

namespace switchyard::server {

using json = nlohmann::ordered_json;

Result<std::unique_ptr<Application>> Application::create(Service& service, ApplicationOptions options) {
  SWY_LET(const Tokenizer* tokenizer, service.loaded().text());
  if (options.model_names.empty()) options.model_names = {"switchyard"};
  if (!options.new_id) options.new_id = random_id;
  if (!options.now) options.now = [] { return static_cast<int64_t>(std::time(nullptr)); };
  const std::string source =
      options.chat_template.empty() ? std::string(service.loaded().program->chat_template) : options.chat_template;
  SWY_LET(ChatModel model, ChatModel::create(*tokenizer, source));
  return std::unique_ptr<Application>(new Application(service, std::move(options), std::move(model)));
}

const std::vector<Application::Route>& Application::routes() {
  using A = Application;
  static const std::vector<Route> all = {
      {"GET", "/", &A::page, false},
      {"GET", "/openapi.json", &A::openapi, false},
      {"GET", "/health", &A::health, false},
      {"GET", "/v1/health", &A::health, false},
      {"GET", "/ready", &A::ready, false},
      {"GET", "/metrics", &A::metrics},
      {"GET", "/v1/models", &A::models},
      {"GET", "/models", &A::models},
      {"POST", "/v1/chat/completions", &A::chat, true, true},
      {"POST", "/chat/completions", &A::chat, true, true},
      {"POST", "/v1/completions", &A::completions, true, true},
      {"POST", "/completions", &A::completions, true, true},
      {"POST", "/v1/responses", &A::responses, true, true},
      {"POST", "/responses", &A::responses, true, true},
      {"POST", "/v1/messages", &A::messages, true, true},
      {"POST", "/v1/messages/count_tokens", &A::count_tokens},
      {"POST", "/tokenize", &A::tokenize},
      {"POST", "/detokenize", &A::detokenize},
      {"POST", "/v1/embeddings", &A::embeddings},
  };
  return all;
}

const Application::Route* Application::find(std::string_view method, std::string_view path) {
  if (path.starts_with("/v1/models/")) path = "/v1/models";
  if (method == "HEAD") method = "GET";
  for (const Route& route : routes()) {
    if (path == route.path && method == route.method) return &route;
  }
  return nullptr;
}

namespace {

bool anthropic_path(std::string_view path) { return path.starts_with("/v1/messages"); }

}  // namespace

HttpReply Application::error_reply(const HttpRequest& request, const ApiError& error) const {
  HttpReply reply{.status = error.status};
  reply.body = anthropic_path(request.path) ? anthropic_error(error) : openai_error(error);
  if (error.retry_after_ms != 0) {
    reply.headers.emplace_back("Retry-After", std::to_string((error.retry_after_ms + 999) / 1000));
    reply.headers.emplace_back("retry-after-ms", std::to_string(error.retry_after_ms));
  }
  if (error.status >= 500 && error.status != 503) reply.headers.emplace_back("x-should-retry", "false");
  return reply;
}

std::optional<HttpReply> Application::admit(const HttpRequest& head) {
  if (Refusal no = check_place(head)) return error_reply(head, *no);
  if (head.method == "OPTIONS") {
    HttpReply reply{.status = 204, .type = ""};
    reply.headers = {{"Allow", "GET, HEAD, POST, OPTIONS"},
                     {"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
                     {"Access-Control-Allow-Headers", head.header("access-control-request-headers").empty()
                                                          ? "*"
                                                          : std::string(head.header("access-control-request-headers"))},
                     {"Access-Control-Max-Age", "86400"}};
    return reply;
  }
  const Route* route = find(head.method, head.path);
  if (!options_.api_keys.empty() && (route == nullptr || route->needs_key) && !key_fits(head)) {
    HttpReply reply =
        error_reply(head, {.status = 401,
                           .type = "authentication_error",
                           .message = "the API key is missing or wrong; send it as Authorization: Bearer KEY",
                           .code = "invalid_api_key"});
    reply.headers.emplace_back("WWW-Authenticate", "Bearer");
    return reply;
  }
  if (route == nullptr) {
    const char* other = find("GET", head.path) != nullptr    ? "GET, HEAD"
                        : find("POST", head.path) != nullptr ? "POST"
                                                             : nullptr;
    if (other == nullptr) return error_reply(head, not_found(fmt::format("there is no {} here", head.path)));
    HttpReply reply = error_reply(
        head, {.status = 405, .message = fmt::format("{} takes {}, not {}", head.path, other, head.method)});
    reply.headers.emplace_back("Allow", other);
    return reply;
  }
  if (route->works && draining_) {
    HttpReply reply = error_reply(head, overloaded("the server is stopping", 1000));
    reply.close = true;
    return reply;
  }
  return {};
}

HttpReply Application::handle(HttpRequest request) {
  const Route* route = find(request.method, request.path);
  if (route == nullptr) return error_reply(request, not_found("there is nothing here"));
  return (this->*route->call)(request);
}

HttpReply Application::refuse(int status, const HttpRequest& head, const std::string& message) {
  ApiError error{.status = status, .message = message};
  if (status == 413) error = too_large(message);
  if (status == 408) error.type = "timeout_error";
  if (status == 503) error = overloaded(message, 1000);
  if (status == 500) error.type = "server_error";
  HttpReply reply = error_reply(head, error);
  reply.close = true;
  return reply;
}

void Application::add_headers(const HttpRequest& request, HttpReply& reply) {
  reply.headers.emplace_back("X-Request-Id", request.id);
  const std::string_view origin = request.header("origin");
  if (origin.empty() || check_place(request)) return;
  reply.headers.emplace_back("Access-Control-Allow-Origin", std::string(origin));
  reply.headers.emplace_back("Vary", "Origin");
  reply.headers.emplace_back("Access-Control-Expose-Headers", "X-Request-Id, X-Switchyard-Ignored, Retry-After");
}

void Application::log(const HttpRequest& request, int status, double seconds, uint64_t bytes, bool whole) {
  {
    const Route* route = find(request.method, request.path);
    const std::lock_guard lock(counts_mutex_);
    ++counts_[{route == nullptr ? "other" : route->path, status}];
  }
  if (options_.log) options_.log({request, status, seconds, bytes, whole});
}

Refusal Application::read_body(const HttpRequest& request, json& to) const {
  const JsonLimits limits{.bytes = request.body.size(), .values = 1u << 19};
  auto read = read_ordered_json(request.body, "the request's body", limits);
  if (!read.ok()) return failed(read.status());
  to = std::move(*read);
  return {};
}

Refusal Application::check_model(const std::string& name) const {
  const auto& names = options_.model_names;
  const auto fits = [&](const std::string& known) { return known == "*" || known == name; };
  if (name.empty() || std::any_of(names.begin(), names.end(), fits)) return {};
  ApiError error =
      not_found(fmt::format("there is no model '{}' here; this server has '{}'", name, names[0]), "model_not_found");
  error.param = "model";
  return error;
}

void Application::name_ignored(const Generation& g, HttpReply& reply) {
  constexpr size_t kMost = 500;
  std::string list;
  for (const std::string& name : g.ignored) {
    const auto odd = [](char c) { return c < 0x21 || c > 0x7E || c == ','; };
    if (name.size() > 100 || std::any_of(name.begin(), name.end(), odd) || list.size() > kMost) continue;
    list += (list.empty() ? "" : ", ") + name;
  }
  if (!list.empty()) reply.headers.emplace_back("X-Switchyard-Ignored", list);
}

}  // namespace switchyard::server
