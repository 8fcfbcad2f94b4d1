// SPDX-License-Identifier: Apache-2.0
// TokenConstraint: limits which tokens may be drawn: a pattern, a grammar, a schema.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/base/status.h"

namespace switchyard {

// One object serves one request. It is called while a step runs, so it must be quick.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  // Sets the bits of the tokens that may follow `drawn` in a mask of zeros. `drawn` begins with that of the last call.
  virtual void allow(std::span<const int32_t> drawn, std::span<uint32_t> mask) = 0;
  // Whether nothing can follow `drawn`: the request ends then, with the reason "pattern".
  virtual bool finished(std::span<const int32_t> drawn) = 0;
  // Why nothing is allowed any more, where that is a limit and not the text so far.
  virtual Status fault() const { return {}; }
  // For the error of a request whose mask allows nothing: "--allow-regex '[0-9]+'".
  virtual std::string name() const = 0;
};

}  // namespace switchyard
