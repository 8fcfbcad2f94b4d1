// SPDX-License-Identifier: Apache-2.0
// Sets of Unicode code points, as sorted ranges that do not touch.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace switchyard::constrain {

using CodePoints = std::vector<std::pair<uint32_t, uint32_t>>;
constexpr uint32_t kLastCodePoint = 0x10FFFF;

CodePoints normalized(CodePoints set);
CodePoints inverted(CodePoints set);
// With the other case of each letter. Of sets of more than some thousand code points only ASCII letters are folded.
CodePoints without_case(CodePoints set);
// A general category by its short or long name ("L", "Lu", "Letter"); none if there is no such.
std::optional<CodePoints> category(std::string_view name);

// The code point at `at`, which is moved behind it. The text is UTF-8, as read_utf8_text has made sure.
uint32_t next_code_point(std::string_view text, size_t& at);
// The offset of the first byte that is not UTF-8; npos if all is.
size_t invalid_utf8(std::string_view text);

}  // namespace switchyard::constrain
