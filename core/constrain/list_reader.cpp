// SPDX-License-Identifier: Apache-2.0
#include "core/constrain/list_reader.h"

#include "core/constrain/text_scanner.h"
#include "core/constrain/utf8_ranges.h"

namespace switchyard::constrain {

bool ListReader::push(char c) {
  if (!inside_) {
    if (c == '[' || c == '{') open_.push_back(c);
    if ((c == ']' || c == '}') && !open_.empty()) open_.pop_back();
    inside_ = c == '"';
    if (inside_) text_.clear();
    return false;
  }
  if (backslash_ || digits_ > 0) {
    escaped(c);
  } else if (c == '\\') {
    backslash_ = true;
  } else if (c == '"') {
    inside_ = false;
    return !open_.empty() && open_.back() == '[';
  } else {
    text_ += c;
  }
  return false;
}

void ListReader::escaped(char c) {
  if (digits_ > 0) {
    value_ = value_ << 4 | static_cast<uint32_t>(hex_digit(c) & 15);
    if (--digits_ > 0) return;
    if (value_ >= 0xD800 && value_ < 0xDC00) {
      high_ = value_;
      return;
    }
    append_utf8(text_, high_ == 0 ? value_ : 0x10000 + (high_ - 0xD800) * 0x400 + (value_ - 0xDC00));
    high_ = 0;
    return;
  }
  backslash_ = false;
  constexpr std::string_view kLetters = "bfnrt", kMeanings = "\b\f\n\r\t";
  const size_t letter = kLetters.find(c);
  if (c == 'u') {
    digits_ = 4;
    value_ = 0;
  } else {
    text_ += letter == std::string_view::npos ? c : kMeanings[letter];
  }
}

}  // namespace switchyard::constrain
