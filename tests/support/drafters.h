// SPDX-License-Identifier: Apache-2.0
// Drafters for tests: one that knows what will be drawn, and is wrong where it is told to be; and others around it.
#pragma once

#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "core/draft/drafter.h"

namespace switchyard {

enum class Guess { right, wrong, alternating, random };
inline constexpr Guess kGuesses[] = {Guess::right, Guess::wrong, Guess::alternating, Guess::random};

inline const char* guess_name(Guess g) {
  constexpr const char* kNames[] = {"all right", "all wrong", "alternating", "random"};
  return kNames[static_cast<size_t>(g)];
}

class KnowingDrafter final : public Drafter {
 public:
  // `whole`: the prompt and what is drawn after it.
  KnowingDrafter(std::vector<int32_t> whole, Guess guess, uint32_t vocab, uint32_t seed)
      : whole_(std::move(whole)), guess_(guess), vocab_(static_cast<int32_t>(vocab)), random_(seed) {}
  void saw(std::span<const int32_t> ids) override { seen_ += ids.size(); }
  Status propose(uint32_t most, Guesses& guesses) override {
    if (guess_ == Guess::random) most = random_() % (most + 1);
    for (size_t i = 0; i < most; ++i) {
      const bool known = seen_ + i < whole_.size();
      const int32_t right = known ? whole_[seen_ + i] : static_cast<int32_t>(i);
      guesses.add(is_right(i) ? right : (right + 1) % vocab_);
    }
    return {};
  }
  bool may_propose_after(uint32_t) const override { return true; }
  std::string_view name() const override { return "knowing"; }
  double expected_acceptance() const override { return 0.8; }

 private:
  bool is_right(size_t i) {
    if (guess_ == Guess::random) return random_() % 4 != 0;
    return guess_ == Guess::right || (guess_ == Guess::alternating && i % 2 == 0);
  }

  std::vector<int32_t> whole_;
  Guess guess_;
  int32_t vocab_;
  std::mt19937 random_;
  size_t seen_ = 0;
};

// Hands everything on to another one.
class ForwardingDrafter : public Drafter {
 public:
  explicit ForwardingDrafter(std::shared_ptr<Drafter> inner) : inner_(std::move(inner)) {}
  void saw(std::span<const int32_t> ids) override { inner_->saw(ids); }
  Status propose(uint32_t most, Guesses& guesses) override { return inner_->propose(most, guesses); }
  bool may_propose_after(uint32_t more) const override { return inner_->may_propose_after(more); }
  std::string_view name() const override { return inner_->name(); }
  double expected_acceptance() const override { return inner_->expected_acceptance(); }
  bool computes() const override { return inner_->computes(); }
  bool can_propose() const override { return inner_->can_propose(); }
  uint32_t most_drafts() const override { return inner_->most_drafts(); }
  void will_propose(uint32_t most, Guesses& guesses) override { inner_->will_propose(most, guesses); }
  uint64_t reading_ns() const override { return inner_->reading_ns(); }
  bool wants_hidden() const override { return inner_->wants_hidden(); }
  Status saw_hidden(uint32_t position, std::span<const int32_t> ids, std::span<const float> rows) override {
    return inner_->saw_hidden(position, ids, rows);
  }

 protected:
  std::shared_ptr<Drafter> inner_;
};

// Has at most so many guesses for a step, so that other sequences have some, too.
class LimitedDrafter final : public ForwardingDrafter {
 public:
  LimitedDrafter(std::shared_ptr<Drafter> inner, uint32_t most) : ForwardingDrafter(std::move(inner)), most_(most) {}
  Status propose(uint32_t most, Guesses& guesses) override { return inner_->propose(std::min(most, most_), guesses); }
  uint32_t most_drafts() const override { return std::min(most_, inner_->most_drafts()); }

 private:
  uint32_t most_;
};

}  // namespace switchyard
