// SPDX-License-Identifier: Apache-2.0
#include "server/app/constraint_cache.h"

#include <algorithm>
#include <vector>

#include "core/base/os.h"

namespace switchyard::server {

namespace {

ConstraintCache::Compiled named(const ConstraintCache::Compiled& compiled, std::string_view name) {
  if (compiled.ok()) return compiled;
  return error(compiled.status().code(), "{}: {}", name, compiled.status().message());
}

// The first mask of a large schema takes the longest, a tenth of a second: later ones find its states. Here it delays
// no other request's step.
void prepare(const std::shared_ptr<const Constraint>& constraint, uint32_t vocab) {
  ConstraintMatcher first(constraint);
  std::vector<uint32_t> mask((vocab + 31) / 32);
  (void)first.mask(mask).ok();  // the request that needs it finds the same error
}

}  // namespace

const ConstraintCache::Compiled* ConstraintCache::find(ConstraintKind kind, std::string_view text) {
  for (std::list<Entry>* const entries : {&entries_, &failures_}) {
    const auto at = std::find_if(entries->begin(), entries->end(),
                                 [&](const Entry& entry) { return entry.kind == kind && entry.text == text; });
    if (at == entries->end()) continue;
    entries->splice(entries->begin(), *entries, at);
    return &entries->front().compiled;
  }
  return nullptr;
}

std::optional<ConstraintCache::Compiled> ConstraintCache::known(ConstraintKind kind, std::string_view text,
                                                                std::string_view name) {
  const std::lock_guard lock(mutex_);
  const Compiled* there = find(kind, text);
  if (there == nullptr) return std::nullopt;
  return named(*there, name);
}

ConstraintCache::Compiled ConstraintCache::get(ConstraintKind kind, std::string_view text, const Tokenizer& tokenizer,
                                               uint32_t vocab, std::string_view name, const ConstraintLimits& limits) {
  if (auto there = known(kind, text, name)) return std::move(*there);
  SWY_LET(auto trie, tokenizer.trie(vocab));
  const uint64_t begun = Os::real().now_ns();
  const Compiled made = Constraint::compile(kind, text, std::move(trie), limits);
  const bool late = Os::real().now_ns() - begun >= limits.compile_ns;
  if (!made.ok() && (late || text.size() > limits.text_bytes)) return named(made, name);
  if (made.ok()) prepare(*made, vocab);
  const std::lock_guard lock(mutex_);
  if (const Compiled* there = find(kind, text)) return named(*there, name);  // another request was quicker
  std::list<Entry>& entries = made.ok() ? entries_ : failures_;
  entries.push_front({kind, std::string(text), made});
  if (entries.size() > kMost) entries.pop_back();
  return named(made, name);
}

}  // namespace switchyard::server
