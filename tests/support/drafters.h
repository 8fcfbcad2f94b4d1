// SPDX-License-Identifier: Apache-2.0
// A drafter that knows what will be drawn, and is wrong where it is told to be.
#pragma once

#include <functional>
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

}  // namespace switchyard
