// SPDX-License-Identifier: Apache-2.0
// Texts with and without drafts, in turn: what drafts cost and save. Forced guesses are of the text that was drawn
// without drafts before. So that they are right as often as they are meant to be, also where a row in a step of several
// is rounded in another way than alone, such texts are drawn at a high temperature: the noise, which is the seed's,
// then decides nearly alone.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/engine/batch.h"
#include "core/engine/mtp_drafter.h"

namespace switchyard {

// A file, or synth:...
Result<Program> bench_program(const std::string& name);

inline constexpr float kForcedTemperature = 64;

struct BenchText {
  std::vector<int32_t> prompt, ids;
  double ms_a_token = 0;  // from the first token to the last
  double ms = 0;          // of the whole request
  DraftCounts drafts;
};

// How a text is told.
struct Telling {
  uint32_t tokens = 160;
  float temperature = kForcedTemperature;
  std::shared_ptr<Drafter> drafter = {};
  bool always = false;
};
Result<BenchText> tell(Session& session, const std::vector<int32_t>& prompt, const Telling& how);

// Which guesses are wrong.
struct Wrong {
  double share = 0;
  bool drawn = false;  // each with this probability; else so many of each 20 tokens, at random ones of them
};

// Guesses for a text of which a share is wrong. With `layer` a session's multi-token prediction layer computes as many
// of its own, which are not used.
class ForcedDrafter final : public Drafter {
 public:
  ForcedDrafter(const char* name, const BenchText& text, Wrong wrong, uint32_t most, uint32_t seed,
                Session* layer = nullptr);
  void saw(std::span<const int32_t> ids) override { seen_ += ids.size(); }
  Status propose(uint32_t most, Guesses& guesses) override;
  bool may_propose_after(uint32_t) const override { return true; }
  std::string_view name() const override { return name_; }
  double expected_acceptance() const override { return !inner_ ? 0.8 : inner_->expected_acceptance(); }
  bool computes() const override { return inner_.has_value(); }
  bool can_propose() const override { return !inner_ || inner_->can_propose(); }
  uint32_t most_drafts() const override { return most_; }
  uint64_t reading_ns() const override { return !inner_ ? 0 : inner_->reading_ns(); }
  bool wants_hidden() const override { return inner_.has_value(); }
  Status saw_hidden(uint32_t position, std::span<const int32_t> ids, std::span<const float> rows) override {
    return inner_->saw_hidden(position, ids, rows);
  }

 private:
  int32_t guess(size_t at) const { return !wrong_[at] ? whole_[at] : whole_[at] == 0 ? 1 : 0; }

  const char* name_;
  std::vector<int32_t> whole_;
  std::vector<bool> wrong_;  // by place in the text
  uint32_t most_;
  Session* layer_;                   // NULL: none computes
  std::optional<MtpDrafter> inner_;  // of it
  size_t seen_ = 0;
};

// Where the time of steps goes, by the stretches of the thread that steps.
class StretchSums final : public StepObserver {
 public:
  void stretch(const char* what, uint64_t begin_ns, uint64_t end_ns) override;
  void submitting(const Plan&, const PlanSegment&) override {}
  void submitted(const Plan&, const PlanSegment&, uint64_t begin_ns, uint64_t end_ns) override {
    stretch("submit", begin_ns, end_ns);
  }
  void stepped() override {}
  void print() const;

 private:
  struct Sum {
    std::string what;
    uint64_t times = 0, ns = 0;
  };
  std::vector<Sum> sums_;
};

// Pairs of texts, and a row of a table of them.
class TextPairs {
 public:
  static void print_head();
  using Tell = std::function<Result<BenchText>()>;
  Status add(bool plain_first, const Tell& plain, const Tell& with);
  void print(const std::string& name) const;

 private:
  std::vector<double> ratio_, plain_ms_, ms_;
  double plain_all_ = 0, all_ = 0;
  uint64_t drafted_ = 0, accepted_ = 0;
  size_t same_ = 0;
};

}  // namespace switchyard
