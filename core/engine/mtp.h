// SPDX-License-Identifier: Apache-2.0
// MtpLayer: runs the function `mtp` of a program, its multi-token prediction layer. A row of it has the trunk's row of
// a position (after the final norm) and the token after that position, and predicts the token after that one. Its
// states lie in the sessions' pages, beside the trunk's.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/engine/state_pool.h"
#include "core/engine/step_runner.h"
#include "core/program/id_ranges.h"
#include "core/program/program.h"

namespace switchyard {

class MtpLayer {
 public:
  // NULL: the program has no such layer.
  static const Function* of(const Program& program);

  // Rows of one sequence.
  struct Rows {
    uint32_t position = 0;                 // of the first
    std::span<const int32_t> next;         // the token after each position
    std::span<const float> hidden;         // [rows, hidden]
    std::span<const uint32_t> pages;       // that cover the positions
    std::span<const int32_t> drafts = {};  // StepSequence::drafts
  };

  // What its planner's graph makes, where that has been given what a device needs to draw guesses by itself: a sampler,
  // and the last row alone. Otherwise the head is that of the graph's logits.
  struct Made {
    Head head;
    uint32_t last_row = kNoValue, row = kNoValue;  // the last of the layer's own rows, and all of them
  };
  static Made add_draws(Graph& graph, const DeviceSampling& device);
  // Whether a device's guesses would be drawn with the tokens' own noise: 15 of 16 ids or more have their own place in
  // the layer's logits.
  static bool can_draw(const Program& program);

  // `program` outlives it; the planner's graph is of its layer.
  MtpLayer(const Program& program, Planner planner, Made made);

  const Planner& planner() const { return planner_; }
  uint32_t hidden() const { return hidden_; }
  uint32_t max_rows() const { return max_rows_; }

  // With memory for its largest step. Where a device draws, `setup.bound` gets the place of the trunk's rows, `hidden`:
  // the layer's steps find those of the trunk's newest step there. It is for the trunk's runner, which comes first.
  Status make_rows(StepRunner::Setup& setup, uint32_t hidden);
  uint64_t rows_bytes(uint32_t rows) const { return draws() ? uint64_t{rows} * hidden_ * sizeof(float) : 0; }
  Status make_runner(StepRunner::Setup setup, const StepCounts& largest);
  // Makes the lists of these steps in advance; `drawn`: also for guesses that a device draws, if it can. Errors: as
  // StepRunner::prepare.
  Status prepare(std::span<const StepCounts> steps, bool drawn, const StepRunner::Progress& progress);

  // Whether a device can draw guesses. Where a token's place in the shortlist is not its id, the id of that number is
  // the guess, a wrong one.
  bool draws() const { return made_.last_row != kNoValue; }
  // Submits guesses, as many as there are `draws`: the first from these rows, and each other one from the guess and the
  // layer's row before it. Nothing waits for them: the ids come to the entries of the token buffer that `draws` name.
  Status guess(const Rows& rows, std::span<const SampleRow> draws);
  // Submits what the first guess needs besides the head, right after a step of the trunk of which not all rows may
  // stand: all its rows, the first ones of the step, without `hidden`, and with the entries of the tokens that it
  // draws. The ticket holds until something comes between; `guess_on` goes on with the rows that stand.
  Result<uint64_t> read_ahead(const Rows& rows);
  bool ahead(uint64_t ticket) const { return ticket != 0 && ticket == ahead_; }
  Status guess_on(const Rows& standing, std::span<const SampleRow> draws);

  static constexpr size_t kMostGuesses = 32;  // at once
  static constexpr uint32_t kMostAhead = 16;  // rows that are read ahead

  // Runs rows of one sequence, at most `max_rows`. Returns the last one's logits, valid until the next run: -inf for
  // tokens that are not in the layer's shortlist. With `logits` false none. Errors: those of the devices.
  Result<std::span<const float>> run(const Rows& rows, bool logits);
  // The layer's own row of the last row run, in place of the trunk's for a row after it.
  Status read_row(std::span<float> to) const;

  void observe(StepObserver* observer) { runner_->observe(observer); }
  void forget_lists() { ahead_ = 0, runner_->forget_lists(); }

 private:
  static StepSequence sequence_of(const Rows& rows);
  Status submit_guesses(const Rows& first, std::span<const SampleRow> draws, bool begun);

  Planner planner_;
  Made made_;
  DeviceBuffer rows_;  // where it draws: its input; at the end the first is its own last row
  // What is being written there, for so many sequences of a step.
  std::array<std::vector<float>, kMostGuesses> inputs_;
  size_t next_input_ = 0;
  uint64_t ahead_ = 0, tickets_ = 0;  // of `read_ahead`, until another step
  std::unique_ptr<StepRunner> runner_;
  const IdRanges& shortlist_;      // empty: all tokens
  std::vector<float> all_logits_;  // where there is one
  uint32_t hidden_ = 0, max_rows_ = 0, row_value_ = 0, last_rows_ = 0;
};

// What a session remembers for the layer: the trunk's rows of its last positions, which the layer has not read yet, or
// has read with a token that may not stay.
class MtpTrail {
 public:
  // The trunk has seen `ids` from `position` on, and these are its rows. Positions that it has seen before may come
  // again.
  void saw(uint32_t position, std::span<const int32_t> ids, std::span<const float> rows);

  // Whether rows of all positions were seen: without them there is nothing to draft from.
  bool whole() const { return whole_; }
  // The layer's states are there for the positions before.
  uint32_t read() const { return read_; }
  uint32_t end() const { return read_ + waiting(); }  // positions seen
  // What a snapshot keeps of it, once every row was read whose next token is known: the last row.
  static uint64_t bytes_of(uint32_t width) { return sizeof(uint32_t) + uint64_t{width} * sizeof(float); }
  std::string bytes(uint32_t width) const;
  // Of nothing: the rows are missing.
  void restore(uint32_t position, std::string_view bytes, uint32_t width);
  uint32_t waiting() const { return width_ == 0 ? 0 : static_cast<uint32_t>(hidden_.size() / width_); }

 private:
  friend class Session;
  void drop(uint32_t rows);
  void cut(uint32_t position);  // forgets positions from there on
  void lose();                  // a row

  bool whole_ = true;
  uint32_t read_ = 0, width_ = 0;
  std::vector<float> hidden_;  // from position read_ on
  std::vector<int32_t> next_;  // the tokens after these positions; that of the last one may not be known yet
  int32_t tried_ = -1;         // the last one has been read with this token; -1: it has not
};

}  // namespace switchyard
