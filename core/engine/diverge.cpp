// SPDX-License-Identifier: Apache-2.0
#include "core/engine/diverge.h"

#include <algorithm>
#include <numeric>

namespace switchyard {
namespace {

GreedyStep step_of(std::span<const float> logits, std::vector<int32_t>& order) {
  order.resize(logits.size());
  std::iota(order.begin(), order.end(), 0);
  GreedyStep step;
  const size_t n = std::min(step.top.size(), logits.size());
  const auto before = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n), order.end(), before);
  for (size_t i = 0; i < step.top.size(); ++i) {
    const int32_t id = order[std::min(i, n - 1)];
    step.top[i] = {id, logits[static_cast<size_t>(id)]};
  }
  return step;
}

}  // namespace

Result<std::vector<GreedyStep>> continue_greedily(Model& model, std::span<const int32_t> prompt, uint32_t tokens) {
  std::vector<GreedyStep> steps;
  std::vector<int32_t> order;
  SWY_LET(const auto session, model.session());
  SWY_LET(std::span<const float> logits, session->feed(prompt));
  while (steps.size() < tokens) {
    steps.push_back(step_of(logits, order));
    if (steps.size() == tokens) break;
    const int32_t id = steps.back().id();
    SWY_LET(logits, session->feed({&id, 1}));
  }
  return steps;
}

Result<std::optional<GreedyDivergence>> first_divergence(Model& other, std::span<const int32_t> prompt,
                                                         std::span<const GreedyStep> steps) {
  SWY_LET(const auto session, other.session());
  SWY_LET(std::span<const float> logits, session->feed(prompt));
  for (size_t i = 0; i < steps.size(); ++i) {
    const int32_t id = steps[i].id();
    const auto best = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    if (best != id) {
      GreedyDivergence d{i, id, best, {}, logits[static_cast<size_t>(best)] - logits[static_cast<size_t>(id)]};
      const auto& top = steps[i].top;
      const auto at = std::find_if(top.begin(), top.end(), [&](const auto& c) { return c.id == best; });
      if (at != top.end()) d.gap = top[0].logit - at->logit;
      return std::optional(d);
    }
    if (i + 1 == steps.size()) break;
    SWY_LET(logits, session->feed({&id, 1}));
  }
  return std::optional<GreedyDivergence>();
}

}  // namespace switchyard
