// SPDX-License-Identifier: Apache-2.0
#include "core/text/chat_template.h"

#include <nlohmann/json.hpp>

namespace switchyard {

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  SWY_LET(jinja::Template parsed, jinja::Template::parse(source, "chat template"));
  return ChatTemplate(std::move(parsed));
}

Result<std::string> ChatTemplate::render(const nlohmann::ordered_json& messages, bool add_generation_prompt,
                                         const nlohmann::ordered_json& tools, const nlohmann::ordered_json& extra,
                                         const jinja::Limits& limits) const {
  if (!extra.is_object()) {
    return error(Code::usage, "the extra variables of a chat template must be an object, not {}", extra.type_name());
  }
  // Variables that apply_chat_template always defines, if only as none.
  nlohmann::ordered_json variables = {{"messages", messages},
                                      {"tools", tools},
                                      {"documents", nullptr},
                                      {"add_generation_prompt", add_generation_prompt}};
  for (const auto& [name, value] : extra.items()) variables[name] = value;
  SWY_LET(jinja::Value globals, jinja::Value::from_json(variables));
  return template_.render(globals, limits);
}

Result<std::string> ChatTemplate::render(const nlohmann::ordered_json& messages, bool add_generation_prompt) const {
  return render(messages, add_generation_prompt, nullptr, nlohmann::ordered_json::object());
}

}  // namespace switchyard
