// SPDX-License-Identifier: Apache-2.0
// Detokenizer: text from tokens as they come, never half a character.
#pragma once

#include <string>

#include "core/text/tokenizer.h"
#include "core/text/utf8.h"

namespace switchyard {

class Detokenizer {
 public:
  // `tokenizer` outlives it.
  explicit Detokenizer(const Tokenizer& tokenizer, bool skip_special = true)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  // The text that is complete with this token. All pushes and the flush together give Tokenizer::decode of the ids.
  std::string push(int32_t id) {
    if (!skip_special_ || !tokenizer_.is_special(id)) held_ += tokenizer_.piece(id);
    return take(false);
  }
  // The remaining text; an unfinished character becomes U+FFFD.
  std::string flush() { return take(true); }

 private:
  std::string take(bool final) {
    std::string out;
    held_.erase(0, append_utf8_lossy(held_, final, out));
    return out;
  }

  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::string held_;
};

}  // namespace switchyard
