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

namespace {

// ln of the sum of exp; NaN where a logit is.
double log_sum(std::span<const float> x) {
  double most = -INFINITY;
  for (const float v : x) {
    if (std::isnan(v)) return NAN;
    most = std::max(most, static_cast<double>(v));
  }
  double sum = 0;
  for (const float v : x) sum += std::exp(v - most);
  return most + std::log(sum);
}

}  // namespace

double divergence_of(std::span<const float> p, std::span<const float> q) {
  const double ln_p = log_sum(p), ln_q = log_sum(q);
  if (std::isnan(ln_p) || std::isnan(ln_q)) return NAN;
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double lp = p[i] - ln_p;
    if (lp == -INFINITY) continue;  // of no weight
    sum += std::exp(lp) * (lp - (q[i] - ln_q));
  }
  return std::max(sum, 0.0);  // rounding
}

size_t most_likely(std::span<const float> logits) {
  return static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

Status read_logits(Session& session, std::span<const int32_t> ids, uint32_t most,
                   const std::function<Status(std::span<const int32_t>, std::span<const float>)>& each) {
  const uint32_t rows = session.model().chunk();
  const size_t step = most == 0 ? rows : std::min(most, rows);
  while (!ids.empty()) {
    const auto part = ids.first(std::min(ids.size(), step));
    SWY_LET(const std::span<const float> logits, session.feed(part, static_cast<uint32_t>(part.size())));
    SWY_TRY(each(part, logits));
    ids = ids.subspan(part.size());
  }
  return {};
}

Status score_windows(Model& model, std::span<const int32_t> ids, const Windows& windows,
                     const std::function<bool(size_t, size_t, std::span<const float>, const WindowScore&)>& each) {
  const uint32_t window = windows.size, step = windows.step == 0 ? window : std::min(windows.step, window);
  size_t count = ids.size() / window;
  if (windows.limit != 0) count = std::min<size_t>(count, windows.limit);
  if (window < 2 || count == 0) {
    return error(Code::usage, "the text has {} tokens, and a window takes {}; give a longer text or a smaller --ctx",
                 ids.size(), window);
  }
  if (step > model.chunk()) {
    return error(
        Code::usage,
        "{} tokens at once are more than the {} rows of a step; raise --chunk, or lower --ctx or --step where memory "
        "is short",
        step, model.chunk());
  }
  SWY_LET(auto session, model.session());
  const size_t vocab = model.vocab();
  std::vector<float> parts;  // a window's logits, unless one step has them all
  for (size_t w = 0; w < count; ++w) {
    const auto tokens = ids.subspan(w * window, window);
    session->reset();
    parts.clear();
    bool more = true;
    SWY_TRY(read_logits(*session, tokens, step, [&](auto, std::span<const float> logits) -> Status {
      if (step < window) {
        parts.insert(parts.end(), logits.begin(), logits.end());
        if (parts.size() < window * vocab) return {};
        logits = parts;
      }
      WindowScore score;
      for (size_t t = 0; t + 1 < window; ++t) {
        score.nll -= log_probability(logits.subspan(t * vocab, vocab), tokens[t + 1]);
        ++score.tokens;
      }
      more = each(w, count, logits, score);
      return {};
    }));
    if (!more) break;
  }
  return {};
}

}  // namespace switchyard
