// SPDX-License-Identifier: Apache-2.0
// TokenConstraint: limits which tokens may be drawn: a pattern, a grammar, a schema.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/base/status.h"

namespace switchyard {

// One object serves one request. It is called while a step runs, so it must be quick. `drawn` is the request's tokens
// so far: it begins with that of the last call, or of the last call before `hold` when `back` was called since.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  // Sets the bits of the tokens that may follow `drawn` in a mask of zeros.
  virtual void allow(std::span<const int32_t> drawn, std::span<uint32_t> mask) = 0;
  // Whether nothing can follow `drawn`: the request ends then, with the reason "pattern".
  virtual bool finished(std::span<const int32_t> drawn) = 0;
  // Why nothing is allowed any more, where that is a limit and not the text so far.
  virtual Status fault() const { return {}; }
  // Remembers what it has followed so far: what comes next is a guess, and `back` takes it back.
  virtual void hold() = 0;
  virtual void back() = 0;
  // What the text must go on with after `drawn`, or is likely to since little else may follow: at most so many bytes.
  // Often empty.
  virtual std::string likely(std::span<const int32_t> drawn, size_t max_bytes) = 0;
  // For the error of a request whose mask allows nothing: "--allow-regex '[0-9]+'".
  virtual std::string name() const = 0;
};

}  // namespace switchyard
