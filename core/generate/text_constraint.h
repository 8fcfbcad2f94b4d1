// SPDX-License-Identifier: Apache-2.0
// TextConstraint: a compiled constraint as the limit of one request's tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/constrain/constraint.h"
#include "core/generate/token_constraint.h"
#include "core/text/tokenizer.h"

namespace switchyard {

class TextConstraint : public TokenConstraint {
 public:
  // `tokenizer` outlives it. `name` is what messages call the constraint. `end_ids` are allowed where the text may end.
  TextConstraint(std::shared_ptr<const Constraint> constraint, const Tokenizer& tokenizer,
                 std::span<const int32_t> end_ids, std::string name)
      : matcher_(std::move(constraint), end_ids), tokenizer_(tokenizer), name_(std::move(name)) {}

  void allow(std::span<const int32_t> drawn, std::span<uint32_t> mask) override;
  bool finished(std::span<const int32_t> drawn) override;
  Status fault() const override;
  void hold() override { held_.emplace(Followed{matcher_, followed_, failed_}); }
  void back() override;
  std::string likely(std::span<const int32_t> drawn, size_t max_bytes) override;
  std::string name() const override { return name_; }

 private:
  struct Followed {
    ConstraintMatcher matcher;
    size_t followed;
    Status failed;
  };
  void follow(std::span<const int32_t> drawn);

  ConstraintMatcher matcher_;
  const Tokenizer& tokenizer_;
  std::string name_;
  size_t followed_ = 0;  // of `drawn`
  Status failed_ = {};   // a limit was reached: nothing is allowed any more
  std::optional<Followed> held_;
};

// Compiles for a model's vocabulary. Errors: as Constraint::compile, with `name` in front.
Result<std::shared_ptr<const Constraint>> compile_constraint(ConstraintKind kind, std::string_view text,
                                                             const Tokenizer& tokenizer, uint32_t vocab,
                                                             std::string_view name);

}  // namespace switchyard
