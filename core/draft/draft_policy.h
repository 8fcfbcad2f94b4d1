// SPDX-License-Identifier: Apache-2.0
// DraftPolicy: how many drafted tokens a step verifies, by what steps of each size take and by how many drafts were
// kept. It keeps an account of the time that drafts have saved and lost, and drafts only while all losses together stay
// within one plain step and 1% of the time so far.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace switchyard {

// The share of one sequence's drafts that is kept.
class Acceptance {
 public:
  void start(double expected) { share_ = expected; }
  // `kept` drafts of a step stood; `missed`: and the next one did not.
  void measured(uint32_t kept, bool missed);
  // A guess was not tried: after many of them one is tried again.
  void passed() { share_ += 0.002 * (kRetried - share_); }
  double share() const { return share_; }

 private:
  static constexpr double kRetried = 0.6;
  double share_ = 0;
};

class DraftPolicy {
 public:
  // A step that read no prompt has ended: `rows` of `seqs` sequences gave `tokens` in `ns`.
  void stepped(uint32_t rows, uint32_t seqs, uint32_t tokens, uint64_t ns);
  // The same of a step that was the first of its kind, and was planned first.
  void stepped_first(uint32_t rows, uint32_t seqs, uint32_t tokens, uint64_t ns);

  // How many of `proposed` drafts of a sequence to add to a step that has `rows`, of `seqs` sequences, and is expected
  // to give `tokens`. `share` of its drafts is kept. `feeds_again`: if not all are, the next step has the rows that
  // stand once more.
  uint32_t choose(uint32_t rows, uint32_t seqs, double tokens, uint32_t proposed, double share,
                  bool feeds_again = false) const;

  // What a step is expected to take; 0: nothing is known.
  double cost_ns(uint32_t rows, uint32_t seqs) const;
  double balance_ns() const { return balance_; }  // that drafts have saved; below 0: lost

 private:
  static constexpr size_t kSizes = 17;       // up to 2^16 rows
  using Costs = std::array<double, kSizes>;  // by the next power of two of rows; 0: not measured
  static size_t size_of(uint32_t rows);

  Costs plain_{}, wide_{};              // of steps with a row a sequence, and with more
  uint32_t since_plain_ = 0;            // steps
  std::array<bool, kSizes> planned_{};  // steps with more than a row a sequence
  double plan_ns_ = 0;                  // what planning a step takes
  double spent_ = 0;                    // in steps
  double balance_ = 0;
};

}  // namespace switchyard
