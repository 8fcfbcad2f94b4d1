// SPDX-License-Identifier: Apache-2.0
#include "core/serve/score.h"

#include <algorithm>
#include <cmath>

#include "core/engine/evaluate.h"
#include "core/engine/room.h"

namespace switchyard {
namespace {

// Rows of logits that come to the host at a time: 32 MiB with a vocabulary of 250,000 tokens.
constexpr uint32_t kPart = 32;

TokenScore score_of(std::span<const float> logits, int32_t id, uint32_t top) {
  TokenScore score;
  const double own = log_probability(logits, id), shift = own - logits[static_cast<size_t>(id)];
  score.logprob = static_cast<float>(own);
  const size_t most = std::min<size_t>(top, logits.size());
  if (most == 0) return score;
  const auto before = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::vector<int32_t> best;  // a heap whose first is the least likely one
  for (int32_t i = 0; i < static_cast<int32_t>(logits.size()); ++i) {
    if (best.size() == most) {
      if (!before(i, best.front())) continue;
      std::pop_heap(best.begin(), best.end(), before);
      best.back() = i;
    } else {
      best.push_back(i);
    }
    std::push_heap(best.begin(), best.end(), before);
  }
  std::sort_heap(best.begin(), best.end(), before);
  for (const int32_t i : best) {
    score.top.emplace_back(i, static_cast<float>(logits[static_cast<size_t>(i)] + shift));
  }
  return score;
}

// The logits after each token of `part`. Sessions that are all in use are no lack of memory that the prefix cache could
// mend.
Status read_part(Service& service, std::unique_ptr<Session>& session, std::span<const int32_t> part,
                 std::vector<float>& logits) {
  bool taken = false;
  SWY_TRY(service.on_loop_with_room([&](Model& model) -> Status {
    taken = session == nullptr && model.states().sessions() >= model.max_sessions();
    if (taken) return {};
    if (session == nullptr) {
      SWY_LET(session, model.session());
    }
    SWY_LET(const auto made, session->feed(part, static_cast<uint32_t>(part.size())));
    logits.assign(made.begin(), made.end());
    return {};
  }));
  if (taken) return error(Code::out_of_device_memory, "every session of the model is in use; try again later");
  return {};
}

}  // namespace

Result<std::vector<TokenScore>> score_text(Service& service, std::span<const int32_t> ids, uint32_t top,
                                           const std::function<bool()>& goes_on) {
  const Model& model = *service.loaded().model;
  SWY_TRY(model.check_tokens(ids));
  SWY_TRY(check_room(model, 0, ids.size()));
  const size_t most = std::min(kPart, model.chunk()), vocab = model.vocab();
  std::vector<TokenScore> scores;
  std::unique_ptr<Session> session;
  std::vector<float> logits;
  Status status;
  for (size_t at = 0; status.ok() && at + 1 < ids.size(); at += most) {
    if (goes_on && !goes_on()) {
      status = error(Code::cancelled, "nobody waits for the probabilities of this text any more");
      break;
    }
    const auto part = ids.subspan(at, std::min(most, ids.size() - 1 - at));
    status = read_part(service, session, part, logits);
    if (!status.ok()) break;
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
