// JSON values in messages.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

namespace switchyard {

// The value as JSON if that is short, else what kind of value it is. Never recurses: a value from a file may be deep.
inline std::string brief(const nlohmann::json& value) {
  constexpr size_t kMaxElements = 8, kMaxChars = 64;
  const auto simple = [](const nlohmann::json& v) { return v.is_primitive(); };
  const bool flat = simple(value) || (value.is_array() && value.size() <= kMaxElements &&
                                      std::all_of(value.begin(), value.end(), simple));
  std::string text = flat ? value.dump() : "";
  if (flat && text.size() <= kMaxChars) return text;
  return std::string(value.is_object() || value.is_array() ? "an " : "a long ") + value.type_name();
}

}  // namespace switchyard
