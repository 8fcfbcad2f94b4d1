// SPDX-License-Identifier: Apache-2.0
#include "server/app/constraint_cache.h"

#include <algorithm>

#include "core/generate/text_constraint.h"

namespace switchyard::server {

std::shared_ptr<const Constraint> ConstraintCache::find(ConstraintKind kind, std::string_view text) {
  const auto at = std::find_if(entries_.begin(), entries_.end(),
                               [&](const Entry& entry) { return entry.kind == kind && entry.text == text; });
  if (at == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, at);
  return entries_.front().constraint;
}

std::shared_ptr<const Constraint> ConstraintCache::known(ConstraintKind kind, std::string_view text) {
  const std::lock_guard lock(mutex_);
  return find(kind, text);
}

Result<std::shared_ptr<const Constraint>> ConstraintCache::get(ConstraintKind kind, std::string_view text,
                                                               const Tokenizer& tokenizer, uint32_t vocab,
                                                               std::string_view name) {
  if (auto there = known(kind, text)) return there;
  SWY_LET(auto made, compile_constraint(kind, text, tokenizer, vocab, name));
  const std::lock_guard lock(mutex_);
  if (auto there = find(kind, text)) return there;  // another request was quicker
  entries_.push_front({kind, std::string(text), made});
  if (entries_.size() > kMost) entries_.pop_back();
  return made;
}

}  // namespace switchyard::server
