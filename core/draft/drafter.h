// SPDX-License-Identifier: Apache-2.0
// Drafter: guesses how a sequence goes on. A guess costs time where it is wrong, and never changes what is drawn: each
// drafted token is kept only where the model draws the same one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace switchyard {

struct SampleRow;  // of the engine: how a device draws a row

// The guesses for a sequence's next tokens, which a drafter makes one after the other.
class Guesses {
 public:
  virtual ~Guesses() = default;
  // A token id from elsewhere than logits.
  void add(int32_t id) { ids_.push_back(id); }
  // Draws the next guess from logits f32 [vocab] as the sequence itself would: with its parameters, its seed and the
  // noise of the guess's position, under the mask and with the counts that follow from the guesses before. Two models
  // that draw with the same noise draw the same token as often as their distributions allow. None: nothing can be drawn
  // there, or the sequence would end.
  virtual std::optional<int32_t> draw(std::span<const float> logits) {
    (void)logits;
    return std::nullopt;
  }
  // Where a device can draw the guesses as the sequence's own tokens: how it draws each of at most `most`. Empty: the
  // guesses are drawn from logits. The drafter submits the work, and says of how many guesses; nothing waits for them.
  virtual std::span<const SampleRow> device_rows(uint32_t most) {
    (void)most;
    return {};
  }
  virtual void drawn_by_device(uint32_t guesses) { (void)guesses; }
  const std::vector<int32_t>& ids() const { return ids_; }

 protected:
  std::vector<int32_t> ids_;
};

// One object serves one sequence, on one thread at a time.
class Drafter {
 public:
  virtual ~Drafter() = default;
  // The sequence goes on with these tokens. Called once for each of its tokens, those of the prompt included.
  virtual void saw(std::span<const int32_t> ids) = 0;
  // Adds at most `most` guesses; none where it has no good one. Errors: those of a device; they end the request.
  virtual Status propose(uint32_t most, Guesses& guesses) = 0;
  // Whether it may have a guess once `more` further tokens, whichever they are, have been seen. The tokens after one
  // that is not known yet are computed ahead where no drafter may have one.
  virtual bool may_propose_after(uint32_t more) const = 0;
  // What acceptance is measured by, for all sequences together: drafters that guess in the same way have the same name.
  virtual std::string_view name() const = 0;  // static
  // The share of its drafts that is expected to be kept, before any was measured.
  virtual double expected_acceptance() const = 0;

  // Whether its guesses take a device's time. It is asked only for as many as are worth that, and the time is part of
  // what drafts cost.
  virtual bool computes() const { return false; }
  virtual bool can_propose() const { return true; }            // false: one that computes will have no guess now
  virtual uint32_t most_drafts() const { return UINT32_MAX; }  // guesses that it computes
  // Of a drafter that computes: `propose` follows with the same arguments. All sequences of a step are announced before
  // the first is asked, so that drafters that share a device can compute for all of them at once.
  virtual void will_propose(uint32_t most, Guesses& guesses) { (void)most, (void)guesses; }

  // Of the last `propose`, what it took to read texts for which it did not guess yet. It is no part of what drafts
  // cost.
  virtual uint64_t reading_ns() const { return 0; }

  // Whether it wants the hidden rows of the sequence's tokens. Needs a model with ModelOptions::hidden.
  virtual bool wants_hidden() const { return false; }
  // The sequence's tokens from index `position` on, which stand, and their hidden rows f32 [ids, width]. They come
  // before the next `propose`, and before a prompt's states are kept. An index may come twice. Tokens that the session
  // had seen before the request do not come. Errors: those of a device; they end the request.
  virtual Status saw_hidden(uint32_t position, std::span<const int32_t> ids, std::span<const float> rows) {
    (void)position, (void)ids, (void)rows;
    return {};
  }
};

}  // namespace switchyard
