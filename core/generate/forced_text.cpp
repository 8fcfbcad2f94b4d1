// SPDX-License-Identifier: Apache-2.0
#include "core/generate/forced_text.h"

#include <algorithm>

namespace switchyard {

// The last token of the forced text may reach beyond it, and is not guessed: `{"name": "` goes on with a string, whose
// first letters may share a token with the quotation mark.
Status ForcedText::propose(uint32_t most, Guesses& guesses) {
  constexpr size_t kBytes = 512;
  const std::string text = constraint_->likely(drawn_, kBytes);
  if (text.size() < 2) return {};
  const auto tokens = tokenizer_.encode(text, Specials::letters);
  if (!tokens.ok() || tokens->size() < 2) return {};  // a part of a character cannot be encoded
  const size_t n = std::min<size_t>(most, tokens->size() - 1);
  for (size_t i = 0; i < n; ++i) guesses.add((*tokens)[i]);
  return {};
}

}  // namespace switchyard
