// SPDX-License-Identifier: Apache-2.0
// Escapes in the string literals of templates.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace switchyard::jinja {

// The value of a literal by Python's rules: an unknown escape keeps its backslash. None, with the reason in `why`, for
// an escape that is cut short or names no character.
std::optional<std::string> unescape(std::string_view literal, std::string& why);

}  // namespace switchyard::jinja
