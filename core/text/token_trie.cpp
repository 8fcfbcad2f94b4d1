// SPDX-License-Identifier: Apache-2.0
#include "core/text/token_trie.h"

#include <algorithm>
#include <optional>
#include <string>

#include "core/text/utf8.h"

namespace switchyard {
namespace {

constexpr size_t kMaxDepth = 255, kMaxNodes = TrieNode::kNoToken;
constexpr size_t kPlainMasks = 32;

// The number of characters, if none is a quote, a backslash, a control character or the end of a line; or none.
std::optional<uint32_t> plain_characters(std::string_view text) {
  if (utf8_valid_prefix(text) < text.size()) return std::nullopt;
  uint32_t characters = 0;
  for (size_t at = 0; at < text.size(); ++characters) {
    const auto c = static_cast<unsigned char>(text[at]);
    const std::string_view rest = text.substr(at);
    if (c < 0x20 || c == '"' || c == '\\') return std::nullopt;
    if (rest.starts_with("\xE2\x80\xA8") || rest.starts_with("\xE2\x80\xA9")) return std::nullopt;
    at += utf8_length(rest);
  }
  return characters;
}

// `tokens` are sorted by text. Appends the subtree of those that share their first `depth` bytes.
bool build(const TokenTrie& trie, std::span<const uint32_t> tokens, std::vector<TrieNode>& nodes) {
  std::vector<uint32_t> open;  // the nodes on the way to the last token
  std::string_view last;
  const auto close = [&](size_t depth) {
    for (; open.size() > depth; open.pop_back()) {
      TrieNode& n = nodes[open.back()];
      n.next_and_byte = static_cast<uint32_t>(nodes.size()) << 8 | n.byte();
    }
  };
  for (const uint32_t token : tokens) {
    const std::string_view text = trie.piece(token);
    const size_t same =
        static_cast<size_t>(std::mismatch(text.begin(), text.end(), last.begin(), last.end()).first - text.begin());
    close(same);
    for (size_t i = same; i < text.size(); ++i) {
      open.push_back(static_cast<uint32_t>(nodes.size()));
      nodes.push_back({static_cast<uint8_t>(text[i]), TrieNode::kNoToken << 8 | static_cast<uint32_t>(i + 1)});
    }
    if (nodes.size() > kMaxNodes) return false;
    nodes[open.back()].token_and_depth = token << 8 | static_cast<uint32_t>(text.size());
    last = text;
  }
  close(0);
  return true;
}

}  // namespace

Result<std::shared_ptr<const TokenTrie>> TokenTrie::create(uint32_t vocab,
                                                           const std::function<std::string_view(uint32_t)>& piece) {
  if (vocab >= TrieNode::kNoToken) {
    return error(Code::unsupported, "a vocabulary of {} tokens cannot be constrained; the limit is {}", vocab,
                 TrieNode::kNoToken - 1);
  }
  auto trie = std::make_shared<TokenTrie>();
  trie->vocab_ = vocab;
  trie->at_.reserve(vocab + 1);
  for (uint32_t id = 0; id < vocab; ++id) {
    trie->at_.push_back(static_cast<uint32_t>(trie->text_.size()));
    trie->text_ += piece(id);
  }
  trie->at_.push_back(static_cast<uint32_t>(trie->text_.size()));

  trie->spaces_.resize(trie->mask_words());
  std::vector<uint32_t> sorted, other;
  std::vector<std::pair<uint32_t, uint32_t>> plain;  // characters, token
  for (uint32_t id = 0; id < vocab; ++id) {
    const size_t size = trie->piece(id).size();
    const std::string_view piece_of = trie->piece(id);
    if (std::count(piece_of.begin(), piece_of.end(), '"') > 1) trie->several_quotes_.push_back(id);
    if (size > kMaxDepth) trie->long_.push_back(id);
    if (size > 0 && size <= kMaxDepth) sorted.push_back(id);
    if (trie->piece(id).find_first_of(" \t\r\n") == 0) trie->spaces_[id / 32] |= 1u << id % 32;
  }
  std::sort(sorted.begin(), sorted.end(), [&](uint32_t a, uint32_t b) {
    const int order = trie->piece(a).compare(trie->piece(b));
    return order != 0 ? order < 0 : a < b;
  });
  std::vector<uint32_t> unlike;
  for (const uint32_t id : sorted) {
    if (!unlike.empty() && trie->piece(unlike.back()) == trie->piece(id)) {
      trie->twins_.emplace_back(unlike.back(), id);
      continue;
    }
    unlike.push_back(id);
    trie->longest_ = std::max(trie->longest_, static_cast<uint32_t>(trie->piece(id).size()));
    const auto characters = plain_characters(trie->piece(id));
    if (characters) plain.emplace_back(*characters, id);
    if (!characters) other.push_back(id);
  }
  if (!build(*trie, unlike, trie->all_) || !build(*trie, other, trie->not_plain_)) {
    return error(Code::unsupported, "the vocabulary's texts have more than {} different beginnings", kMaxNodes);
  }
  std::sort(plain.begin(), plain.end());
  trie->plain_.assign(kPlainMasks, TokenMask(trie->mask_words()));
  for (const auto& [characters, id] : plain) {
    if (characters > kPlainMasks) {
      trie->longer_.push_back(id);
      trie->longer_characters_.push_back(characters);
    }
    for (size_t i = characters; i <= kPlainMasks; ++i) trie->plain_[i - 1][id / 32] |= 1u << id % 32;
  }
  return std::shared_ptr<const TokenTrie>(std::move(trie));
}

void TokenTrie::allow_plain(int64_t characters, std::span<uint32_t> mask) const {
  if (characters <= 0) return;
  const auto most = static_cast<size_t>(std::min<int64_t>(characters, kPlainMasks));
  const TokenMask& plain = plain_[most - 1];
  for (size_t i = 0; i < mask.size(); ++i) mask[i] |= plain[i];
  for (size_t i = 0; i < longer_.size() && longer_characters_[i] <= characters; ++i) {
    mask[longer_[i] / 32] |= 1u << longer_[i] % 32;
  }
}

}  // namespace switchyard
