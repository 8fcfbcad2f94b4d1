// SPDX-License-Identifier: Apache-2.0
// A place in a text that is read from its beginning: what the readers of patterns and grammars share.
#pragma once

#include <cstddef>
#include <string_view>

namespace switchyard::constrain {

// The value of a hexadecimal digit; -1 for what is none.
inline int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

class TextScanner {
 public:
  explicit TextScanner(std::string_view text) : text_(text) {}

  bool more() const { return at_ < text_.size(); }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool take(std::string_view s) {
    if (!text_.substr(at_).starts_with(s)) return false;
    at_ += s.size();
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace switchyard::constrain
