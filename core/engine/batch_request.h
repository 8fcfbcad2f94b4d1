// SPDX-License-Identifier: Apache-2.0
// A Batch's data of a running request and of a step in flight. For batch.cpp and batch_step.cpp.
#pragma once

#include <algorithm>
#include <vector>

#include "core/engine/batch.h"

namespace switchyard {

// The guesses of a request, drawn as its tokens are.
class Batch::RequestGuesses final : public Guesses {
 public:
  RequestGuesses(Batch& batch, Running& request) : batch_(batch), r_(request) {}
  std::optional<int32_t> draw(std::span<const float> logits) override;
  std::span<const SampleRow> device_rows(uint32_t most) override;
  void drawn_by_device(uint32_t guesses) override;
  void clear() { ids_.clear(), rows_.clear(); }
  // Keeps those that a step can verify, and takes back what was counted of them.
  void end(uint32_t most);

 private:
  bool drawn_later(int32_t id) const;

  Batch& batch_;
  Running& r_;
  std::vector<uint32_t> counts_;  // of the ids that were counted, before
  std::vector<SampleRow> rows_;   // of guesses that a device draws
};

struct Batch::Running {
  Id id;
  Session& session;
  Request request;
  Sampler sampler;
  Outcome outcome = {};
  size_t fed = 0;                  // of the prompt, in steps that were submitted
  size_t next_cut = 0;             // in Request::cuts
  size_t first = 0;                // of outcome.ids: the first that is no part of the prompt
  uint32_t begin = 0;              // position of the prompt's first token
  uint32_t due = 0;                // tokens being sampled
  uint32_t entry = 0;              // in the devices' token buffers
  std::vector<int32_t> rows = {};  // fed by a decoding step: ids, the drafted ones last, or where the device finds it
  bool paused = false;
  bool counts_there = false;  // the device's counts are up to date with `sampler`
  // Of each drafter: what is kept here, and in all sequences.
  struct Record {
    Acceptance own;
    Acceptance* usual;
    void measured(uint32_t kept, bool missed) { own.measured(kept, missed), usual->measured(kept, missed); }
  };
  std::vector<Record> records = {};
  DraftAccount account = {};
  uint64_t passed_in = UINT64_MAX;  // the step in which no draft was worth it last
  size_t drafter = 0;               // whose drafts are in the step
  uint32_t drafts = 0;              // how many of the guesses are to be verified in the step
  uint32_t asked = 0;               // of a device
  uint32_t drew = 0;                // tokens of the step
  std::unique_ptr<RequestGuesses> guesses = {};
  std::vector<uint32_t> mask = {};      // of each row that draws
  uint32_t masks = 0;                   // of them are there, for the step that is being planned
  Status mask_fault = {};               // the first row's mask allows nothing
  uint32_t drawable = UINT32_MAX;       // so many drafts at most may stand, for what their masks are
  std::vector<SampleRow> sampled = {};  // rows of the step being submitted
  uint64_t begin_ns = 0, first_ns = 0;

  bool reads_prompt() const { return fed < request.prompt.size(); }
  // Tokens up to the next cut, or the rest of the prompt.
  size_t until_cut() const {
    const size_t left = request.prompt.size() - fed;
    if (next_cut == request.cuts.size() || request.cuts[next_cut] <= session.position()) return left;
    return std::min<size_t>(left, request.cuts[next_cut] - session.position());
  }
  uint64_t drawn() const { return outcome.ids.size() + due; }
  // The drawn tokens that no step has fed. Where the session has read its prompt.
  std::span<const int32_t> unfed() const {
    const size_t seen = session.position() - begin - request.prompt.size();
    return std::span(outcome.ids).subspan(std::min(first + seen, outcome.ids.size()));
  }
  bool wants_hidden() const {
    return std::any_of(request.drafters.begin(), request.drafters.end(),
                       [](const auto& d) { return d->wants_hidden(); });
  }
};

struct Batch::FlightPart {
  Running* request = nullptr;         // NULL: it ended while the step was under way
  std::span<const int32_t> ids = {};  // until the next step is planned
  uint32_t position = 0;              // of the first row
  uint32_t first_row = 0;             // in the step
  uint32_t tokens = 0;                // rows
  uint32_t drafts = 0;                // of them, the last ones: each draws, and so does the row before them
  bool blind = false;                 // feeds a token that the host has not seen
  bool draws = false;
  SamplingPath path = SamplingPath::logits;
  uint32_t sample_row = 0, logit_row = 0;
};

struct Batch::Flight {
  std::vector<FlightPart> parts;
  uint32_t wants = 0, rows = 0, logit_rows = 0, sample_rows = 0;
  bool reads_prompt = false;

  void clear() {
    parts.clear();
    wants = rows = logit_rows = sample_rows = 0;
    reads_prompt = false;
  }
  void forget(const Running& r) {
    for (FlightPart& p : parts) {
      if (p.request == &r) p.request = nullptr;
    }
  }
};

// A row of a step whose token is drawn.
struct Batch::DrawRow {
  const FlightPart& part;
  uint32_t index = 0;     // of the part's rows that draw
  uint64_t position = 0;  // of the token
};

// What a step has, and what may still be added to it.
struct Batch::StepRoom {
  uint32_t rows = 0;
  uint32_t prompt_rows = 0;  // may be added
  uint32_t drafts = 0;       // may be added
  // Of the sequences that decode: how many, their rows with the drafts so far, and the tokens that these are expected
  // to give.
  uint32_t seqs = 0, decoding_rows = 0;
  double tokens = 0;
  // Likewise: their rows without drafts; sequences whose drafts a device computes, and how long that may take.
  uint32_t undrafted_rows = 0, drafting = 0;
  double drafting_ns = 0;
};

}  // namespace switchyard
