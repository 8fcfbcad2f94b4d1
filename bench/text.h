// SPDX-License-Identifier: Apache-2.0
// Numbers for people, and text from outside made safe for the format that it is written in.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace switchyard::bench {

// Four significant digits or all before the point, with thousands apart: "0.003412", "98.31", "14,306". "-" for NaN and
// infinities.
std::string number_text(double v);
std::string rate_text(double v);         // three digits: "98.3", "14,306"
std::string short_text(double v);        // for ticks: "0.5", "20", "20k", "3M"
std::string percent_text(double share);  // "16.6%"
std::string seconds_text(double v);      // "252 us", "12.3 ms", "1.25 s"
std::string bytes_text(double v);        // "39.5 MB"
std::string small_text(double v);        // of errors: "0", "1.3e-04", "0.0121"

// Valid UTF-8 in one line: other bytes become U+FFFD, control characters spaces.
std::string one_line(std::string_view text);
size_t characters(std::string_view utf8);
// At most `most` characters, the last of them "…" where it was cut.
std::string cut(const std::string& utf8, size_t most);

// Each after one_line.
std::string escape_html(std::string_view text);  // also for attributes in quotes, and XML
std::string escape_md(std::string_view text);
// A field of CSV, quoted if necessary. A text that a spreadsheet would take for a formula begins with an apostrophe.
std::string csv_text(std::string_view text);
std::string csv_number(double v);  // all digits; empty for NaN and infinities

}  // namespace switchyard::bench
