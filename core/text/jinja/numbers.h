// SPDX-License-Identifier: Apache-2.0
// Text to numbers and lines, by Python's rules.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace switchyard::jinja {

// int(text, base): surrounding white space, a sign, single underscores between digits, and 0x, 0o or 0b where the base
// matches or is 0. None when it is no integer, or fails (see budget.h) when it does not fit 64 bits.
std::optional<int64_t> parse_int(std::string_view text, int base);
// float(text).
std::optional<double> parse_float(std::string_view text);
// str.splitlines: appends the lines of `text` to `lines`, with their ends when `keep_ends`.
void split_lines(std::string_view text, bool keep_ends, std::vector<std::string_view>& lines);

}  // namespace switchyard::jinja
