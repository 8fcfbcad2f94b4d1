// SPDX-License-Identifier: Apache-2.0
#include "core/engine/session.h"

#include "core/engine/room.h"

#include <algorithm>

namespace switchyard {

Session::Session(Model& model) : model_(model) {
  pages_.reserve((model.context() + StatePool::kPageSize - 1) / StatePool::kPageSize);
  ++model_.states().sessions_;
}

Session::~Session() {
  reset();
  --model_.states().sessions_;
}

void Session::reset() {
  abandon();
  drop_mark();
  if (slot_ != kNoUnit) model_.states().slots().release(slot_);
  slot_ = kNoUnit;
  kept_ = 0;
  for (const uint32_t page : pages_) model_.states().pages().release(page);
  pages_.clear();
  position_ = 0;
  trail_ = {};
}

void Session::drop_mark() {
  if (marked_slot_ != kNoUnit) model_.states().slots().release(marked_slot_);
  marked_slot_ = kNoUnit;
}

void Session::mark() {
  drop_mark();
  if (slot_ == kNoUnit || !model_.states().has_slotted()) return;
  marked_slot_ = slot_;
  marked_position_ = position_;
  marked_kept_ = kept_;
  model_.states().slots().share(slot_);
}

// What was written of the keys and values of forgotten tokens is written again before it is read.
void Session::rewind(uint32_t position) {
  if (position >= position_) return;
  if (!model_.states().has_slotted()) {
    position_ = position;
  } else if (marked_slot_ != kNoUnit && marked_position_ <= position) {
    model_.states().slots().release(slot_);
    slot_ = marked_slot_;
    position_ = marked_position_;
    kept_ = marked_kept_;
    model_.states().slots().share(slot_);
  } else {
    return reset();
  }
  cut_trail();
}

Result<std::unique_ptr<Session>> Session::fork() {
  if (prepared_ != 0) return error(Code::usage, "a session cannot be forked while a step of it runs");
  SWY_TRY(settle_trail());
  SWY_LET(std::unique_ptr<Session> copy, model_.session());
  copy->position_ = position_;
  copy->trail_ = trail_;
  copy->slot_ = slot_;
  copy->kept_ = kept_;
  if (slot_ != kNoUnit) model_.states().slots().share(slot_);
  copy->pages_.assign(pages_.begin(), pages_.end());
  for (const uint32_t page : pages_) model_.states().pages().share(page);
  return copy;
}

Result<std::unique_ptr<StateCheckpoint>> Session::keep() {
  if (prepared_ != 0) return error(Code::usage, "a session cannot be kept while a step of it runs");
  if (slot_ == kNoUnit) return error(Code::usage, "an empty session has nothing to keep");
  SWY_TRY(settle());
  SWY_TRY(settle_trail());
  return std::unique_ptr<StateCheckpoint>(new StateCheckpoint(model_, slot_, pages_, position_, trail_));
}

Status Session::resume(const StateCheckpoint& checkpoint) {
  if (prepared_ != 0) return error(Code::usage, "a session cannot be changed while a step of it runs");
  if (&checkpoint.model_ != &model_) return error(Code::usage, "the states are of another model");
  reset();
  slot_ = checkpoint.slot_;
  position_ = checkpoint.position_;
  trail_ = checkpoint.trail_;
  model_.states().slots().share(slot_);
  pages_.assign(checkpoint.pages_.begin(), checkpoint.pages_.end());
  for (const uint32_t page : pages_) model_.states().pages().share(page);
  return {};
}

StateCheckpoint::StateCheckpoint(Model& model, uint32_t slot, std::span<const uint32_t> pages, uint32_t position,
                                 const MtpTrail& trail)
    : model_(model), slot_(slot), position_(position), pages_(pages.begin(), pages.end()), trail_(trail) {
  model_.states().slots().share(slot_);
  for (const uint32_t page : pages_) model_.states().pages().share(page);
}

bool StateCheckpoint::complete() const { return model_.mtp() == nullptr || trail_.whole(); }

StateCheckpoint::~StateCheckpoint() {
  model_.states().slots().release(slot_);
  for (const uint32_t page : pages_) model_.states().pages().release(page);
}

// A page that another session reads, too, is copied before the next token is written into it. So is one that is full,
// where the multi-token prediction layer has to read its last position with another token after it.
Status Session::own_last_page() {
  if (position_ == 0 || (position_ % StatePool::kPageSize == 0 && trail_.waiting() == 0)) return {};
  uint32_t& last = pages_[(position_ - 1) / StatePool::kPageSize];
  if (!model_.states().pages().shared(last)) return {};
  const uint32_t page = model_.states().pages().take();
  if (page == kNoUnit && position_ % StatePool::kPageSize == 0) {  // only drafts need it
    trail_.lose();
    return {};
  }
  if (page == kNoUnit)
    return error(Code::out_of_device_memory, "the memory for states has no page left for a fork; end a session first");
  std::vector<std::byte> bytes;
  for (const StatePool::Unit& u : model_.states().units()) {
    if (!u.paged) continue;
    bytes.resize(u.unit_bytes);
    Status copied = u.memory->read(last * u.unit_bytes, bytes);
    if (copied.ok()) copied = u.memory->write(page * u.unit_bytes, bytes);
    if (!copied.ok()) {
      model_.states().pages().release(page);
      return copied;
    }
  }
  model_.states().pages().release(last);
  last = page;
  return {};
}

Status Session::find_pages(uint32_t tokens) {
  const size_t needed = (tokens + StatePool::kPageSize - 1) / StatePool::kPageSize;
  while (pages_.size() < needed) {
    const uint32_t page = model_.states().pages().take();
    if (page == kNoUnit) {
      return error(
          Code::out_of_device_memory,
          "the memory for states is full: its {} pages of {} tokens are all in use; end a session, or make the "
          "model with more",
          model_.states().pages().count(), StatePool::kPageSize);
    }
    pages_.push_back(page);
  }
  return {};
}

Status Session::find_slot(bool keep) {
  if (slot_ != kNoUnit && !keep && !model_.states().slots().shared(slot_)) {
    model_.states().slots().share(slot_);
    write_slot_ = slot_;
    return {};
  }
  write_slot_ = model_.states().slots().take();
  if (write_slot_ == kNoUnit)
    return error(Code::out_of_device_memory, "the memory for states has no slot left; end a session first");
  return {};
}

Status Session::prepare(uint32_t n, bool keep) {
  if (prepared_ != 0 || n == 0) return error(Code::internal, "a session was prepared for a step twice, or for nothing");
  if (n > model_.context() - position_) {
    return error(Code::usage, "{} tokens do not fit: {} of the context's {} are used; {}", n, position_,
                 model_.context(), room_advice(model_));
  }
  Status ready = own_last_page();
  if (ready.ok()) ready = find_pages(position_ + n);
  if (ready.ok()) ready = find_slot(keep);
  if (ready.ok()) {
    prepared_ = n;
  } else {
    abandon();
  }
  return ready;
}

// The slot's pending rows have been applied, or none of them is wanted.
void Session::take_write_slot() {
  if (slot_ != kNoUnit) model_.states().slots().release(slot_);
  slot_ = write_slot_;
  kept_ = 0;
}

void Session::commit() {
  if (prepared_ == 0) return;
  if (pends_) {
    kept_ = prepared_;
  } else {
    take_write_slot();
  }
  position_ += prepared_;
  prepared_ = 0;
  pends_ = false;
}

void Session::pend() {
  if (prepared_ == 0) return;
  take_write_slot();
  pends_ = true;
}

// A step of the operations with pending rows alone, with a row that will not stand.
Status Session::settle() {
  if (kept_ == 0) return {};
  SWY_TRY(find_slot(false));
  StepSequence s = sequence();
  constexpr int32_t kNoToken = 0;
  s.tokens = {&kNoToken, 1};
  s.position = 1;  // any but that of a sequence that begins
  s.pending = true;
  Status settled = model_.runner().settle(s);
  if (!settled.ok()) {
    model_.states().slots().release(write_slot_);
    return settled;
  }
  take_write_slot();
  return {};
}

// What the rest has written to pages lies at positions that the next steps write again before they read them.
void Session::commit(uint32_t tokens) {
  prepared_ = std::min(prepared_, tokens);
  commit();
  give_pages_back();
}

// Work of an abandoned step that is still in the devices' queues runs before anything that the pool's next users
// submit.
void Session::abandon() {
  if (prepared_ != 0 && !pends_) model_.states().slots().release(write_slot_);
  prepared_ = 0;
  pends_ = false;
  give_pages_back();
}

void Session::give_pages_back() {
  const uint32_t end = std::max(position_, trail_.read());
  const size_t needed = (end + StatePool::kPageSize - 1) / StatePool::kPageSize;
  while (pages_.size() > needed) {
    model_.states().pages().release(pages_.back());
    pages_.pop_back();
  }
}

StepSequence Session::sequence() const {
  StepSequence s;
  s.position = position_;
  s.read_slot = slot_ == kNoUnit ? write_slot_ : slot_;
  s.write_slot = write_slot_;
  s.kept = kept_;
  s.pages = pages_;
  return s;
}

Result<std::span<const float>> Session::feed(std::span<const int32_t> tokens, uint32_t logit_rows, uint32_t chunk) {
  const uint32_t asked = chunk == 0 ? model_.chunk() : std::min(chunk, model_.chunk());
  const uint32_t limit = model_.deterministic() ? std::max(asked, model_.part(0, UINT64_MAX, model_.chunk())) : asked;
  if (tokens.size() > model_.context() - position_) {
    return error(Code::usage, "{} tokens do not fit: {} of the context's {} are used; {}", tokens.size(), position_,
                 model_.context(), room_advice(model_));
  }
  SWY_TRY(model_.check_tokens(tokens));
  StepRunner& runner = model_.runner();
  SWY_TRY(runner.check_idle());
  uint32_t rows = 0;
  while (!tokens.empty()) {
    const uint32_t n = model_.part(position_, tokens.size(), limit);
    rows = n == tokens.size() ? std::min(logit_rows, n) : 0;
    if (Status submitted = submit_part(tokens.first(n), rows); !submitted.ok()) {
      (void)wait_for_steps(0).ok();
      return submitted;
    }
    tokens = tokens.subspan(n);
    // Where steps run ahead, the next one is submitted while this one runs.
    SWY_TRY(wait_for_steps(!tokens.empty() && runner.runs_ahead() ? 1 : 0));
  }
  if (rows == 0) return std::span<const float>{};
  return runner.logits(0, rows);
}

Status Session::submit_part(std::span<const int32_t> tokens, uint32_t logit_rows) {
  SWY_TRY(prepare(static_cast<uint32_t>(tokens.size())));
  StepSequence part = sequence();
  part.tokens = tokens;
  part.logit_rows = logit_rows;
  if (Status submitted = model_.runner().submit({&part, 1}, kWantLogits); !submitted.ok()) {
    abandon();
    return submitted;
  }
  commit();
  return {};
}

// How far the states have come when a step has failed cannot be known.
Status Session::wait_for_steps(size_t left) {
  StepRunner& runner = model_.runner();
  while (runner.in_flight() > left) {
    Status ended = runner.collect().status();
    if (ended.ok()) continue;
    while (runner.in_flight() > 0) (void)runner.collect().ok();
    reset();
    return ended;
  }
  return {};
}

}  // namespace switchyard
