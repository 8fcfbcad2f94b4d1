// SPDX-License-Identifier: Apache-2.0
// Notes what another drafter guesses, so that guesses of two runs can be compared.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "core/engine/step_runner.h"
#include "tests/support/drafters.h"

namespace switchyard {

// Guesses by the number of tokens before them.
using GuessesMade = std::map<size_t, std::vector<int32_t>>;

// A drafter that computes, is asked every so many times only, and notes what it guessed. `runner`: of the model, whose
// device may draw the guesses, and is a synchronous one.
class NotedDrafter final : public ForwardingDrafter {
 public:
  NotedDrafter(std::shared_ptr<Drafter> inner, GuessesMade& made, uint32_t every, StepRunner* runner = nullptr)
      : ForwardingDrafter(std::move(inner)), made_(made), every_(every), runner_(runner) {}
  void saw(std::span<const int32_t> ids) override {
    seen_ += ids.size();
    inner_->saw(ids);
  }
  void will_propose(uint32_t most, Guesses& guesses) override {
    asks_ = asked_++ % every_ == 0;
    if (asks_) inner_->will_propose(most, guesses);
  }
  Status propose(uint32_t most, Guesses& guesses) override {
    if (!asks_) return {};
    SWY_TRY(inner_->propose(most, guesses));
    std::vector<int32_t>& ids = made_[seen_] = guesses.ids();
    for (int32_t& id : ids) {
      if (id >= 0) continue;
      SWY_TRY(runner_->read_ids(static_cast<uint32_t>(-1 - id), 1));
      SWY_LET(const std::span<const int32_t> read, runner_->ids());
      id = read[0];
    }
    return {};
  }
  bool can_propose() const override { return true; }

 private:
  GuessesMade& made_;
  uint32_t every_, asked_ = 0;
  StepRunner* runner_;
  bool asks_ = false;
  size_t seen_ = 0;
};

// Guesses for the same tokens are the same; at least `least` of them can be compared.
inline void expect_same_guesses(const GuessesMade& a, const GuessesMade& b, size_t least, const std::string& what) {
  size_t compared = 0;
  for (const auto& [seen, guesses] : a) {
    const auto found = b.find(seen);
    if (found == b.end()) continue;
    const size_t n = std::min(guesses.size(), found->second.size());
    EXPECT_EQ(std::vector(guesses.begin(), guesses.begin() + static_cast<ptrdiff_t>(n)),
              std::vector(found->second.begin(), found->second.begin() + static_cast<ptrdiff_t>(n)))
        << what << " after " << seen << " tokens";
    compared += n;
  }
  EXPECT_GE(compared, least) << what;
}

}  // namespace switchyard
