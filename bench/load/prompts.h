// SPDX-License-Identifier: Apache-2.0
// Prompts of a wanted length in tokens for a server whose tokenizer is not known: words, whose tokens the server
// counts.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "bench/load/load.h"

namespace switchyard::bench {

// `count` short English words from a generator.
std::string words(std::mt19937_64& random, uint32_t count);

// How many tokens a text of words has: `fixed` (the chat template's) and so many for each word.
struct TokenRate {
  double fixed = 0, per_word = 1;
  // From the tokens of two texts of kFew and kMany words; the default where the server does not count.
  static TokenRate of(uint32_t few, uint32_t many);
  uint32_t words(uint32_t tokens) const;
  static constexpr uint32_t kFew = 16, kMany = 80;
};

// The turns of one conversation, and the bodies of their requests.
class Conversation {
 public:
  // The index-th of a load: the same for equal seeds.
  Conversation(const Load& load, const TokenRate& rate, uint32_t index);

  // The body of the next turn's request.
  std::string next_body();
  void answered(const std::string& text);

 private:
  const Load& load_;
  const TokenRate rate_;
  std::mt19937_64 random_;
  std::string opening_;                                    // shared by all conversations
  std::vector<std::pair<std::string, std::string>> said_;  // role and text
};

// A request's body for a text; at most `tokens` tokens are drawn.
std::string request_body(const Load& load, const std::vector<std::pair<std::string, std::string>>& said,
                         uint32_t tokens);

}  // namespace switchyard::bench
