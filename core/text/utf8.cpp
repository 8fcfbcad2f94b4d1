// SPDX-License-Identifier: Apache-2.0
#include "core/text/utf8.h"

namespace switchyard {
namespace {

// Bounds of the second byte for each lead byte (Unicode Standard, table 3-7).
struct Lead {
  size_t length;
  unsigned char low, high;
};

Lead lead_of(unsigned char c) {
  if (c < 0x80) return {1, 0, 0};
  if (c >= 0xC2 && c <= 0xDF) return {2, 0x80, 0xBF};
  if (c == 0xE0) return {3, 0xA0, 0xBF};
  if (c == 0xED) return {3, 0x80, 0x9F};
  if (c >= 0xE1 && c <= 0xEF) return {3, 0x80, 0xBF};
  if (c == 0xF0) return {4, 0x90, 0xBF};
  if (c >= 0xF1 && c <= 0xF3) return {4, 0x80, 0xBF};
  if (c == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// Bytes at the front that begin one character correctly: its whole length if it is complete.
size_t good_bytes(std::string_view text, size_t& length) {
  const Lead lead = lead_of(static_cast<unsigned char>(text[0]));
  length = lead.length;
  if (length == 0) return 0;
  size_t n = 1;
  for (; n < length && n < text.size(); ++n) {
    const auto c = static_cast<unsigned char>(text[n]);
    if (c < (n == 1 ? lead.low : 0x80) || c > (n == 1 ? lead.high : 0xBF)) break;
  }
  return n;
}

}  // namespace

size_t utf8_length(std::string_view text, bool* incomplete) {
  if (incomplete != nullptr) *incomplete = false;
  if (text.empty()) return 0;
  size_t length = 0;
  const size_t good = good_bytes(text, length);
  if (length != 0 && good == length) return length;
  if (incomplete != nullptr) *incomplete = good != 0 && good == text.size();
  return 0;
}

size_t utf8_valid_prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t n = utf8_length(text.substr(at));
    if (n == 0) break;
    at += n;
  }
  return at;
}

Status check_utf8(std::string_view text) {
  const size_t good = utf8_valid_prefix(text);
  if (good == text.size()) return {};
  return error(Code::usage, "the text is not valid UTF-8 at byte {}; convert it to UTF-8 first", good);
}

size_t append_utf8_lossy(std::string_view text, bool final, std::string& out) {
  size_t at = 0;
  while (at < text.size()) {
    size_t length = 0;
    const size_t good = good_bytes(text.substr(at), length);
    if (length != 0 && good == length) {
      out.append(text, at, length);
      at += length;
      continue;
    }
    if (!final && good != 0 && at + good == text.size()) break;
    out += "\xEF\xBF\xBD";
    at += good == 0 ? 1 : good;
  }
  return at;
}

}  // namespace switchyard
