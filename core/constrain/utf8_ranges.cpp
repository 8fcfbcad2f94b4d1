// SPDX-License-Identifier: Apache-2.0
#include "core/constrain/utf8_ranges.h"

#include <algorithm>

namespace switchyard::constrain {
namespace {

size_t encode(uint32_t c, uint8_t* out) {
  const auto tail = [&](unsigned shift) { return static_cast<uint8_t>(0x80 | (c >> shift & 0x3F)); };
  if (c < 0x80) {
    out[0] = static_cast<uint8_t>(c);
    return 1;
  }
  if (c < 0x800) {
    out[0] = static_cast<uint8_t>(0xC0 | c >> 6);
    out[1] = tail(0);
    return 2;
  }
  if (c < 0x10000) {
    out[0] = static_cast<uint8_t>(0xE0 | c >> 12);
    out[1] = tail(6);
    out[2] = tail(0);
    return 3;
  }
  out[0] = static_cast<uint8_t>(0xF0 | c >> 18);
  out[1] = tail(12);
  out[2] = tail(6);
  out[3] = tail(0);
  return 4;
}

// `low` and `high` have encodings of the same length. Splits until all bytes but the first that differs are free.
void split(uint32_t low, uint32_t high, std::vector<Utf8Range>& out) {
  for (unsigned i = 1; i < 4; ++i) {
    const uint32_t mask = (1u << 6 * i) - 1;
    if ((low & ~mask) == (high & ~mask)) continue;
    if (low > 0x7F && (low & mask) != 0) {
      split(low, low | mask, out);
      split((low | mask) + 1, high, out);
      return;
    }
    if (low > 0x7F && (high & mask) != mask) {
      split(low, (high & ~mask) - 1, out);
      split(high & ~mask, high, out);
      return;
    }
  }
  uint8_t a[4], b[4];
  Utf8Range range;
  range.length = encode(low, a);
  encode(high, b);
  for (size_t i = 0; i < range.length; ++i) range.bytes[i] = {a[i], b[i]};
  out.push_back(range);
}

}  // namespace

std::vector<Utf8Range> utf8_ranges(uint32_t low, uint32_t high) {
  // By length of the encoding, and without the surrogates.
  static constexpr std::pair<uint32_t, uint32_t> kParts[] = {
      {0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, 0x10FFFF}};
  std::vector<Utf8Range> out;
  for (const auto& [first, last] : kParts) {
    const uint32_t from = std::max(low, first), to = std::min(high, last);
    if (from <= to) split(from, to, out);
  }
  return out;
}

void append_utf8(std::string& out, uint32_t code_point) {
  uint8_t bytes[4];
  const size_t n = encode(code_point, bytes);
  out.append(reinterpret_cast<const char*>(bytes), n);
}

}  // namespace switchyard::constrain
