// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/api_error.h"

#include <nlohmann/json.hpp>

namespace switchyard::server {

using json = nlohmann::ordered_json;

ApiError wrong_field(std::string field, std::string message) {
  return {.message = std::move(message), .param = std::move(field)};
}

ApiError not_found(std::string message, std::string code) {
  return {.status = 404, .type = "not_found_error", .message = std::move(message), .code = std::move(code)};
}

ApiError not_supported(std::string message, std::string field) {
  return {.status = 501, .type = "not_supported_error", .message = std::move(message), .param = std::move(field)};
}

ApiError overloaded(std::string message, uint32_t retry_after_ms) {
  return {.status = 503,
          .type = "overloaded_error",
          .message = std::move(message),
          .code = "overloaded",
          .retry_after_ms = retry_after_ms};
}

ApiError too_large(std::string message) {
  return {.status = 413, .type = "request_too_large", .message = std::move(message)};
}

ApiError rejected(const Rejection& rejection) {
  ApiError e{.message = rejection.status.message()};
  switch (rejection.why) {
    case Rejection::Why::too_long:
      e.code = "context_length_exceeded";
      e.prompt_tokens = rejection.prompt_tokens;
      e.context_tokens = rejection.context_tokens;
      return e;
    case Rejection::Why::queue_full:
      e.status = 429;
      e.type = "rate_limit_error";
      e.code = "queue_full";
      e.retry_after_ms = rejection.retry_after_ms;
      return e;
    case Rejection::Why::draining:
      return overloaded(e.message, std::max<uint32_t>(rejection.retry_after_ms, 1000));
    case Rejection::Why::none:
    case Rejection::Why::invalid:
      break;
  }
  return e;
}

ApiError failed(const Status& status) {
  switch (status.code()) {
    case Code::usage:
    case Code::invalid_data:
      return {.message = status.message()};
    case Code::unsupported:
      return not_supported(status.message());
    default:
      return {.status = 500, .type = "server_error", .message = status.message()};
  }
}

namespace {

json or_null(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }

std::string dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

}  // namespace

std::string openai_error(const ApiError& error) {
  json body = {
      {"message", error.message}, {"type", error.type}, {"param", or_null(error.param)}, {"code", or_null(error.code)}};
  if (error.context_tokens != 0) {
    body["n_prompt_tokens"] = error.prompt_tokens;
    body["n_ctx"] = error.context_tokens;
  }
  return dump({{"error", body}});
}

std::string anthropic_error(const ApiError& error) {
  const std::string type = error.status == 500 ? "api_error" : error.type;
  return dump({{"type", "error"}, {"error", {{"type", type}, {"message", error.message}}}});
}

}  // namespace switchyard::server
