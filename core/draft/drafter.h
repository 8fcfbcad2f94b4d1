// SPDX-License-Identifier: Apache-2.0
// Drafter: guesses how a sequence goes on. A guess costs time where it is wrong, and never changes what is drawn: each
// drafted token is kept only where the model draws the same one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace switchyard {

// One object serves one sequence, on one thread at a time.
class Drafter {
 public:
  virtual ~Drafter() = default;
  // The sequence goes on with these tokens. Called once for each of its tokens, those of the prompt included.
  virtual void saw(std::span<const int32_t> ids) = 0;
  // Appends at most `most` token ids that may come next; none where it has no good guess.
  virtual void propose(uint32_t most, std::vector<int32_t>& ids) = 0;
  // Whether it may have a guess once `more` further tokens, whichever they are, have been seen. The tokens after one
  // that is not known yet are computed ahead where no drafter may have one.
  virtual bool may_propose_after(uint32_t more) const = 0;
  // The share of its drafts that is expected to be kept, before any was measured.
  virtual double expected_acceptance() const = 0;
};

}  // namespace switchyard
