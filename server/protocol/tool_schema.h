// SPDX-License-Identifier: Apache-2.0
// ToolSchemas: which types the parameters of tools have, so that values that a model writes as bare text become JSON.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace switchyard::server {

struct ParameterType {
  bool text = false, number = false, boolean = false, null = false, list = false, object = false;
  bool only_text() const { return text && !number && !boolean && !null && !list && !object; }
};

class ToolSchemas {
 public:
  ToolSchemas() = default;
  // As in ChatRequest::tools.
  explicit ToolSchemas(const nlohmann::ordered_json& tools);

  // A parameter that the schema does not name is text.
  ParameterType type_of(std::string_view function, std::string_view parameter) const;

 private:
  std::map<std::string, std::map<std::string, ParameterType, std::less<>>, std::less<>> types_;
};

// The JSON text of a value that the model wrote as bare text. What does not fit the type is a string.
std::string json_value(std::string_view text, const ParameterType& type);

// A text as a JSON string, with its quotes; and as a piece of one, without. Bytes that are not UTF-8 become U+FFFD.
std::string json_string(std::string_view text);
std::string json_piece(std::string_view text);

}  // namespace switchyard::server
