// SPDX-License-Identifier: Apache-2.0
// Requests of the server: the first byte chooses the protocol, the rest is the body. And a model's text, which is taken
// apart to the same parts in whichever pieces it comes.
#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/text/utf8.h"
#include "server/http/message.h"
#include "server/protocol/output_parser.h"
#include "server/protocol/requests.h"

namespace {

using namespace switchyard;          // NOLINT(google-build-using-namespace)
using namespace switchyard::server;  // NOLINT(google-build-using-namespace)
using json = nlohmann::ordered_json;

void parse(unsigned protocol, const std::string& text) {
  const auto body = read_ordered_json(text, "body", {.bytes = text.size(), .values = 1 << 16});
  if (!body.ok()) return;
  ChatRequest chat;
  json repeated;
  CompletionRequest completion;
  server::Refusal refusal;
  if (protocol == 0) refusal = parse_chat(*body, {}, chat);
  if (protocol == 1) refusal = parse_completion(*body, {}, completion);
  if (protocol == 2) refusal = parse_responses(*body, {}, chat, repeated);
  if (protocol == 3) refusal = parse_anthropic(*body, {}, false, chat);
  if (refusal && (refusal->message.empty() || refusal->status < 400)) __builtin_trap();
  if (!refusal && protocol != 1 && !chat.tools.empty()) ToolSchemas schemas(chat.tools);
}

std::string joined(const std::vector<Delta>& deltas) {
  std::string out;
  const Delta* last = nullptr;
  for (const Delta& d : deltas) {
    if (last == nullptr || last->kind != d.kind || last->call != d.call || d.kind == Delta::Kind::call) {
      out += fmt::format("\x01{}:{}:", static_cast<int>(d.kind), d.call);
    }
    out += d.text;
    last = &d;
  }
  return out;
}

void take_apart(unsigned flags, const std::string& text) {
  OutputForm form{.reasoning = (flags & 1) != 0, .thinks = (flags & 2) != 0, .tools = (flags & 4) != 0};
  form.schemas = ToolSchemas(json::array(
      {{{"function",
         {{"name", "f"}, {"parameters", {{"properties", {{"n", {{"type", "integer"}}}, {"a", json::object()}}}}}}}}}));
  std::vector<Delta> whole, pieces;
  OutputParser at_once(form), bit_by_bit(form);
  at_once.push(text, whole);
  at_once.flush(whole);
  for (size_t at = 0; at < text.size();) {  // whole characters, as a detokenizer gives them
    size_t n = 1;
    while (at + n < text.size() && (static_cast<unsigned char>(text[at + n]) & 0xC0) == 0x80) ++n;
    bit_by_bit.push(std::string_view(text).substr(at, n), pieces);
    at += n;
  }
  bit_by_bit.flush(pieces);
  if (joined(whole) != joined(pieces)) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 8 < 4) {
    parse(data[0] % 4, text);
  } else if (check_utf8(text).ok()) {
    take_apart(data[0] >> 3 & 7, text);
  }
  std::string path, query;
  read_target(text, path, query);
  return 0;
}
