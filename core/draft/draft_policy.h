// SPDX-License-Identifier: Apache-2.0
// DraftPolicy: how many drafted tokens a step verifies, by what steps of each size take, by what the drafts themselves
// take, and by how many drafts were kept. It keeps an account of the time that drafts have saved and lost, and drafts
// only while all losses together stay within half a plain step and 1% of the time so far.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace switchyard {

// The shares of one sequence's drafts that are kept, by their place among a step's drafts.
class Acceptance {
 public:
  static constexpr uint32_t kPlaces = 32;  // those after the last are like it

  void start(double expected);
  // `kept` drafts of a step stood; `missed`: and the next one did not.
  void measured(uint32_t kept, bool missed);
  // A guess was not tried: after many of them one is tried again.
  void passed();
  // That the draft at `place` is kept, if all before it are.
  double share(uint32_t place) const { return share_[place < kPlaces ? place : kPlaces - 1]; }
  // How many of the first `drafts` are expected to be kept.
  double kept(uint32_t drafts) const;

 private:
  void update();

  double expected_ = 0;
  std::array<double, kPlaces> seen_{}, weight_{}, share_{};
};

// What a step of decoding sequences was, and took.
struct DraftedStep {
  uint32_t rows = 0, seqs = 0, tokens = 0;  // tokens: that were drawn
  uint64_t ns = 0;                          // without the drafters' time
  uint32_t computed = 0;                    // drafts that a device computed
  uint64_t drafting_ns = 0;                 // in so much time, for `drafting` sequences
  uint32_t drafting = 0;
  bool first = false;  // it was the first of its kind, and was planned first
};

class DraftPolicy {
 public:
  void stepped(const DraftedStep& step);

  struct Ask {
    uint32_t rows = 0, seqs = 0;  // of the step so far
    uint32_t undrafted = 0;       // rows that it would have without drafts
    double tokens = 0;            // that it is expected to give
    double drafting_ns = 0;       // for drafts that it has
    uint32_t proposed = 0;        // drafts of a sequence that may be added
    uint32_t drafting = 0;        // 0: they are there; else a device computes drafts of so many sequences, these too
    bool feeds_again = false;     // if not all are kept, the next step has the rows that stand once more
  };
  // How many of the proposed drafts to add.
  uint32_t choose(const Ask& ask, const Acceptance& acceptance) const;

  // What a step is expected to take; 0: nothing is known.
  double cost_ns(uint32_t rows, uint32_t seqs) const;
  // What a draft takes that a device computes, beside those of other sequences.
  double draft_ns(uint32_t drafting) const;
  double balance_ns() const { return balance_; }  // that drafts have saved; below 0: lost

 private:
  static constexpr uint32_t kExact = 32;            // steps of up to so many sequences are told apart
  static constexpr uint32_t kCounts = kExact + 12;  // and larger ones by powers of two
  static constexpr uint32_t kExtras = 64;           // rows besides one a sequence
  static constexpr uint32_t kSizes = 17;            // powers of two up to 2^16
  using Extra = std::array<double, kExtras + 1>;

  static size_t count_of(uint32_t seqs);
  static size_t size_of(uint32_t rows);
  double extra_ns(uint32_t extra, uint32_t seqs, double plain) const;

  std::array<double, kCounts> plain_{};          // ns of steps with a row a sequence, by sequences; 0: not measured
  std::array<uint32_t, kCounts> plain_steps_{};  // how many of them were measured, up to a few
  std::array<uint32_t, kCounts> since_plain_{};  // steps with more
  std::array<Extra, kSizes> extra_{};            // ns of further rows, by sequences and rows; 0: not measured
  std::array<bool, kSizes> measured_{};          // whether there is any, by sequences
  std::array<double, kSizes> draft_{};           // ns of a draft, by sequences; 0: not measured
  std::array<bool, kSizes> planned_{};           // steps with more than a row a sequence, by rows
  double plan_ns_ = 0;                           // what planning a step takes
  double spent_ = 0;                             // in steps and drafters
  double balance_ = 0;
};

}  // namespace switchyard
