// SPDX-License-Identifier: Apache-2.0
// A place in a text that is read from its beginning: what the readers of patterns and grammars share.
#pragma once

#include <cstddef>
#include <string_view>

namespace switchyard::constrain {

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
