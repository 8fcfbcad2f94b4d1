// SPDX-License-Identifier: Apache-2.0
#include "core/engine/mtp_drafter.h"

namespace switchyard {
namespace {

constexpr uint32_t kMostWaiting = 256;  // rows until the layer reads them, drafts or not
// Steps with drafts leave at most so many unread rows. More come from text that was read without drafting, and reading
// them is not charged to drafts.
constexpr uint32_t kMostOfAStep = 2 * (MtpDrafter::kMostDrafts + 1);

// Without memory there are no drafts.
Status unless_full(Status status) { return status.code() == Code::out_of_device_memory ? Status() : status; }

}  // namespace

Status MtpDrafter::saw_hidden(uint32_t position, std::span<const int32_t> ids, std::span<const float> rows) {
  session_.trail().saw(position, ids, rows);
  return session_.trail().waiting() > kMostWaiting ? session_.read_or_lose() : Status();
}

Status MtpDrafter::catch_up() {
  reading_ns_ = 0;
  if (session_.trail().waiting() <= kMostOfAStep) return {};
  const uint64_t begin = Os::real().now_ns();
  SWY_TRY(session_.read_or_lose());
  reading_ns_ = Os::real().now_ns() - begin;
  return {};
}

Status MtpDrafter::propose(uint32_t most, Guesses& guesses) {
  SWY_TRY(catch_up());
  if (!session_.can_draft()) return {};
  if (const auto rows = guesses.device_rows(most); !rows.empty()) {
    const auto submitted = session_.submit_drafts(last_, rows);
    if (submitted.ok()) guesses.drawn_by_device(*submitted);
    return unless_full(submitted.status());
  }
  auto logits = session_.draft_row(last_);
  for (uint32_t i = 0;; ++i) {
    if (!logits.ok()) return unless_full(logits.status());
    const std::optional<int32_t> id = guesses.draw(*logits);
    if (!id || i + 1 >= most || !session_.can_draft()) return {};
    logits = session_.next_draft_row(*id);
  }
}

Status add_speculation(Speculation speculation, const Program& program, ModelOptions& options) {
  options.drafts = speculation == Speculation::off ? 0 : kDefaultDrafts;
  const bool layer = MtpLayer::of(program) != nullptr;
  if (speculation == Speculation::mtp && !layer) {
    return error(Code::usage,
                 "--speculate mtp: this model has no multi-token prediction layer; choose auto, or convert a "
                 "checkpoint that has one");
  }
  options.mtp_if_it_fits = speculation != Speculation::mtp;
  options.mtp = options.hidden = layer && (speculation == Speculation::mtp || speculation == Speculation::automatic);
  return {};
}

}  // namespace switchyard
