// SPDX-License-Identifier: Apache-2.0
// ConstraintCache: the compiled constraints of the last requests, so that requests with the same text share one. What
// cannot be compiled is also known, so that it is not tried again.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "core/constrain/constraint.h"
#include "core/text/tokenizer.h"

namespace switchyard::server {

class ConstraintCache {
 public:
  using Compiled = Result<std::shared_ptr<const Constraint>>;

  // At most so many are kept, and as many errors: one constraint may hold 64 MiB of masks (ConstraintLimits).
  static constexpr size_t kMost = 16;

  // Errors: as Constraint::compile, with `name` in front. They are kept, except where the time ran out, since there may
  // be more of it the next time, and where the text is longer than `limits` allow. [thread-safe]
  Compiled get(ConstraintKind kind, std::string_view text, const Tokenizer& tokenizer, uint32_t vocab,
               std::string_view name, const ConstraintLimits& limits = {});
  // None: it would have to be compiled. [thread-safe]
  std::optional<Compiled> known(ConstraintKind kind, std::string_view text, std::string_view name);

 private:
  struct Entry {
    ConstraintKind kind;
    std::string text;
    Compiled compiled;
  };
  const Compiled* find(ConstraintKind kind, std::string_view text);

  std::mutex mutex_;
  std::list<Entry> entries_;   // the one that was used last is the first
  std::list<Entry> failures_;  // likewise; apart, so that errors push no constraint out
};

}  // namespace switchyard::server
