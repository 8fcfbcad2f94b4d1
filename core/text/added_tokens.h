// SPDX-License-Identifier: Apache-2.0
// Added tokens: texts that a tokenizer finds before it cuts anything into words.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace switchyard {

struct AddedToken {
  int32_t id = 0;
  std::string content;  // not empty
  bool special = false;
  bool normalized = false;  // looked for in the text after normalisation
};

// All of them, in order of their bytes. Immutable once made; then thread-safe.
class AddedTokens {
 public:
  AddedTokens() = default;
  // Of equal contents the earlier in the list counts.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  // The longest token of this kind that `text`, which is not empty, begins with; NULL: none. Takes time in proportion
  // to the length of that token and the logarithm of their number.
  const AddedToken* longest_at_front(std::string_view text, bool normalized) const;

 private:
  std::vector<AddedToken> tokens_;  // by normalized, then content
  // Per kind and first byte: where its tokens begin in `tokens_`; they end where the next byte's begin.
  std::array<std::array<uint32_t, 257>, 2> first_byte_{};
};

}  // namespace switchyard
