// SPDX-License-Identifier: Apache-2.0
// Evaluation of a model on a given text: its logits, its negative log-likelihood, and how it differs from another
// model. Nothing is generated here: what draws tokens goes through core/serve.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "core/engine/session.h"

namespace switchyard {

// ln softmax(logits)[id], in fp64.
double log_probability(std::span<const float> logits, int32_t id);

// KL(p || q) of two rows of logits, in nats, fp64. NaN where a logit is.
double divergence_of(std::span<const float> p, std::span<const float> q);

// The place of the largest logit of a row; of equal ones the first.
size_t most_likely(std::span<const float> logits);

// Feeds `ids` to a session, in parts of at most `most` tokens and of at most the rows that a step takes; 0: of these.
// `each` gets every part with the logits after each of its tokens, f32 [part, vocab], until its next call. Errors:
// those of the session and of `each`.
Status read_logits(Session& session, std::span<const int32_t> ids, uint32_t most,
                   const std::function<Status(std::span<const int32_t> part, std::span<const float> logits)>& each);

struct WindowScore {
  double nll = 0;  // sum over the window's predicted tokens
  size_t tokens = 0;
};

// How a text is cut.
struct Windows {
  uint32_t size = 512;  // tokens
  uint32_t limit = 0;   // at most so many windows; 0: all
  uint32_t step = 0;    // tokens of a step: 1 judges the kernels that decode; 0: a whole window
};

// The text in non-overlapping windows, the last partial one dropped; each predicts its tokens from the second on.
// `each` is called with every window's logits f32 [size, vocab] and its score; returning false stops. Errors: usage,
// when there is no whole window, or `step` is more than the rows of the model's steps.
Status score_windows(
    Model& model, std::span<const int32_t> ids, const Windows& windows,
    const std::function<bool(size_t index, size_t count, std::span<const float> logits, const WindowScore&)>& each);

}  // namespace switchyard
