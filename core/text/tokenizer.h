// SPDX-License-Identifier: Apache-2.0
// Tokenizer: byte-level BPE exactly as a `tokenizer.json` describes it.
//
// Supported: model BPE (with or without ignore_merges); normalizer none, NFC, or a Sequence of them; pre-tokenizer
// ByteLevel, or a Sequence of Split (a regular expression, isolated) and ByteLevel; added tokens. Anything else is
// refused by name. The JSON and the texts are untrusted.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/text/token_trie.h"

namespace switchyard {

// What a special token's text means: the token, or only its letters.
enum class Specials {
  tokens,   // always the token
  letters,  // always letters
  marked,   // letters where `quote_specials` marked it, else the token
};

class Tokenizer {
 public:
  // Errors: invalid_data (broken JSON, a merge of unknown tokens); unsupported, naming the component.
  static Result<Tokenizer> parse(std::string_view json);

  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // All members below are thread-safe.

  // Added tokens are recognised anywhere in the text, the special ones of them as `specials` says. Errors: usage, when
  // the text is not UTF-8, with the offset of the first bad byte.
  Result<std::vector<int32_t>> encode(std::string_view text, Specials specials = Specials::tokens) const;

  // The text with a mark before each special token in it, which `encode` drops: so that what a user writes stays
  // letters after it was put into a template. Marks that the text has are removed.
  std::string quote_specials(std::string_view text) const;

  // Bytes that are not UTF-8 become U+FFFD. Ids outside the vocabulary give nothing.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;

  // The raw bytes of a token, perhaps part of a character; "" outside the vocabulary.
  std::string_view piece(int32_t id) const;
  bool is_special(int32_t id) const;
  std::optional<int32_t> id_of(std::string_view content) const;
  int32_t vocab_size() const;  // the largest id + 1
  // The texts of ids below `vocab`, without those of special tokens. Made at the first call, and then shared. Errors:
  // unsupported, see TokenTrie::create.
  Result<std::shared_ptr<const TokenTrie>> trie(uint32_t vocab) const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace switchyard
