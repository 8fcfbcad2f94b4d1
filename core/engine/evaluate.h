// SPDX-License-Identifier: Apache-2.0
// Evaluation of a model on a text: mean negative log-likelihood, and how it differs from recorded logits.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "core/engine/session.h"

namespace switchyard {

// ln softmax(logits)[id], in fp64.
double log_probability(std::span<const float> logits, int32_t id);

struct WindowScore {
  double nll = 0;  // sum over the window's predicted tokens
  size_t tokens = 0;
};

// The text in non-overlapping windows of `window` tokens, the last partial one dropped; each predicts its tokens from
// the second on. `each` is called with every window's logits f32 [window, vocab] and its score; returning false stops.
// At most `limit` windows; 0: all. Errors: usage, when there is no whole window.
Status score_windows(
    Model& model, std::span<const int32_t> ids, uint32_t window, uint32_t limit,
    const std::function<bool(size_t index, size_t count, std::span<const float> logits, const WindowScore&)>& each);

}  // namespace switchyard
