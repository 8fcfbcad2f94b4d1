// SPDX-License-Identifier: Apache-2.0
#include "core/text/added_tokens.h"

#include <algorithm>
#include <tuple>

namespace switchyard {

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::stable_sort(tokens_.begin(), tokens_.end(), [](const AddedToken& a, const AddedToken& b) {
    return std::tie(a.normalized, a.content) < std::tie(b.normalized, b.content);
  });
  const auto same = [](const AddedToken& a, const AddedToken& b) {
    return a.normalized == b.normalized && a.content == b.content;
  };
  tokens_.erase(std::unique(tokens_.begin(), tokens_.end(), same), tokens_.end());
  uint32_t at = 0;
  const auto count = static_cast<uint32_t>(tokens_.size());
  for (const bool normalized : {false, true}) {
    for (uint32_t byte = 0; byte < 257; ++byte) {
      const auto before = [&](const AddedToken& t) {
        return t.normalized == normalized && static_cast<uint8_t>(t.content[0]) < byte;
      };
      while (at < count && before(tokens_[at])) ++at;
      first_byte_[normalized][byte] = at;
    }
  }
}

// Narrows the tokens byte by byte to those that continue like the text. Of these the one that ends here, if any, comes
// first.
const AddedToken* AddedTokens::longest_at_front(std::string_view text, bool normalized) const {
  const auto& first = first_byte_[normalized];
  const auto byte = static_cast<uint8_t>(text[0]);
  const AddedToken *low = tokens_.data() + first[byte], *high = tokens_.data() + first[byte + 1], *found = nullptr;
  for (size_t depth = 1; low != high; ++depth) {
    if (low->content.size() == depth) found = low++;
    if (depth == text.size()) break;
    const auto next = static_cast<uint8_t>(text[depth]);
    const auto byte_of = [&](const AddedToken& t) { return static_cast<uint8_t>(t.content[depth]); };
    low = std::partition_point(low, high, [&](const AddedToken& t) { return byte_of(t) < next; });
    high = std::partition_point(low, high, [&](const AddedToken& t) { return byte_of(t) == next; });
  }
  return found;
}

}  // namespace switchyard
