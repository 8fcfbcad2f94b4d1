// SPDX-License-Identifier: Apache-2.0
// DraftPolicy: how many drafted tokens a step verifies, by what steps of each size take, by what the drafts themselves
// take, and by how many drafts are kept. A model has one for all its sequences: what was measured with one text is
// known for the next.
//
// It never tries more than it may lose. Accounts of the time that drafts saved and lost, one of all sequences and one
// of each, allow losses of one and a half plain steps at first, of half a percent of the time so far, and of what was
// saved before.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string_view>

#include "core/draft/acceptance.h"

namespace switchyard {

// The time that drafts have saved and lost.
class DraftAccount {
 public:
  // A step took `ns`. `saved`: how much less than the same tokens would have taken in plain steps of `plain` ns;
  // negative: more.
  void add(double ns, double saved, double plain);
  double may_lose(double plain) const;
  double balance_ns() const { return balance_; }  // below 0: lost

 private:
  double spent_ = 0, balance_ = 0;
};

// Of times that were measured. Later ones count more; of the first three, which are often slow, only the least.
struct AverageTime {
  static constexpr uint32_t kMost = 8;
  double ns = 0;       // 0: none was measured
  uint32_t count = 0;  // up to kMost
  void take(double measured);
};

// What a step of decoding sequences was, and took.
struct DraftedStep {
  uint32_t rows = 0, seqs = 0, tokens = 0;  // tokens: that were drawn
  uint64_t ns = 0;                          // without the drafters' time
  uint32_t computed = 0;                    // drafts that a device computed
  uint64_t drafting_ns = 0;                 // in so much time, for `drafting` sequences
  uint32_t drafting = 0, asked = 0;         // asked: drafts that were wanted of these
  bool first = false;                       // it was the first of its kind, and was planned first
};

class DraftPolicy {
 public:
  // Returns the step, its times divided anew if the host learnt them late.
  DraftedStep stepped(DraftedStep step);

  // One sequence's part of a step, for its account.
  struct Part {
    uint32_t rows = 0, tokens = 0, asked = 0, seqs = 1;
  };
  void settle(DraftAccount& account, const DraftedStep& step, const Part& part) const;
  // A step read a prompt: the next one finds caches of other contents.
  void read_prompt() { cold_ = true; }
  // Drafters took so long to follow texts, whether they drafted or not.
  void followed(uint64_t ns);

  struct Ask {
    uint32_t rows = 0, seqs = 0;  // of the step so far
    uint32_t undrafted = 0;       // rows that it would have without drafts
    double tokens = 0;            // that it is expected to give
    double drafting_ns = 0;       // for drafts that it has
    uint32_t proposed = 0;        // drafts of a sequence that may be added
    uint32_t drafting = 0;        // 0: they are there; else a device computes drafts of so many sequences, these too
    bool feeds_again = false;     // if not all are kept, the next step has the rows that stand once more
    std::function<bool(uint32_t rows)> has_lists = {};  // of so many: it need not be planned; none: all have
  };
  // How many of the proposed drafts of a sequence to add, whose acceptance and account these are.
  uint32_t choose(const Ask& ask, const Acceptance& acceptance, const DraftAccount& account) const;

  // What was measured of a drafter's guesses, in all sequences. The name outlives the policy.
  Acceptance& usual(std::string_view drafter, double expected);
  // Whether guesses that a device computes, at most so many, may pay in a sequence of its own, as far as that is known.
  bool may_pay(const Acceptance& acceptance, uint32_t most) const;
  // Whether a drafter that follows its text may begin with one: not while time is to be made up for.
  bool may_follow() const { return plain_[0].ns == 0 || all_.may_lose(plain_[0].ns) > 0; }

  // What a step is expected to take; 0: nothing is known.
  double cost_ns(uint32_t rows, uint32_t seqs) const;
  // What a draft takes that a device computes, beside those of other sequences.
  double draft_ns(uint32_t drafting) const;
  double balance_ns() const { return account_.balance_ns(); }

 private:
  static constexpr uint32_t kExact = 32;            // steps of up to so many sequences are told apart
  static constexpr uint32_t kCounts = kExact + 12;  // and larger ones by powers of two
  static constexpr uint32_t kExtras = 64;           // rows besides one a sequence
  static constexpr uint32_t kSizes = 17;            // powers of two up to 2^16
  using Extra = std::array<AverageTime, kExtras + 1>;

  static size_t count_of(uint32_t seqs);
  static size_t size_of(uint32_t rows);
  double extra_ns(uint32_t extra, uint32_t seqs, double plain) const;
  bool learnt_late(const DraftedStep& step) const;
  void measure_plain(const DraftedStep& step);
  static double saved_ns(const DraftedStep& step, const Part& part, double plain);
  const AverageTime* draft_time(uint32_t drafting) const;
  // What costs of drafts are taken to be, as a share of what was measured.
  double cheaper() const;

  std::array<AverageTime, kCounts> plain_{};      // steps with a row a sequence, by sequences
  std::array<uint32_t, kCounts> since_plain_{};   // steps with more
  uint32_t since_drafted_ = 0;                    // steps without
  bool cold_ = false;                             // the last step read a prompt
  std::array<Extra, kSizes> extra_{};             // further rows, by sequences and rows
  std::array<bool, kSizes> measured_{};           // whether there is any, by sequences
  std::array<AverageTime, kSizes> draft_{};       // a draft, by sequences
  double plan_ns_ = 0;                            // what planning a step takes
  DraftAccount account_, all_;                    // of guesses; with what drafters take besides, to follow texts
  std::map<std::string_view, Acceptance> usual_;  // by drafter
};

}  // namespace switchyard
