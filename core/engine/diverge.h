// SPDX-License-Identifier: Apache-2.0
// Greedy divergence: where two ways of computing one program first continue a prompt differently, and by how little.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "core/engine/session.h"

namespace switchyard {

// One greedy token, with the largest logits that it was chosen from, in falling order.
struct GreedyStep {
  struct Candidate {
    int32_t id = 0;
    float logit = 0;
  };
  std::array<Candidate, 16> top{};  // of a smaller vocabulary, the last one repeated

  int32_t id() const { return top[0].id; }
  float margin() const { return top[0].logit - top[1].logit; }
};

// The most likely continuation of `prompt`, `tokens` long, also past the end of the text. Of equally likely tokens the
// lowest id. Errors: those of the session.
Result<std::vector<GreedyStep>> continue_greedily(Model& model, std::span<const int32_t> prompt, uint32_t tokens);

struct GreedyDivergence {
  size_t position = 0;           // tokens after the prompt that agree
  int32_t id = 0, other_id = 0;  // the token that each of them chose there
  // By how much each prefers its own to the other's. Nothing for the first where the other's token is not among its
  // candidates: it is further away than all of them.
  std::optional<float> gap;
  float other_gap = 0;
};

// Follows `steps` on another model, token by token, to the first where it would have chosen otherwise.
Result<std::optional<GreedyDivergence>> first_divergence(Model& other, std::span<const int32_t> prompt,
                                                         std::span<const GreedyStep> steps);

}  // namespace switchyard
