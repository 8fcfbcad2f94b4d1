// SPDX-License-Identifier: Apache-2.0
// Session: the states of the multi-token prediction layer follow the trunk's. Rows wait until somebody drafts, or until
// the states are shared: so a session that does not draft pays for a few steps of many rows, and not for one a token.
//
// The row of the last position is read with a guess of the token after it, and stays, since the guess may turn out
// wrong: with the next request's first token, or in another session that shares the states.
#include "core/engine/session.h"

#include <algorithm>

namespace switchyard {

// Pages for so many tokens, which the session alone writes.
Status Session::make_room(uint32_t tokens) {
  SWY_TRY(own_last_page());
  return find_pages(std::min(tokens, model_.context()));
}

bool Session::can_draft() const {
  return model_.mtp() != nullptr && trail_.whole() && trail_.waiting() > 0 &&
         trail_.end() + drafted_ < model_.context();
}

Status Session::read_trail() {
  MtpLayer* const layer = model_.mtp();
  if (layer == nullptr || !trail_.whole()) return {};
  if (!trail_.next_.empty()) SWY_TRY(make_room(trail_.end()));
  if (!trail_.whole()) return {};
  while (!trail_.next_.empty()) {
    const auto n = static_cast<uint32_t>(std::min<size_t>(trail_.next_.size(), layer->max_rows()));
    SWY_TRY(layer
                ->run({.position = trail_.read_,
                       .next = std::span(trail_.next_).first(n),
                       .hidden = std::span(trail_.hidden_).first(size_t{n} * trail_.width_),
                       .pages = pages_},
                      false)
                .status());
    trail_.drop(n);
  }
  give_pages_back();  // those of drafts
  return {};
}

// Before the states are shared or saved. Where rows that stand are fed again, the trail may be ahead of the position.
// Others go on from there, and its pages beyond are not theirs.
Status Session::settle_trail() {
  cut_trail();
  if (trail_.end() < position_) trail_.lose();  // nobody gave it the rows of the last tokens
  return read_or_lose();
}

void Session::cut_trail() {
  trail_.cut(position_);
  give_pages_back();
}

// Without memory for it there will be no drafts.
Status Session::read_or_lose() {
  Status read = read_trail();
  if (read.code() != Code::out_of_device_memory) return read;
  trail_.lose();
  return {};
}

Result<std::span<const float>> Session::draft_row(int32_t last) {
  MtpLayer* const layer = model_.mtp();
  drafted_ = 0;
  if (!can_draft()) return error(Code::usage, "this session has no rows to draft from");
  const uint32_t end = trail_.end();
  if (trail_.waiting() > layer->max_rows()) SWY_TRY(read_trail());
  SWY_TRY(make_room(end));
  if (!trail_.whole()) return error(Code::out_of_device_memory, "the memory for states has no page left for drafts");
  trail_.next_.push_back(last);
  const auto logits =
      layer->run({.position = trail_.read_, .next = trail_.next_, .hidden = trail_.hidden_, .pages = pages_}, true);
  trail_.next_.pop_back();
  SWY_TRY(logits.status());
  trail_.drop(trail_.waiting() - 1);
  trail_.tried_ = last;
  return *logits;
}

Status Session::read_ahead(uint32_t position, int32_t token, std::span<const int32_t> entries,
                           std::span<const int32_t> drafts) {
  const bool read = trail_.whole() && trail_.waiting() == 1 && trail_.end() == position && trail_.tried_ == token;
  if (!read) return {};
  SWY_LET(const uint64_t ticket,
          model_.mtp()->read_ahead(
              {.position = position, .next = entries, .hidden = {}, .pages = pages_, .drafts = drafts}));
  ahead_ = {ticket, model_.runner().submitted(), position, static_cast<uint32_t>(entries.size())};
  return {};
}

Result<uint32_t> Session::submit_drafts(int32_t last, std::span<const SampleRow> draws) {
  MtpLayer* const layer = model_.mtp();
  drafted_ = 0;
  if (!can_draft()) return error(Code::usage, "this session has no rows to draft from");
  if (trail_.waiting() > layer->max_rows()) SWY_TRY(read_trail());
  const uint32_t end = trail_.end();
  draws = draws.first(std::min<size_t>(draws.size(), model_.context() - end));
  SWY_TRY(make_room(end + static_cast<uint32_t>(draws.size()) - 1));
  if (!trail_.whole()) return error(Code::out_of_device_memory, "the memory for states has no page left for drafts");
  trail_.next_.push_back(last);
  const MtpLayer::Rows rows{.position = trail_.read_, .next = trail_.next_, .hidden = trail_.hidden_, .pages = pages_};
  // Of the rows that were read ahead, those that stand are waiting: no other step has come since.
  const bool begun = layer->ahead(ahead_.ticket) && ahead_.step == model_.runner().submitted() &&
                     ahead_.position == trail_.read_ && trail_.waiting() <= ahead_.rows;
  Status submitted = begun ? layer->guess_on(rows, draws) : layer->guess(rows, draws);
  trail_.next_.pop_back();
  SWY_TRY(std::move(submitted));
  trail_.drop(trail_.waiting() - 1);
  trail_.tried_ = last;
  return static_cast<uint32_t>(draws.size());
}

Result<std::span<const float>> Session::next_draft_row(int32_t draft) {
  MtpLayer* const layer = model_.mtp();
  const uint32_t at = trail_.end() + drafted_;
  if (!can_draft()) return error(Code::usage, "there is no room for another draft");
  draft_row_.resize(layer->hidden());
  SWY_TRY(layer->read_row(draft_row_));
  SWY_TRY(make_room(at + 1));
  ++drafted_;
  return layer->run({.position = at, .next = {&draft, 1}, .hidden = draft_row_, .pages = pages_}, true);
}

}  // namespace switchyard
