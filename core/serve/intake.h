// SPDX-License-Identifier: Apache-2.0
// Intake: what a request has to pass before a loop takes it.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "core/serve/job.h"

namespace switchyard {

class Intake {
 public:
  // All outlive it. Without a tokenizer, requests are of token ids alone: their events have no text. `draft`: the model
  // that guesses, or NULL.
  Intake(const Model& model, const Tokenizer* tokenizer, DraftModel* draft);

  // Whether these tokens can follow `history` others. Any thread.
  Rejection check_prompt(std::span<const int32_t> ids, size_t history = 0) const;
  // Checks the request and makes the job's text of it, whose pieces go to `took`. Any thread.
  Rejection check(GenerationRequest& request, Job& job, std::function<bool(const TextPiece&)> took) const;

 private:
  const Model& model_;
  const Tokenizer* const tokenizer_;
  DraftModel* const draft_;
  const std::shared_ptr<swy::RowSampler> unused_;  // for samplers that only check parameters
};

}  // namespace switchyard
