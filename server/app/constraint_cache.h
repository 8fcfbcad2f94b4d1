// SPDX-License-Identifier: Apache-2.0
// ConstraintCache: the compiled constraints of the last requests, so that requests with the same text share one.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "core/constrain/constraint.h"
#include "core/text/tokenizer.h"

namespace switchyard::server {

class ConstraintCache {
 public:
  // At most so many are kept: one may hold 64 MiB of masks (ConstraintLimits).
  static constexpr size_t kMost = 16;

  // Errors: as Constraint::compile, with `name` in front. They are not kept. [thread-safe]
  Result<std::shared_ptr<const Constraint>> get(ConstraintKind kind, std::string_view text, const Tokenizer& tokenizer,
                                                uint32_t vocab, std::string_view name);
  // NULL: it would have to be compiled. [thread-safe]
  std::shared_ptr<const Constraint> known(ConstraintKind kind, std::string_view text);

 private:
  struct Entry {
    ConstraintKind kind;
    std::string text;
    std::shared_ptr<const Constraint> constraint;
  };
  std::shared_ptr<const Constraint> find(ConstraintKind kind, std::string_view text);

  std::mutex mutex_;
  std::list<Entry> entries_;  // the one that was used last is the first
};

}  // namespace switchyard::server
