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

// The most likely tokens are those that a draw lists.
Result<TokenScore> score_of(Sampler& sampler, std::span<const float> logits, int32_t id) {
  TokenScore score{.logprob = static_cast<float>(log_probability(logits, id))};
  if (std::isnan(score.logprob)) {
    return error(Code::invalid_data, "a logit is NaN or infinite; the model's weights or a kernel are broken");
  }
  if (sampler.top_logprobs() == 0) return score;
  SWY_LET(const Draw draw, sampler.draw(logits, 0));
  for (size_t i = 0; i < draw.top_ids.size() && draw.top_ids[i] >= 0; ++i) {
    score.top.emplace_back(draw.top_ids[i], draw.top_logprobs[i]);
    if (draw.top_ids[i] == id) score.logprob = draw.top_logprobs[i];  // readers compare the two
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
  SWY_LET(Sampler sampler, Sampler::create({.temperature = 0, .top_logprobs = top}, model.vocab()));
  std::vector<TokenScore> scores;
  std::unique_ptr<Session> session;
  std::vector<float> logits;
  Status status;
  for (size_t at = 0; status.ok() && at + 1 < ids.size(); at += most) {
    if (goes_on && !goes_on()) {
      status = error(Code::cancelled, "the client has disconnected");
      break;
    }
    const auto part = ids.subspan(at, std::min(most, ids.size() - 1 - at));
    status = read_part(service, session, part, logits);
    if (!status.ok()) break;
    for (size_t i = 0; status.ok() && i < part.size(); ++i) {
      auto score = score_of(sampler, std::span(logits).subspan(i * vocab, vocab), ids[at + i + 1]);
      status = score.status();
      if (score.ok()) scores.push_back(std::move(*score));
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
