// Text from files in messages: short, on one line, and without effect on the terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace switchyard {

// `text` with control and format characters (terminal escapes, line ends, directional marks) and bytes that are not
// UTF-8 written as \x1B. What does not fit in `max_bytes` is cut off and ends in "...".
std::string printable(std::string_view text, size_t max_bytes = 80);

}  // namespace switchyard
