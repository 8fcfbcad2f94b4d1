// SPDX-License-Identifier: Apache-2.0
// AnswerConstraint: limits an answer, and leaves the reasoning before it free.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/constrain/constraint.h"
#include "core/generate/token_constraint.h"
#include "core/text/tokenizer.h"

namespace switchyard::server {

// How a text begins.
enum class Reasoning {
  none,      // with the answer
  open,      // within the reasoning: the prompt opened it
  optional,  // with <think>, or with the answer
};

// A regular expression for the text up to the end of the reasoning; "": there is none.
std::string reasoning_pattern(Reasoning reasoning);

class AnswerConstraint final : public TokenConstraint {
 public:
  // The answer belongs to one of `answers`, of which there is at least one. `before`: of `reasoning_pattern`; NULL:
  // there is no reasoning. `tokenizer` outlives it; `end_ids` end a text where it may end.
  AnswerConstraint(std::shared_ptr<const Constraint> before, bool may_skip,
                   const std::vector<std::shared_ptr<const Constraint>>& answers, const Tokenizer& tokenizer,
                   std::span<const int32_t> end_ids, std::string name);

  void allow(std::span<const int32_t> drawn, std::span<uint32_t> mask) override;
  bool finished(std::span<const int32_t> drawn) override;
  Status fault() const override { return fault_; }
  void hold() override { held_.emplace(Followed{before_, answers_, followed_, fault_}); }
  void back() override;
  std::string likely(std::span<const int32_t> drawn, size_t max_bytes) override;
  std::string name() const override { return name_; }

 private:
  struct Followed {
    std::vector<ConstraintMatcher> before, answers;
    size_t followed;
    Status fault;
  };
  void follow(std::span<const int32_t> drawn);
  void accept(int32_t id);
  bool took(const Status& status);

  std::vector<ConstraintMatcher> before_;   // none or one: while the text may be reasoning
  std::vector<ConstraintMatcher> answers_;  // those that the text fits so far
  std::vector<ConstraintMatcher> fresh_;    // that follow the reasoning
  const Tokenizer& tokenizer_;
  std::string name_;
  std::vector<uint32_t> part_;  // of a mask
  size_t followed_ = 0;         // of `drawn`
  Status fault_ = {};           // the first limit that was reached
  std::optional<Followed> held_;
};

}  // namespace switchyard::server
