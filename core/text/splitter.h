// SPDX-License-Identifier: Apache-2.0
// Splitter: splits a text by a regular expression; matches, and the texts between them, are separate pieces.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/status.h"

namespace switchyard {

// Bounds the processor time that splitting one text may take: a pattern from a file can make the matcher try every
// way to cut a word. One per text, on the thread that splits it.
class SplitBudget {
 public:
  explicit SplitBudget(size_t text_bytes);
  // Before each match. Errors: invalid_data, when the time is used up.
  Status charge();

 private:
  uint64_t end_ns_;  // of the thread's processor time
  uint32_t matches_ = 0;
};

class Splitter {
 public:
  // Errors: unsupported, with PCRE2's reason.
  static Result<Splitter> compile(const std::string& pattern);

  // Calls `piece` for every part of `text` (valid UTF-8), in order. Errors: invalid_data, when the pattern takes more
  // steps on this text than one match may, or more time than `budget` has. Thread-safe.
  Status split(std::string_view text, SplitBudget& budget, const std::function<void(std::string_view)>& piece) const;

 private:
  struct Free {
    void operator()(void* code) const;
  };
  std::unique_ptr<void, Free> code_;
};

}  // namespace switchyard
