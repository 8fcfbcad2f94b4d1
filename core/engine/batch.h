// SPDX-License-Identifier: Apache-2.0
// Batch: many requests at once, each on its own session. Every step is ragged: one row of each request that is
// decoding, and parts of the prompts of the others. So a long prompt delays the others by at most one step of bounded
// size.
//
// Not thread-safe. [no-alloc] in the steady state, except for the callbacks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/draft/draft_counts.h"
#include "core/draft/draft_policy.h"
#include "core/draft/drafter.h"
#include "core/engine/sampling_path.h"
#include "core/engine/session.h"
#include "core/sampling/sampler.h"

namespace switchyard {

enum class StopReason { none, end, length, context, cancelled, callback, failed };
const char* stop_name(StopReason reason);

struct TokenEvent {
  int32_t id = 0;
  uint64_t position = 0;             // its index in the sequence
  bool end = false;                  // it is one of the stop ids
  float logprob = 0;                 // with SamplingParams::logprob
  std::span<const int32_t> top_ids;  // until the callback returns
  std::span<const float> top_logprobs;
};

struct Request {
  std::vector<int32_t> prompt;        // tokens that the session has not seen; at least one
  std::vector<int32_t> history = {};  // tokens that it has seen; they count for the penalties as the prompt does
  // This request's own tokens from an earlier batch: the last ones of `history` and `prompt`. They count as drawn, for
  // the penalties, for max_tokens, for `mask` and in Outcome::ids.
  std::vector<int32_t> drawn = {};
  uint32_t max_tokens = 128;
  int32_t priority = 0;  // the prompt with the highest is read first
  // Positions of the session, rising, at which a part of the prompt ends. `on_cut` is called when the session has seen
  // so many tokens: it may keep its states then.
  std::vector<uint32_t> cuts = {};
  std::function<void(uint32_t position)> on_cut = {};
  SamplingParams sampling;
  std::optional<SamplingPath> path;  // none: the best that the device covers
  // Called with every token as it becomes known; false ends the request, and the session then has not seen the token.
  std::function<bool(const TokenEvent&)> on_token;
  // Called before each token is sampled, or guessed by a drafter: sets the bits of the allowed tokens in a mask of
  // zeros. `drawn`: this request's tokens so far; with drafters maybe some drafted ones, too, that the next call no
  // longer has. A mask that allows nothing ends the request with an error.
  std::function<void(std::span<const int32_t> drawn, std::span<uint32_t> mask)> mask;
  std::string mask_name = "the request's mask";  // for that error
  // Guesses of what is drawn next, in the order in which they are asked. A step then verifies several tokens, and keeps
  // those that are drawn: the tokens are the same. Needs a model with ModelOptions::drafts.
  std::vector<std::shared_ptr<Drafter>> drafters = {};
  bool draft_always = false;  // as many as are proposed; else as many as pay by what was measured
  // Others go on from the states that it leaves. Drafters get its hidden rows then, also where their guesses do not
  // pay: a gap could not be filled when they do.
  bool shares_states = false;
};

// The result of a request. The session has seen the prompt and all sampled tokens but the last; if it was cancelled on
// an asynchronous device, maybe the last one, too. With drafters it may have seen fewer: Session::position says how
// many.
struct Outcome {
  std::vector<int32_t> ids;
  StopReason stopped = StopReason::none;  // none: it still runs
  Status status;                          // of a request that failed
  uint64_t seed = 0;
  PathChoice path;
  uint64_t read_bytes = 0;              // of logits, candidates and tokens that came to the host
  uint64_t undecided = 0;               // tokens that candidates did not decide, sampled from the logits
  DraftCounts drafts;                   // guesses by their place in a step, and those that were drawn
  uint64_t prompt_ns = 0, draw_ns = 0;  // from `add` to the first token, and from there to the last
};

struct BatchOptions {
  // Rows of prompts in a step while other requests are decoding; 0: the model's chunk. It limits how long these wait.
  uint32_t prompt_rows = 256;
  // Whether a step may be submitted before the last one's tokens are read, on devices that can. The model's other
  // batches cannot step then until this one's requests have ended.
  bool run_ahead = true;
  // Whether a request that finds no page or slot for its next rows waits for some (`starved`) instead of failing.
  bool wait_for_memory = false;
};

class Batch {
 public:
  using Id = uint64_t;

  explicit Batch(Model& model, const BatchOptions& options = {});
  ~Batch();
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // The request runs from the next step on. `session` outlives it, belongs to the batch's model, and has no other
  // request. Errors: usage, for a parameter out of range, a prompt that does not fit, or a busy session; unsupported,
  // for a path that the device does not have. Nothing has been done then.
  Result<Id> add(Session& session, Request request);

  // Ends a request before the next step. Its session has seen the tokens that were fed so far.
  void cancel(Id id);

  // A paused request has no rows in further steps; the token of a step in flight still comes.
  void pause(Id id, bool paused);
  // Ends the steps in flight and begins none. Until the next step every session has seen all its request's tokens but
  // those of the prompt that were not fed, and the last drawn one (with drafters maybe the last few). Errors: as
  // `step`.
  Status settle();
  // The requests that the last step left out for lack of memory, with BatchOptions::wait_for_memory.
  const std::vector<Id>& starved() const { return starved_; }

  // Runs one step for all requests, or waits for the one in flight. Returns false if nothing is left to do. Errors:
  // those of the devices, which end every request and empty its session; usage, while another batch of the model has a
  // step in flight, which changes nothing. A failure of one request ends only that one, see Outcome.
  Result<bool> step();
  // Steps until the request has ended.
  Status run(Id id);

  bool running(Id id) const;
  size_t running_count() const { return running_.size(); }
  // The outcome of a request; this call forgets the request unless it still runs. Unknown ids have no outcome. Must not
  // be called from a callback of that request.
  std::optional<Outcome> take(Id id);
  const Outcome* outcome(Id id) const;
  uint64_t steps() const { return steps_; }
  bool in_flight() const { return !flights_.empty(); }  // a step was submitted, and not collected yet

 private:
  struct Running;
  struct Flight;
  struct FlightPart;
  struct DrawRow;
  struct StepRoom;
  class RequestGuesses;

  Running* find(Id id) const;
  size_t mask_words() const { return (model_.vocab() + 31) / 32; }
  bool may_run_ahead();
  bool may_draft_next(Running& r);
  Status plan_step(Flight& flight);
  void order_prompts();
  void choose_draws(Flight& flight);
  bool add_to_step(Running& r, Flight& flight, StepRoom& room);
  Status prepare_rows(Running& r, bool blind, uint32_t& drafts);
  StepRoom room_for_decoding() const;
  uint32_t draft_limit(const Running& r, const StepRoom& room) const;
  Status draft(StepRoom& room);
  void ask_drafters(Running& r, StepRoom& room);
  DraftPolicy::Ask ask_for(const Running& r, const StepRoom& room, uint32_t proposed, bool computes) const;
  void passed(Running& r, size_t drafter);
  uint32_t drafts_that_pay(const Running& r, const StepRoom& room, uint32_t proposed, bool computes) const;
  Status compute_drafts();
  static bool draws_each_row(const Running& r);
  Status prepare_sample(Running& r, const StepSequence& sequence);
  Status fill_masks(Flight& flight);
  void fill_masks(Running& r, const FlightPart& part);
  void make_mask(Running& r, std::span<const int32_t> drafts) const;
  Status submit(Flight& flight);
  Status read_ahead(const FlightPart& part);
  Status learn_guesses(Flight& flight);
  static void reached_cut(Running& r);
  Status finish_step();
  Result<Draw> draw(Running& r, const DrawRow& row, const StepOutput& out);
  StopReason drew(Running& r, const Draw& draw, uint32_t position);
  void finish_part(const FlightPart& part, const StepOutput& out);
  void keep_rows(Running& r, const FlightPart& part, uint32_t accepted);
  Status read_hidden(const Flight& flight);
  Status give_hidden(Running& r, const FlightPart& part, uint32_t stand);
  void drop_what_cannot_pay(Request& request) const;
  void stop_following(Running& r) const;
  void measure(const Flight& flight, uint64_t begin_ns, uint64_t drawn, bool first);
  void end(Running& r, StopReason reason, Status status = {});
  Status fail_all(Status status);
  void drop_flights();
  void sweep();

  Model& model_;
  BatchOptions options_;
  std::vector<std::unique_ptr<Running>> running_, ended_;
  std::vector<std::unique_ptr<Flight>> flight_room_;
  std::vector<Flight*> flights_, idle_;  // under way, oldest first; and the others
  std::vector<StepSequence> sequences_;
  std::shared_ptr<swy::RowSampler> row_sampler_;
  std::vector<Id> starved_;
  std::vector<Running*> order_;                      // of the prompts in a step
  std::vector<Running*> computed_;                   // whose drafts a device computes before a step; they may end in it
  uint64_t drafting_ns_ = 0;                         // that this took
  uint64_t reading_ns_ = 0;                          // that was beside it
  uint64_t following_ns_ = 0;                        // that giving hidden rows took
  uint32_t asked_drafts_ = 0, computed_drafts_ = 0;  // that it was asked for, and that came of it
  std::vector<Acceptance*> faded_;                   // of all sequences, in the step that is being planned
  std::vector<float> hidden_;                        // rows of a step
  bool hidden_there_ = false;                        // those of the step under way come with its tokens
  std::vector<uint32_t> free_entries_;               // of the devices' token buffers, which have more for drafts
  uint32_t next_draw_ = 0;                           // of these, in the step being submitted
  uint32_t guesses_ = 0;                             // that a device draws before the step
  std::vector<int32_t> entries_;                     // of its tokens
  uint64_t draft_begin_ns_ = 0;                      // when the drafters were asked
  Id next_id_ = 1;
  uint64_t steps_ = 0, draws_ = 0;
};

}  // namespace switchyard
