// SPDX-License-Identifier: Apache-2.0
// Code points in UTF-8 text that is known to be valid, and the Unicode facts that Python's str methods rely on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace switchyard::jinja::utf8 {

// True when `text` is well-formed UTF-8 (no surrogates, no overlong forms).
bool valid(std::string_view text);
// Number of code points.
size_t length(std::string_view text);
// Bytes of the code point that starts at `text[at]`.
size_t width(std::string_view text, size_t at);
// The code point that starts at `text[at]`; `at` must be a boundary below the size.
char32_t decode(std::string_view text, size_t at);
// The byte where the last code point before `end` starts; `end` must be a boundary above 0.
size_t before(std::string_view text, size_t end);
void append(std::string& out, char32_t point);

// As str.isspace, str.isprintable (of one character) and the letter tests of Python.
bool is_space(char32_t point);
bool is_printable(char32_t point);
bool is_letter(char32_t point);
bool is_digit(char32_t point);
bool is_upper(char32_t point);
bool is_lower(char32_t point);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
// str.title: the first letter of every run of letters in title case, the others in lower case.
std::string title(std::string_view text);
// str.capitalize.
std::string capitalize(std::string_view text);

// Without the leading (`left`) and trailing (`right`) code points that are in `chars`, or whitespace when it is null.
std::string_view strip(std::string_view text, const std::string_view* chars, bool left, bool right);

}  // namespace switchyard::jinja::utf8
