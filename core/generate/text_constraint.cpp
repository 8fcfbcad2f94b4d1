// SPDX-License-Identifier: Apache-2.0
#include "core/generate/text_constraint.h"

namespace switchyard {

void TextConstraint::follow(std::span<const int32_t> drawn) {
  for (; followed_ < drawn.size(); ++followed_) {
    const int32_t id = drawn[followed_];
    if (tokenizer_.piece(id).empty() || tokenizer_.is_special(id)) continue;
    if (failed_.ok()) failed_ = matcher_.accept(id);
  }
}

void TextConstraint::allow(std::span<const int32_t> drawn, std::span<uint32_t> mask) {
  follow(drawn);
  if (failed_.ok()) failed_ = matcher_.mask(mask);
}

bool TextConstraint::finished(std::span<const int32_t> drawn) {
  follow(drawn);
  return failed_.ok() && matcher_.finished();
}

Status TextConstraint::fault() const {
  if (failed_.ok()) return {};
  return error(failed_.code(), "{}: {}", name_, failed_.message());
}

void TextConstraint::back() {
  if (!held_) return;
  matcher_ = std::move(held_->matcher);
  followed_ = held_->followed;
  failed_ = std::move(held_->failed);
  held_.reset();
}

std::string TextConstraint::likely(std::span<const int32_t> drawn, size_t max_bytes) {
  follow(drawn);
  return !failed_.ok() ? std::string() : matcher_.likely_text(max_bytes);
}

Result<std::shared_ptr<const Constraint>> compile_constraint(ConstraintKind kind, std::string_view text,
                                                             const Tokenizer& tokenizer, uint32_t vocab,
                                                             std::string_view name) {
  SWY_LET(auto trie, tokenizer.trie(vocab));
  auto compiled = Constraint::compile(kind, text, std::move(trie));
  if (!compiled.ok()) return error(compiled.status().code(), "{}: {}", name, compiled.status().message());
  return compiled;
}

}  // namespace switchyard
