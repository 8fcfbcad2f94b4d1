// Splitter: splits a text by a regular expression; matches, and the texts between them, are separate pieces.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/status.h"

namespace switchyard {

class Splitter {
 public:
  // Errors: unsupported, with PCRE2's reason.
  static Result<Splitter> compile(const std::string& pattern);

  // Calls `piece` for every part of `text` (valid UTF-8), in order. Errors: internal, when matching exceeds its limits.
  // Thread-safe.
  Status split(std::string_view text, const std::function<void(std::string_view)>& piece) const;

 private:
  struct Free {
    void operator()(void* code) const;
  };
  std::unique_ptr<void, Free> code_;
};

}  // namespace switchyard
