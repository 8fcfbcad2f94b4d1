// SPDX-License-Identifier: Apache-2.0
// Batch: guesses that are drawn as the request's tokens are: by the host from a drafter's logits, or by the device. The
// latter are known only when the step that verifies them is under way: until then a row names where the device puts its
// token.
#include <algorithm>
#include <utility>

#include "core/engine/batch_request.h"

namespace switchyard {

// Once a device has drawn guesses, it is known which they are, and how long it took.
Status Batch::learn_guesses(Flight& flight) {
  if (std::exchange(guesses_, 0) == 0) return {};
  SWY_LET(const std::span<const int32_t> ids, model_.runner().ids());
  drafting_ns_ = Os::real().now_ns() - draft_begin_ns_ - reading_ns_;
  const auto first = static_cast<int32_t>(model_.runner().guess_entries());
  for (const FlightPart& p : flight.parts) {
    if (p.drafts == 0 || p.request == nullptr) continue;
    for (int32_t& id : std::span(p.request->rows).last(p.drafts)) {
      if (id < 0) id = ids[static_cast<size_t>(-1 - id - first)];
    }
  }
  return {};
}

// The device draws guesses as it draws the sequence's tokens, if it draws those of every row.
std::span<const SampleRow> Batch::RequestGuesses::device_rows(uint32_t most) {
  rows_.clear();
  MtpLayer* const layer = batch_.model_.mtp();
  const bool draws = layer != nullptr && layer->draws() && r_.outcome.path.path == SamplingPath::fused &&
                     draws_each_row(r_) && r_.sampler.biases().empty();
  if (!draws) return {};
  const uint32_t first = batch_.model_.runner().guess_entries() + batch_.guesses_;
  const uint64_t position = r_.session.position() + r_.unfed().size();
  for (uint32_t i = 0; i < std::min(most, batch_.model_.drafts() - batch_.guesses_); ++i) {
    rows_.push_back({.sampler = &r_.sampler, .position = position + i, .token_entry = first + i});
  }
  batch_.guesses_ += static_cast<uint32_t>(rows_.size());
  return rows_;
}

bool Batch::RequestGuesses::drawn_later(int32_t id) const {
  if (id >= 0 || rows_.empty()) return false;
  const auto entry = static_cast<uint32_t>(-1 - id);
  return entry >= rows_.front().token_entry && entry <= rows_.back().token_entry;
}

void Batch::RequestGuesses::drawn_by_device(uint32_t guesses) {
  for (uint32_t i = 0; i < guesses; ++i) ids_.push_back(-1 - static_cast<int32_t>(rows_[i].token_entry));
}

std::optional<int32_t> Batch::RequestGuesses::draw(std::span<const float> logits) {
  const size_t index = ids_.size();
  while (counts_.size() < index) {
    const int32_t id = ids_[counts_.size()];
    if (!batch_.model_.check_tokens({&id, 1}).ok()) return std::nullopt;
    counts_.push_back(r_.sampler.count_of(id));
    r_.sampler.saw_output(id);
  }
  const uint32_t* mask = nullptr;
  if (r_.request.mask) {
    if (index > batch_.model_.drafts()) return std::nullopt;
    batch_.make_mask(r_, ids_);
    mask = r_.mask.data() + index * batch_.mask_words();
  }
  const auto id = r_.sampler.guess(logits, r_.session.position() + r_.unfed().size() + index, mask);
  const std::span<const int32_t> stops = r_.sampler.stop_ids();
  if (!id.ok() || std::find(stops.begin(), stops.end(), *id) != stops.end()) return std::nullopt;
  ids_.push_back(*id);
  return *id;
}

// What follows an end is never drawn. Ids that a device draws are not known yet.
void Batch::RequestGuesses::end(uint32_t most) {
  for (size_t i = counts_.size(); i-- > 0;) r_.sampler.set_count(ids_[i], counts_[i]);
  counts_.clear();
  const std::span<const int32_t> stops = r_.sampler.stop_ids();
  const auto useless = [&](int32_t id) {
    if (drawn_later(id)) return false;
    return !batch_.model_.check_tokens({&id, 1}).ok() || std::find(stops.begin(), stops.end(), id) != stops.end();
  };
  ids_.erase(std::find_if(ids_.begin(), ids_.end(), useless), ids_.end());
  if (ids_.size() > most) ids_.resize(most);
}

// A device that draws the guesses of a sequence need not wait until the host knows which rows stand, whatever guesses
// the step verifies. This only saves time: it is left out without memory for its lists, and where the session gives
// back the pages of rows that are fed again.
Status Batch::read_ahead(const FlightPart& part) {
  if (part.request == nullptr || part.drafts == 0 || model_.feeds_again()) return {};
  const Running& r = *part.request;
  if (part.tokens != 1 + part.drafts || part.tokens > MtpLayer::kMostAhead) return {};
  if (part.path != SamplingPath::fused) return {};  // what the device has drawn is another sequence's
  entries_.clear();
  for (const SampleRow& row : r.sampled) entries_.push_back(-1 - static_cast<int32_t>(row.token_entry));
  const auto drafts = std::span(r.rows).last(part.drafts);
  Status begun = r.session.read_ahead(part.position, part.ids[0], entries_, drafts);
  return begun.code() == Code::out_of_device_memory ? Status() : begun;
}

}  // namespace switchyard
