// SPDX-License-Identifier: Apache-2.0
#include "core/text/jinja/utf8.h"

#include <utf8proc.h>

namespace switchyard::jinja::utf8 {

namespace {

bool continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

void append_upper(std::string& out, char32_t point) {
  if (point == U'ß') {
    out += "SS";  // the one full mapping in ordinary text; utf8proc has the simple ones
  } else {
    append(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(point))));
  }
}

void append_title(std::string& out, char32_t point) {
  if (point == U'ß') {
    out += "Ss";
  } else {
    append(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(point))));
  }
}

// `text[at]` in lower case. A capital sigma that ends a word becomes the final form, as in Python.
void append_lower(std::string& out, std::string_view text, size_t at) {
  char32_t point = decode(text, at);
  if (point == U'Σ') {
    size_t next = at + width(text, at);
    bool after_letter = at > 0 && is_letter(decode(text, before(text, at)));
    bool before_letter = next < text.size() && is_letter(decode(text, next));
    append(out, after_letter && !before_letter ? U'ς' : U'σ');
  } else if (point == U'İ') {
    out += "i\xCC\x87";
  } else {
    append(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point))));
  }
}

utf8proc_category_t category(char32_t point) { return utf8proc_category(static_cast<utf8proc_int32_t>(point)); }

bool cased(char32_t point) {
  utf8proc_category_t c = category(point);
  return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT;
}

}  // namespace

bool valid(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    utf8proc_int32_t point = 0;
    utf8proc_ssize_t n = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                                          static_cast<utf8proc_ssize_t>(text.size() - at), &point);
    if (n <= 0) return false;
    at += static_cast<size_t>(n);
  }
  return true;
}

size_t length(std::string_view text) {
  size_t count = 0;
  for (char c : text) count += continuation(c) ? 0 : 1;
  return count;
}

size_t width(std::string_view text, size_t at) {
  unsigned char lead = static_cast<unsigned char>(text[at]);
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

char32_t decode(std::string_view text, size_t at) {
  size_t n = width(text, at);
  unsigned char lead = static_cast<unsigned char>(text[at]);
  char32_t point = n == 1 ? lead : lead & (0x7F >> n);
  for (size_t i = 1; i < n; ++i) point = (point << 6) | (static_cast<unsigned char>(text[at + i]) & 0x3F);
  return point;
}

size_t before(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && continuation(text[at])) --at;
  return at;
}

void append(std::string& out, char32_t point) {
  utf8proc_uint8_t bytes[4];
  utf8proc_ssize_t n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(point), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(n));
}

bool is_space(char32_t point) {
  if (point < 0x80) return point == ' ' || (point >= 0x09 && point <= 0x0D) || (point >= 0x1C && point <= 0x1F);
  return point == 0x85 || point == 0xA0 || point == 0x1680 || (point >= 0x2000 && point <= 0x200A) || point == 0x2028 ||
         point == 0x2029 || point == 0x202F || point == 0x205F || point == 0x3000;
}

bool is_printable(char32_t point) {
  if (point == ' ') return true;
  switch (category(point)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_letter(char32_t point) {
  utf8proc_category_t c = category(point);
  return cased(point) || c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_LO;
}

bool is_digit(char32_t point) { return category(point) == UTF8PROC_CATEGORY_ND; }
bool is_upper(char32_t point) { return category(point) == UTF8PROC_CATEGORY_LU; }
bool is_lower(char32_t point) { return category(point) == UTF8PROC_CATEGORY_LL; }

std::string upper(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size(); at += width(text, at)) append_upper(out, decode(text, at));
  return out;
}

std::string lower(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size(); at += width(text, at)) append_lower(out, text, at);
  return out;
}

std::string title(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (size_t at = 0; at < text.size(); at += width(text, at)) {
    char32_t point = decode(text, at);
    if (in_word) {
      append_lower(out, text, at);
    } else {
      append_title(out, point);
    }
    in_word = cased(point);
  }
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size(); at += width(text, at)) {
    if (at == 0) {
      append_title(out, decode(text, at));
    } else {
      append_lower(out, text, at);
    }
  }
  return out;
}

std::string_view strip(std::string_view text, const std::string_view* chars, bool left, bool right) {
  auto drop = [&](size_t at) {
    return chars != nullptr ? chars->find(text.substr(at, width(text, at))) != std::string_view::npos
                            : is_space(decode(text, at));
  };
  while (left && !text.empty() && drop(0)) text.remove_prefix(width(text, 0));
  while (right && !text.empty()) {
    size_t last = before(text, text.size());
    if (!drop(last)) break;
    text = text.substr(0, last);
  }
  return text;
}

}  // namespace switchyard::jinja::utf8
