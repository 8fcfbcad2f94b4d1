// SPDX-License-Identifier: Apache-2.0
// Session: one sequence; its tokens so far are in the states that it borrows from its model.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/os.h"
#include "core/engine/checkpoint.h"
#include "core/engine/model.h"
#include "core/engine/mtp.h"

namespace switchyard {

class Session {
 public:
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  uint32_t position() const { return position_; }  // tokens that the states have seen

  // Feeds tokens, in chunks. Returns the logits of the last `logit_rows` of them, f32 [logit_rows, vocab], valid until
  // the model's next step; with more than one chunk only rows of the last chunk can be had. Errors: usage, when the
  // context is full, with its size; out_of_device_memory, when the pool has no page left. A step that fails while it
  // runs leaves the session empty.
  Result<std::span<const float>> feed(std::span<const int32_t> tokens, uint32_t logit_rows = 1, uint32_t chunk = 0);

  // Forgets everything, and gives its memory back.
  void reset();

  // A second session that has seen the same tokens. They share memory until one of them changes it.
  Result<std::unique_ptr<Session>> fork();

  // Remembers what it has seen for `rewind`, in place of what was remembered before: what comes next are guesses. A
  // session with a mark may need a second slot.
  void mark();
  // Forgets the tokens from `position` on, and more where the states cannot be cut back: all after the mark, or all.
  void rewind(uint32_t position);

  // What it has seen so far, for later. Errors: usage, while a step of it runs, or for an empty session; those of the
  // devices; out_of_device_memory, without a slot for what has to be applied first.
  Result<std::unique_ptr<StateCheckpoint>> keep();
  // Replaces the session's contents by what another one of the model had seen. Errors: usage, while a step of it runs.
  Status resume(const StateCheckpoint& checkpoint);

  // The tokens and states so far, in a form that any backend restores; see snapshot.cpp for the layout. Errors: as
  // `keep`, but for an empty session.
  Result<std::string> snapshot();
  // Replaces the session's contents. Errors: invalid_data, for bytes that are not a snapshot; usage, for a snapshot of
  // another model, or one that does not fit the context: these leave the session as it was. out_of_device_memory and
  // the devices' own errors leave it empty.
  Status restore(std::string_view snapshot);
  // Tokens that a snapshot has seen, as its header says. Errors: invalid_data, for bytes that are no snapshot.
  static Result<uint32_t> snapshot_position(std::string_view snapshot);
  uint64_t largest_snapshot() const;  // bytes, of a session whose context is full

  // For code that runs the session in steps (Batch, feed). `prepare` finds room for a step of n more tokens; with
  // `keep` the old contents stay until `commit`, after which the tokens are seen. After `abandon` they are not. A step
  // may be committed while it runs, once it is certain that its tokens stay.
  Status prepare(uint32_t n, bool keep = false);
  void commit();
  // The same where only the first `tokens` of the step stand: for models whose states are all paged, or after `pend`.
  void commit(uint32_t tokens);
  // The prepared step is being submitted, with pending rows: its states are what the session has seen before, and
  // remain so if it is abandoned.
  void pend();
  void abandon();
  // The multi-token prediction layer (mtp.h). `saw` is for whoever runs the session in steps; `draft_row` gives the
  // logits of the token after `last`, the token after all positions seen, and `next_draft_row` those of the token after
  // a draft. Errors: usage, where rows are missing; out_of_device_memory; those of the devices.
  MtpTrail& trail() { return trail_; }
  // The layer reads the rows of the trail whose next token is known.
  Status read_trail();
  Status read_or_lose();   // the same; without memory for it the trail is lost
  bool can_draft() const;  // another row
  // Whether rows of all tokens were seen: without them no later one has a draft.
  bool may_draft() const { return model_.mtp() != nullptr && trail_.whole() && trail_.end() >= position_; }
  Result<std::span<const float>> draft_row(int32_t last);
  Result<std::span<const float>> next_draft_row(int32_t draft);
  // The same where the device draws the drafts (MtpLayer::draws), one after the other: it submits at most as many as
  // there are rows, and returns how many. Nothing waits for them.
  Result<uint32_t> submit_drafts(int32_t last, std::span<const SampleRow> draws);
  // A step was submitted whose first rows are this session's, from `position` on, with `token` there; the tokens that
  // they draw come to these entries of the token buffer (-1 - entry). `drafts`: what was guessed after each of them but
  // the last. The layer begins with them, for `submit_drafts`, if it has read all before, and `token`.
  Status read_ahead(uint32_t position, int32_t token, std::span<const int32_t> entries,
                    std::span<const int32_t> drafts);
  bool prepared() const { return prepared_ != 0; }
  // The prepared step's place in the states; its tokens are for the caller to set. Borrows the page table.
  StepSequence sequence() const;
  Model& model() { return model_; }
  const Model& model() const { return model_; }

 private:
  friend class Model;
  explicit Session(Model& model);
  void drop_mark();
  Status own_last_page();
  void give_pages_back();  // those beyond the position
  Status find_pages(uint32_t tokens);
  Status find_slot(bool keep);
  void take_write_slot();
  Status settle();                                                           // applies pending rows
  Status submit_part(std::span<const int32_t> tokens, uint32_t logit_rows);  // one step
  // Waits until at most `left` of the model's steps are under way. If one fails, it waits for the others, too, and
  // empties the session.
  Status wait_for_steps(size_t left);
  Status import_states(uint32_t position, std::string_view canonical, bool with_layer);
  Status make_room(uint32_t tokens);
  Status settle_trail();
  void cut_trail();

  Model& model_;
  uint32_t slot_ = kNoUnit;  // none: nothing was seen
  std::vector<uint32_t> pages_;
  uint32_t position_ = 0;
  uint32_t marked_slot_ = kNoUnit, marked_position_ = 0, marked_kept_ = 0;
  uint32_t prepared_ = 0;          // tokens of the prepared step
  uint32_t write_slot_ = kNoUnit;  // of the prepared step
  uint32_t kept_ = 0;              // pending rows of the slot that stand; the position counts them
  bool pends_ = false;             // the prepared step's rows are pending
  MtpTrail trail_;
  uint32_t drafted_ = 0;  // rows of drafts after the trail's
  struct {
    uint64_t ticket = 0;  // MtpLayer::ahead
    uint64_t step = 0;    // StepRunner::submitted, with the step whose rows it reads
    uint32_t position = 0, rows = 0;
  } ahead_;
  std::vector<float> draft_row_;  // the layer's own
};

}  // namespace switchyard
