// SPDX-License-Identifier: Apache-2.0
#include "core/engine/evaluate.h"

#include <algorithm>
#include <cmath>

namespace switchyard {

double log_probability(std::span<const float> logits, int32_t id) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - top);
  return logits[static_cast<size_t>(id)] - top - std::log(sum);
}

Status score_windows(Model& model, std::span<const int32_t> ids, uint32_t window, uint32_t limit,
                     const std::function<bool(size_t, size_t, std::span<const float>, const WindowScore&)>& each) {
  size_t count = ids.size() / window;
  if (limit != 0) count = std::min<size_t>(count, limit);
  if (window < 2 || count == 0) {
    return error(Code::usage, "the text has {} tokens, and a window takes {}; give a longer text or a smaller --ctx",
                 ids.size(), window);
  }
  if (window > model.chunk()) {
    return error(
        Code::usage,
        "a window of {} tokens is more than the {} rows of a step; raise --chunk, or lower --ctx where memory is "
        "short",
        window, model.chunk());
  }
  SWY_LET(auto session, model.session());
  const size_t vocab = model.vocab();
  for (size_t w = 0; w < count; ++w) {
    const auto tokens = ids.subspan(w * window, window);
    session->reset();
    SWY_LET(const std::span<const float> logits, session->feed(tokens, window));
    WindowScore score;
    for (size_t t = 0; t + 1 < window; ++t) {
      score.nll -= log_probability(logits.subspan(t * vocab, vocab), tokens[t + 1]);
      ++score.tokens;
    }
    if (!each(w, count, logits, score)) break;
  }
  return {};
}

}  // namespace switchyard
