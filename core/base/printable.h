// SPDX-License-Identifier: Apache-2.0
// Text from files, plugins and arguments, without effect on the terminal that shows it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace switchyard {

// `text` with control and format characters (terminal escapes, line ends, directional marks) and bytes that are not
// UTF-8 written as \x1B. What does not fit in `max_bytes` is cut off and ends in "...". For a part of a message.
std::string printable(std::string_view text, size_t max_bytes = 80);

// The same, but of any length: for whole messages, and for what may have several lines.
std::string printable_line(std::string_view text);
std::string printable_lines(std::string_view text);  // line feeds stay

// A JSON text with these characters written as \u001b, which means the same.
std::string printable_json(std::string_view json);

}  // namespace switchyard
