// SPDX-License-Identifier: Apache-2.0
// DraftModel: a second, smaller model that guesses for the sequences of a first one. It reads the tokens of each in a
// session of its own, and draws its guesses as the sequence draws its tokens. The guesses of all sequences of a step
// are computed together.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/draft/drafter.h"
#include "core/engine/session.h"

namespace switchyard {

class ModelDrafter;

// Not thread-safe.
class DraftModel {
 public:
  // `model` is made with ModelOptions::drafts, and with as many sessions as the model that it guesses for, whose
  // vocabulary has `vocab` ids.
  DraftModel(std::unique_ptr<Model> model, uint32_t vocab);
  ~DraftModel();

  // For one sequence. This object outlives it.
  std::shared_ptr<Drafter> drafter();
  const Model& model() const { return *model_; }

 private:
  friend class ModelDrafter;
  // A session, and the tokens that it has seen.
  struct Place {
    std::unique_ptr<Session> session;
    std::vector<int32_t> seen = {};
    size_t certain = 0;  // of them: the others were guesses
    void forget_after(size_t tokens);
  };
  struct Task {
    ModelDrafter* drafter;
    uint32_t most;
    Guesses* guesses;
    bool draws = false;  // in the step, and then further ones
  };

  Result<std::unique_ptr<Place>> place_for(std::span<const int32_t> text);
  uint64_t compute();  // returns Drafter::reading_ns
  Status read();
  Status draw_further();
  Status add_rows(Task& task, std::span<const int32_t> ids);
  Status run();

  std::unique_ptr<Model> model_;
  uint32_t vocab_;
  std::vector<Task> tasks_;
  std::vector<std::unique_ptr<Place>> idle_;  // of sequences that have ended, the latest last
  std::vector<StepSequence> sequences_;       // of a step
  std::vector<Task*> in_step_;
  uint64_t read_rows_ = 0, idle_rows_ = 0;  // of the step that reads: all, and those of sequences that draw no guess
  std::vector<float> padded_;               // logits of a smaller vocabulary
};

}  // namespace switchyard
