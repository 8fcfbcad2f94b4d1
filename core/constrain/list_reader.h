// SPDX-License-Identifier: Apache-2.0
// ListReader: reads a JSON text byte by byte, for the strings that are items of a list.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace switchyard::constrain {

class ListReader {
 public:
  // True: the byte ended a string that is an item, whose decoded text is `text`. The bytes so far begin a JSON text.
  bool push(char c);
  std::string_view text() const { return text_; }

 private:
  void escaped(char c);

  std::vector<char> open_;  // '[' and '{' without their ends
  std::string text_;
  bool inside_ = false, backslash_ = false;
  uint32_t digits_ = 0, value_ = 0, high_ = 0;  // digits of \u that are still to come
};

}  // namespace switchyard::constrain
