// SPDX-License-Identifier: Apache-2.0
// MtpDrafter: the model's own multi-token prediction layer guesses the next tokens, one after the other, each from the
// layer's row of the one before.
#pragma once

#include "core/draft/drafter.h"
#include "core/draft/speculation.h"
#include "core/engine/session.h"

namespace switchyard {

class MtpDrafter final : public Drafter {
 public:
  static constexpr uint32_t kMostDrafts = 8;    // each further one stands on all before
  static constexpr uint32_t kAlwaysDrafts = 3;  // where nothing is measured

  // The session outlives it, and its model was made with ModelOptions::mtp and `hidden`.
  explicit MtpDrafter(Session& session, uint32_t most = kMostDrafts) : session_(session), most_(most) {}

  void saw(std::span<const int32_t> ids) override {
    if (!ids.empty()) last_ = ids.back();
  }
  Status propose(uint32_t most, Guesses& guesses) override;
  bool may_propose_after(uint32_t) const override { return true; }
  std::string_view name() const override { return "mtp"; }
  double expected_acceptance() const override { return 0.6; }
  bool computes() const override { return true; }
  bool can_propose() const override { return session_.can_draft(); }
  uint32_t most_drafts() const override { return most_; }
  uint64_t reading_ns() const override { return reading_ns_; }
  bool wants_hidden() const override { return true; }
  // The layer reads what it has not read of the text.
  Status catch_up();
  Status saw_hidden(uint32_t position, std::span<const int32_t> ids, std::span<const float> rows) override;

 private:
  Session& session_;
  uint32_t most_;
  int32_t last_ = -1;  // the sequence's last token
  uint64_t reading_ns_ = 0;
};

// What a model needs for drafts of this kind. Errors: usage, where its program lacks the layer that is asked for.
Status add_speculation(Speculation speculation, const Program& program, ModelOptions& options);

}  // namespace switchyard
