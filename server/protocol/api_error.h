// SPDX-License-Identifier: Apache-2.0
// ApiError: why a request gets no answer, and the body that says so in the form of its protocol.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/serve/service.h"

namespace switchyard::server {

struct ApiError {
  int status = 400;  // of HTTP
  std::string type = "invalid_request_error";
  std::string message;
  std::string param = {};  // the field; "": none
  std::string code = {};   // "": none
  uint32_t retry_after_ms = 0;
  uint64_t prompt_tokens = 0, context_tokens = 0;  // of a prompt that does not fit
};

// A request that is wrong, as what parses it found first; none: it is right.
using Refusal = std::optional<ApiError>;

ApiError wrong_field(std::string field, std::string message);
ApiError not_found(std::string message, std::string code = {});
ApiError not_supported(std::string message, std::string field = {});
ApiError overloaded(std::string message, uint32_t retry_after_ms);
ApiError too_large(std::string message);
// A request that the service did not take.
ApiError rejected(const Rejection& rejection);
// A request that ended with `status`.
ApiError failed(const Status& status);

// {"error": {"message", "type", "param", "code"}}
std::string openai_error(const ApiError& error);
// {"type": "error", "error": {"type", "message"}}
std::string anthropic_error(const ApiError& error);

}  // namespace switchyard::server
