// SPDX-License-Identifier: Apache-2.0
// Templates are untrusted: whatever the bytes are, parsing and rendering them ends, within its limits.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using Json = nlohmann::ordered_json;
  static const Json messages = Json::parse(R"([
    {"role": "system", "content": "Be kind."}, {"role": "user", "content": "naïve 🎉\n<b>"},
    {"role": "assistant", "content": null, "n": 3, "f": 2.5, "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1]}}}]},
    {"role": "tool", "content": [{"type": "text", "text": " x "}]}])");
  static const Json tools =
      Json::parse(R"([{"name": "f", "parameters": {"properties": {"items": {"type": "object"}}}}])");
  auto parsed = switchyard::ChatTemplate::parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!parsed.ok()) return 0;
  switchyard::jinja::Limits limits;
  limits.max_steps = 50'000;
  limits.max_memory_bytes = 4 << 20;
  limits.max_output_bytes = 1 << 20;
  auto text = parsed->render(messages, true, tools, {{"enable_thinking", false}}, limits);
  return text.ok() && text->size() > limits.max_output_bytes ? __builtin_trap(), 0 : 0;
}
