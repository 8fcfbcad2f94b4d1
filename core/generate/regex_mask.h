// SPDX-License-Identifier: Apache-2.0
// RegexMask: the tokens with which a text can still become one that a pattern matches as a whole. Built on the partial
// matching of PCRE2.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/generate/token_constraint.h"
#include "core/text/tokenizer.h"

namespace switchyard {

class RegexMask : public TokenConstraint {
 public:
  // `tokenizer` outlives it. `end_ids` are allowed where the text is complete. The pattern sees bytes. Errors: usage,
  // for a pattern that PCRE2 refuses (back references and other things that need backtracking among them).
  static Result<std::unique_ptr<RegexMask>> create(const std::string& pattern, const Tokenizer& tokenizer,
                                                   uint32_t vocab, std::span<const int32_t> end_ids);
  ~RegexMask() override;

  // Sets the bits of the tokens that may follow the text of `drawn`, which begins with the `drawn` of the last call.
  void allow(std::span<const int32_t> drawn, std::span<uint32_t> mask) override;
  // Whether the text of `drawn` matches as a whole, and no longer text does.
  bool finished(std::span<const int32_t> drawn) override;
  std::string name() const override;  // "--allow-regex '…'"

 private:
  bool complete(std::span<const int32_t> drawn);
  struct Matcher;
  RegexMask() = default;
  void follow(std::span<const int32_t> drawn);

  std::string pattern_;
  std::unique_ptr<Matcher> matcher_;
  const Tokenizer* tokenizer_ = nullptr;
  std::vector<int32_t> end_ids_;
  std::vector<int32_t> by_text_;  // ids of tokens that have a text, in order of it
  std::string text_;              // of `drawn`
  size_t followed_ = 0;           // of `drawn`
};

}  // namespace switchyard
