// SPDX-License-Identifier: Apache-2.0
// ForcedText: drafts the text to which a constraint leaves no other way, such as the names of a schema's members. It
// allows several tokenizations of it; the guess is the tokenizer's own. The model still draws every token under its
// mask, so where it splits the text in another way, its own tokens are what comes out, as without drafts.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "core/draft/drafter.h"
#include "core/generate/token_constraint.h"
#include "core/text/tokenizer.h"

namespace switchyard {

class ForcedText final : public Drafter {
 public:
  // `drawn`: the request's tokens so far, at every call. It and `tokenizer` outlive this object.
  ForcedText(std::shared_ptr<TokenConstraint> constraint, const Tokenizer& tokenizer, const std::vector<int32_t>& drawn)
      : constraint_(std::move(constraint)), tokenizer_(tokenizer), drawn_(drawn) {}
  void saw(std::span<const int32_t>) override {}
  Status propose(uint32_t most, Guesses& guesses) override;
  bool may_propose_after(uint32_t) const override { return true; }
  std::string_view name() const override { return "forced"; }
  double expected_acceptance() const override { return 0.9; }

 private:
  std::shared_ptr<TokenConstraint> constraint_;
  const Tokenizer& tokenizer_;
  const std::vector<int32_t>& drawn_;
};

}  // namespace switchyard
