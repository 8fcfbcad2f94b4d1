// SPDX-License-Identifier: Apache-2.0
#include "core/base/printable.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>

namespace switchyard {
namespace {

bool harmless(utf8proc_int32_t character) {
  switch (utf8proc_category(character)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CO:
      return false;
    default:
      return true;
  }
}

// The first character of a text; `value` is below 0 for a byte that is not UTF-8.
struct Character {
  std::string_view bytes;
  utf8proc_int32_t value = -1;
  explicit Character(std::string_view text) {
    const auto n = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                    static_cast<utf8proc_ssize_t>(text.size()), &value);
    bytes = text.substr(0, n > 0 ? static_cast<size_t>(n) : 1);
    if (n <= 0) value = -1;
  }
};

std::string escaped(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) out += fmt::format("\\x{:02X}", static_cast<unsigned char>(c));
  return out;
}

std::string json_escaped(utf8proc_int32_t c) {
  if (c < 0x10000) return fmt::format("\\u{:04x}", c);
  return fmt::format("\\u{:04x}\\u{:04x}", 0xd7c0 + (c >> 10), 0xdc00 + (c & 0x3ff));
}

std::string whole(std::string_view text, bool lines) {
  std::string out;
  while (!text.empty()) {
    const Character c(text);
    const bool stays = (c.value >= 0 && harmless(c.value)) || (lines && c.value == '\n');
    out += stays ? std::string(c.bytes) : escaped(c.bytes);
    text.remove_prefix(c.bytes.size());
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text, size_t max_bytes) {
  constexpr std::string_view kCut = "...";
  std::string out;
  size_t cut = 0;  // the longest beginning of `out` that leaves room for kCut
  while (!text.empty()) {
    const Character c(text);
    out += c.value >= 0 && harmless(c.value) ? std::string(c.bytes) : escaped(c.bytes);
    if (out.size() + kCut.size() <= max_bytes) cut = out.size();
    if (out.size() > max_bytes) return out.substr(0, cut).append(kCut);
    text.remove_prefix(c.bytes.size());
  }
  return out;
}

std::string printable_line(std::string_view text) { return whole(text, false); }
std::string printable_lines(std::string_view text) { return whole(text, true); }

std::string printable_json(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  while (!json.empty()) {
    const Character c(json);
    const bool stays = c.value < 0 || c.value == '\n' || harmless(c.value);
    out += stays ? std::string(c.bytes) : json_escaped(c.value);
    json.remove_prefix(c.bytes.size());
  }
  return out;
}

}  // namespace switchyard
