// SPDX-License-Identifier: Apache-2.0
#include "core/sampling/candidates.h"

#include <algorithm>
#include <functional>

namespace switchyard {
namespace {

// The candidates that truncation may keep, and bounds for the ids that are not among them.
class Finish {
 public:
  Finish(const swy_sample_params& p, const swy_sample_row_in& in, const Candidates& c, std::span<uint64_t> keys)
      : p_(p), in_(in), c_(c), keys_(keys), n_(std::min<size_t>(c.ids.size(), c.result.live)) {
    complete_ = c.result.live <= n_;
    top_k_ = p.top_k > 0 && static_cast<uint32_t>(p.top_k) < c.result.live;
    if (top_k_ && static_cast<uint32_t>(p.top_k) <= n_) {
      n_ = static_cast<size_t>(p.top_k);
      complete_ = true;
      top_k_ = false;
    }
  }

  // The sampled token, or -1 if undecided.
  int32_t token() {
    if (p_.inv_temperature == 0.0f) return c_.ids[0];
    const size_t kept = truncate();
    uint64_t best = 0;
    for (size_t i = 0; i < kept; ++i) {
      const uint32_t id = swy_row_key_id(keys_[i]);
      const float z = value(place(id));
      best = std::max(best, swy_order_key(swy_float_key(swy_add(z, swy_gumbel(p_.seed, in_.position, id))), id));
    }
    const bool decided = !open_ || best >> 32 > swy_float_key(swy_add(rest_, SWY_GUMBEL_MAX));
    return decided && kept > 0 ? static_cast<int32_t>(swy_row_key_id(best)) : -1;
  }

 private:
  float value(size_t i) const { return swy_row_value(&p_, &in_, static_cast<uint32_t>(c_.ids[i]), c_.logits[i]); }
  size_t place(uint32_t id) const {
    return static_cast<size_t>(std::find(c_.ids.begin(), c_.ids.end(), static_cast<int32_t>(id)) - c_.ids.begin());
  }
  uint32_t weight(size_t i) const { return swy_weight(swy_add(value(i), -value(0))); }

  // Orders keys_ by (weight, id) and returns how many of the first are kept. `open_`: ids outside the candidates may be
  // kept too, none with a z above `rest_`.
  //
  // Ids outside the candidates weigh at most as much as the last candidate, and weights never rise along the
  // candidates. So the candidates that weigh more than the last one (`sure`) come first in the order of the whole row,
  // too.
  size_t truncate() {
    for (size_t i = 0; i < n_; ++i) keys_[i] = swy_order_key(weight(i), static_cast<uint32_t>(c_.ids[i]));
    const uint32_t last = weight(n_ - 1);
    std::sort(keys_.begin(), keys_.begin() + static_cast<ptrdiff_t>(n_), std::greater<>());
    const bool top_p = p_.top_p_q15 < SWY_TOP_P_OFF;
    if (top_p && top_k_) return 0;  // the total over the ids that top-k keeps is not known
    size_t sure = n_;
    while (top_p && !complete_ && sure > 0 && keys_[sure - 1] >> 32 == last) --sure;
    size_t kept = sure;
    bool closed = complete_;
    if (top_p) {
      uint64_t total = c_.result.total, sum = 0;
      if (complete_) total = weight_sum();
      const uint64_t need = swy_top_p_need(&p_, total);
      for (kept = 0; kept < sure && sum < need;) sum += keys_[kept++] >> 32;
      closed = sum >= need;
    }
    open_ = !closed && p_.min_p_q30 <= last;
    rest_ = value(std::min(sure, n_ - 1));
    while (kept > 0 && keys_[kept - 1] >> 32 < p_.min_p_q30) --kept;
    return kept;
  }

  uint64_t weight_sum() const {
    uint64_t sum = 0;
    for (size_t i = 0; i < n_; ++i) sum += keys_[i] >> 32;
    return sum;
  }

  const swy_sample_params& p_;
  const swy_sample_row_in& in_;
  const Candidates& c_;
  std::span<uint64_t> keys_;
  size_t n_;
  bool complete_;  // no id outside the candidates can be sampled
  bool top_k_;     // top-k keeps more ids than the candidates, and fewer than all
  bool open_ = false;
  float rest_ = 0;
};

}  // namespace

std::optional<int32_t> finish_draw(const swy_sample_params& p, const swy_sample_row_in& in, const Candidates& c,
                                   std::span<uint64_t> workspace, swy_sample_row_out& out) {
  out = {-1, c.result.id, 0.0f};
  if (c.result.status != SWY_SAMPLE_OK) return c.result.status;
  out.token = Finish(p, in, c, workspace).token();
  if (out.token < 0) return std::nullopt;
  if ((p.flags & SWY_SAMPLE_LOGPROB) != 0) {
    const auto at = std::find(c.ids.begin(), c.ids.end(), out.token) - c.ids.begin();
    out.logprob = swy_logprob(c.logits[static_cast<size_t>(at)], c.result.max_logit, c.result.logprob_total);
  }
  return SWY_SAMPLE_OK;
}

// Scaling can make different logits equal: only the ids that come before the last candidate's z are sure to be all.
bool finish_top_logprobs(const swy_sample_params& p, const swy_sample_row_in& in, const Candidates& c,
                         std::span<uint64_t> workspace, std::span<int32_t> ids, std::span<float> logprobs) {
  std::fill(ids.begin(), ids.end(), -1);
  std::fill(logprobs.begin(), logprobs.end(), 0.0f);
  if (c.result.status != SWY_SAMPLE_OK) return true;
  const bool penalised = p.repetition != 1.0f || p.presence != 0.0f || p.frequency != 0.0f;
  if (in.mask != nullptr || in.bias_count > 0 || (in.counts != nullptr && penalised)) return false;
  const size_t known = std::min<size_t>(c.ids.size(), c.result.live), n = std::min(ids.size(), known);
  const bool complete = c.result.live <= c.ids.size();
  if (!complete && ids.size() > known) return false;
  for (size_t i = 0; i < known; ++i) {  // the place in the low half: candidates with equal logits are ordered by id
    workspace[i] = swy_order_key(swy_float_key(swy_clamp(c.logits[i])), static_cast<uint32_t>(i));
  }
  std::sort(workspace.begin(), workspace.begin() + static_cast<ptrdiff_t>(known), std::greater<>());
  const auto value = [&](size_t i) { return swy_row_value(&p, &in, static_cast<uint32_t>(c.ids[i]), c.logits[i]); };
  for (size_t i = 0; i < n; ++i) {
    const uint32_t place = swy_row_key_id(workspace[i]);
    if (!complete && value(place) <= value(known - 1)) return false;
    ids[i] = c.ids[place];
    logprobs[i] = swy_logprob(c.logits[place], c.result.max_logit, c.result.logprob_total);
  }
  return true;
}

}  // namespace switchyard
