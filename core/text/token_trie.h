// SPDX-License-Identifier: Apache-2.0
// TokenTrie: a vocabulary's texts as a tree, in the order in which masks walk over it; and which tokens are plain
// characters, for the insides of JSON strings. Immutable, so that every request shares one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"

namespace switchyard {

// A node is a text: its parent's and one byte more. In depth-first order, so that a subtree is a stretch.
struct TrieNode {
  uint32_t next_and_byte = 0;    // the index after the subtree << 8 | the last byte
  uint32_t token_and_depth = 0;  // the token, or kNoToken << 8 | the text's length
  static constexpr uint32_t kNoToken = (1u << 24) - 1;

  uint8_t byte() const { return static_cast<uint8_t>(next_and_byte); }
  uint32_t next() const { return next_and_byte >> 8; }
  uint32_t depth() const { return token_and_depth & 0xFF; }
  uint32_t token() const { return token_and_depth >> 8; }
};

using TokenMask = std::vector<uint32_t>;  // a bit for each token, the lowest first

class TokenTrie {
 public:
  // `piece` gives the bytes of tokens 0 to `vocab` - 1; those without bytes are never allowed. It is not kept.
  // Errors: unsupported, for more than 2^24 - 2 tokens or nodes.
  static Result<std::shared_ptr<const TokenTrie>> create(uint32_t vocab,
                                                         const std::function<std::string_view(uint32_t)>& piece);

  uint32_t vocab() const { return vocab_; }
  size_t mask_words() const { return (vocab_ + 31) / 32; }
  std::string_view piece(uint32_t token) const {
    return std::string_view(text_).substr(at_[token], at_[token + 1] - at_[token]);
  }

  std::span<const TrieNode> all() const { return all_; }
  // Those with something in them that is not a plain character.
  std::span<const TrieNode> not_plain() const { return not_plain_; }
  // Sets the bits of all tokens of at most `characters` plain characters: neither quotes, backslashes, control
  // characters nor ends of lines.
  void allow_plain(int64_t characters, std::span<uint32_t> mask) const;
  // Bytes of the longest token in the trees.
  uint32_t longest() const { return longest_; }
  // The tokens that begin with a space, a tab or a line end.
  const TokenMask& spaces() const { return spaces_; }
  // The tokens with several quotes in them.
  std::span<const uint32_t> several_quotes() const { return several_quotes_; }
  // Tokens that are too long for the tree, to be tried one by one.
  std::span<const uint32_t> long_tokens() const { return long_; }
  // A token in the tree, and another with the same text.
  std::span<const std::pair<uint32_t, uint32_t>> twins() const { return twins_; }

 private:
  uint32_t vocab_ = 0, longest_ = 0;
  std::string text_;
  std::vector<uint32_t> at_;
  std::vector<TrieNode> all_, not_plain_;
  std::vector<TokenMask> plain_;             // [i]: of at most i + 1 characters
  std::vector<uint32_t> longer_;             // the other plain tokens, shorter ones first
  std::vector<uint32_t> longer_characters_;  // of each
  TokenMask spaces_;
  std::vector<uint32_t> long_, several_quotes_;
  std::vector<std::pair<uint32_t, uint32_t>> twins_;
};

}  // namespace switchyard
