// SPDX-License-Identifier: Apache-2.0
// ChatRequest: a conversation to answer, in whichever protocol it came.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "server/protocol/generation.h"

namespace switchyard::server {

enum class ToolChoice { automatic, none, required };

struct ChatRequest {
  Generation generation;
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();  // `normalised`
  nlohmann::ordered_json tools;  // [{"type": "function", "function": {...}}]; null: none
  ToolChoice tool_choice = ToolChoice::automatic;
  std::string tool_name;  // with `required`: this one; "": any
  bool parallel_tool_calls = true;
  nlohmann::ordered_json template_arguments = nlohmann::ordered_json::object();
};

// The body of POST /v1/chat/completions.
Refusal parse_chat(const nlohmann::ordered_json& body, const Defaults& defaults, ChatRequest& to);

// For the other protocols, whose fields have other names.
// An effort of "none" turns thinking off in templates that know enable_thinking; every effort is the template's
// reasoning_effort.
void read_effort(Fields& fields, std::string_view name, ChatRequest& to);
// Checks that each is a function with a name. `tools`: as in ChatRequest.
void check_tools(const nlohmann::ordered_json& tools, Refusal& refusal);
void check_choice(const ChatRequest& request, Refusal& refusal);

}  // namespace switchyard::server
