// SPDX-License-Identifier: Apache-2.0
#include "core/serve/score.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/engine/evaluate.h"

namespace switchyard {
namespace {

// Rows of logits that come to the host at a time: 32 MiB with a vocabulary of 250,000 tokens.
constexpr size_t kPart = 32;

TokenScore score_of(std::span<const float> logits, int32_t id, uint32_t top) {
  TokenScore score;
  const double own = log_probability(logits, id), shift = own - logits[static_cast<size_t>(id)];
  score.logprob = static_cast<float>(own);
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const size_t most = std::min<size_t>(top, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(most), order.end(),
                    [&](int32_t a, int32_t b) {
                      const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
                      return x != y ? x > y : a < b;
                    });
  for (size_t i = 0; i < most; ++i) {
    score.top.emplace_back(order[i], static_cast<float>(logits[static_cast<size_t>(order[i])] + shift));
  }
  return score;
}

}  // namespace

Result<std::vector<TokenScore>> score_text(Service& service, std::span<const int32_t> ids, uint32_t top) {
  std::vector<TokenScore> scores;
  std::unique_ptr<Session> session;
  std::vector<float> logits;
  Status status;
  for (size_t at = 0; status.ok() && at + 1 < ids.size(); at += kPart) {
    const auto part = ids.subspan(at, std::min(kPart, ids.size() - 1 - at));
    status = service.on_loop([&](Model& model) -> Status {
      if (session == nullptr) {
        SWY_LET(session, model.session());
      }
      SWY_LET(const auto made, session->feed(part, static_cast<uint32_t>(part.size())));
      logits.assign(made.begin(), made.end());
      return {};
    });
    if (!status.ok()) break;
    const size_t vocab = logits.size() / part.size();
    for (size_t i = 0; i < part.size(); ++i) {
      scores.push_back(score_of(std::span(logits).subspan(i * vocab, vocab), ids[at + i + 1], top));
    }
  }
  if (session != nullptr) {
    const Status left = service.on_loop([&](Model&) -> Status {
      session.reset();
      return {};
    });
    if (!left.ok()) session.reset();  // the loop has ended
  }
  SWY_TRY(status);
  return scores;
}

}  // namespace switchyard
