// SPDX-License-Identifier: Apache-2.0
// Ranges of code points as ranges of bytes in UTF-8.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace switchyard::constrain {

// The texts whose byte i lies in bytes[i], for each i below `length`.
struct Utf8Range {
  std::array<std::pair<uint8_t, uint8_t>, 4> bytes = {};
  size_t length = 0;
};

// Their union is the characters from `low` to `high`, without surrogates; no two overlap.
std::vector<Utf8Range> utf8_ranges(uint32_t low, uint32_t high);

void append_utf8(std::string& out, uint32_t code_point);

}  // namespace switchyard::constrain
