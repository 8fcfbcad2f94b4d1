// SPDX-License-Identifier: Apache-2.0
#include "core/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace switchyard {
namespace {

bool penalises(const swy_sample_params& p) {
  return p.repetition_penalty != 1.0f || p.presence_penalty != 0.0f || p.frequency_penalty != 0.0f;
}

uint64_t random_seed() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

}  // namespace

Result<Sampler> Sampler::create(const SamplingParams& p, uint32_t vocab, std::shared_ptr<swy::RowSampler> row) {
  if (vocab == 0 || vocab > SWY_MAX_VOCAB) {
    return error(Code::usage, "the vocabulary has {} tokens; it must have 1 to {}", vocab, SWY_MAX_VOCAB);
  }
  Sampler s(vocab, row != nullptr ? std::move(row) : std::make_shared<swy::RowSampler>(vocab));
  swy_sample_params_init(&s.params_);
  s.params_.temperature = p.temperature;
  s.params_.top_p = p.top_p;
  s.params_.min_p = p.min_p;
  s.params_.top_k = p.top_k;
  s.params_.repetition_penalty = p.repetition_penalty;
  s.params_.presence_penalty = p.presence_penalty;
  s.params_.frequency_penalty = p.frequency_penalty;
  if (p.logprob || p.top_logprobs > 0) s.params_.flags |= SWY_SAMPLE_LOGPROB;
  swy_sample_fault fault{};
  if (swy_sample_params_normalise(&s.params_, &fault) == 0) {
    return error(Code::usage, "{} is {}; it must be {}", fault.field, fault.value, fault.range);
  }
  SWY_TRY(s.set_extras(p));
  s.params_.seed = p.seed ? *p.seed : random_seed();
  if (penalises(s.params_)) s.counts_.resize(vocab);
  return s;
}

Status Sampler::set_extras(const SamplingParams& p) {
  biases_ = p.biases;
  std::sort(biases_.begin(), biases_.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  for (size_t i = 0; i < biases_.size(); ++i) {
    const swy_logit_bias& b = biases_[i];
    if (b.id >= vocab_) {
      return error(Code::usage, "logit_bias names token {}; ids go from 0 to {}", b.id, vocab_ - 1);
    }
    if (!std::isfinite(b.bias)) {
      return error(Code::usage, "logit_bias of token {} is {}; it must be finite", b.id, b.bias);
    }
    if (i > 0 && biases_[i - 1].id == b.id) {
      return error(Code::usage, "logit_bias names token {} twice; give each id once", b.id);
    }
  }
  if (p.top_logprobs > vocab_) {
    return error(Code::usage, "top_logprobs is {}; it must be 0 (none) to {}", p.top_logprobs, vocab_);
  }
  stop_ids_ = p.stop_ids;
  top_ids_.resize(p.top_logprobs);
  top_logprobs_.resize(p.top_logprobs);
  return {};
}

void Sampler::saw_prompt(int32_t id) {
  if (id >= 0 && static_cast<size_t>(id) < counts_.size()) counts_[static_cast<size_t>(id)] |= SWY_SEEN_IN_PROMPT;
}

void Sampler::saw_output(int32_t id) {
  if (id < 0 || static_cast<size_t>(id) >= counts_.size()) return;
  uint32_t& word = counts_[static_cast<size_t>(id)];
  word = swy_count_output(word);
}

swy_sample_row_in Sampler::input(uint64_t position, const uint32_t* mask) const {
  swy_sample_row_in in{};
  in.vocab = vocab_;
  in.bias_count = static_cast<uint32_t>(biases_.size());
  in.biases = biases_.data();
  in.mask = mask;
  in.counts = counts_.empty() ? nullptr : counts_.data();
  in.position = position;
  return in;
}

Result<Draw> Sampler::answer(int32_t status, const swy_sample_row_out& out) const {
  switch (status) {
    case SWY_SAMPLE_OK:
      return Draw{out.token, std::find(stop_ids_.begin(), stop_ids_.end(), out.token) != stop_ids_.end(), out.logprob,
                  top_ids_, top_logprobs_};
    case SWY_SAMPLE_BAD_LOGIT:
      return error(Code::invalid_data, "the logit of {} is NaN or infinite; the model's weights or a kernel are broken",
                   out.id < 0 ? std::string("a token") : fmt::format("token {}", out.id));
    case SWY_SAMPLE_NO_TOKEN:
      return error(Code::invalid_data, "no token is left to draw: every logit is -inf or masked");
    default:
      return error(Code::internal, "the sampler was called wrongly");
  }
}

Result<Draw> Sampler::draw(std::span<const float> logits, uint64_t position, const uint32_t* mask) {
  if (logits.size() != vocab_) {
    return error(Code::usage, "{} logits were given to a sampler of {}", logits.size(), vocab_);
  }
  swy_sample_row_in in = input(position, mask);
  in.logits = logits.data();
  swy_sample_row_out out{};
  const int32_t status = row_->sample(params_, in, out);
  if (status == SWY_SAMPLE_OK && !top_ids_.empty()) row_->top_logprobs(logits, top_ids_, top_logprobs_);
  return answer(status, out);
}

Result<int32_t> Sampler::guess(std::span<const float> logits, uint64_t position, const uint32_t* mask) {
  if (logits.size() != vocab_) {
    return error(Code::usage, "{} logits were given to a sampler of {}", logits.size(), vocab_);
  }
  swy_sample_params params = params_;
  params.flags &= ~static_cast<uint32_t>(SWY_SAMPLE_LOGPROB);
  swy_sample_row_in in = input(position, mask);
  in.logits = logits.data();
  swy_sample_row_out out{};
  SWY_LET(const Draw draw, answer(row_->sample(params, in, out), out));
  return draw.token;
}

// A device's answer is input: what finish_draw indexes, shifts or converts by is checked first.
Status Sampler::check(const Candidates& c) const {
  const swy_candidates_result& r = c.result;
  if (c.ids.empty() || c.ids.size() != c.logits.size() || c.ids.size() > vocab_) {
    return error(Code::internal, "{} candidates came with {} logits", c.ids.size(), c.logits.size());
  }
  if (r.status == SWY_SAMPLE_BAD_LOGIT || r.status == SWY_SAMPLE_NO_TOKEN) return {};
  if (r.status != SWY_SAMPLE_OK || r.live == 0 || r.live > vocab_) {
    return error(Code::internal, "a device answered with status {} and {} live ids of {}", r.status, r.live, vocab_);
  }
  for (size_t i = 0; i < std::min<size_t>(c.ids.size(), r.live); ++i) {
    if (c.ids[i] < 0 || static_cast<uint32_t>(c.ids[i]) >= vocab_) {
      return error(Code::internal, "a device named token {} a candidate; ids go from 0 to {}", c.ids[i], vocab_ - 1);
    }
    if (!std::isfinite(c.logits[i])) {
      return error(Code::internal, "a device gave candidate {} the logit {}; it must be finite", c.ids[i], c.logits[i]);
    }
  }
  if ((params_.flags & SWY_SAMPLE_LOGPROB) != 0 && (r.logprob_total == 0 || !std::isfinite(r.max_logit))) {
    return error(Code::internal, "a device gave no log-probabilities: total {}, highest logit {}", r.logprob_total,
                 r.max_logit);
  }
  return {};
}

Result<std::optional<Draw>> Sampler::finish(const Candidates& c, uint64_t position, const uint32_t* mask) {
  SWY_TRY(check(c));
  if (workspace_.size() < c.ids.size()) workspace_.resize(c.ids.size());
  const swy_sample_row_in in = input(position, mask);
  swy_sample_row_out out{};
  const std::optional<int32_t> status = finish_draw(params_, in, c, workspace_, out);
  const bool top = top_ids_.empty() || finish_top_logprobs(params_, in, c, workspace_, top_ids_, top_logprobs_);
  if (!status || !top) return std::optional<Draw>();
  SWY_LET(const Draw d, answer(*status, out));
  return std::optional<Draw>(d);
}

Result<Draw> Sampler::accept(const swy_sample_result& r, std::span<const int32_t> top_ids,
                             std::span<const float> top_logprobs) {
  if (r.status == SWY_SAMPLE_OK && (r.token < 0 || static_cast<uint32_t>(r.token) >= vocab_)) {
    return error(Code::internal, "a device drew token {}; ids go from 0 to {}", r.token, vocab_ - 1);
  }
  if (top_ids.size() < top_ids_.size() || top_logprobs.size() < top_ids_.size()) {
    return error(Code::internal, "a device gave {} likely tokens of {}", top_ids.size(), top_ids_.size());
  }
  std::copy_n(top_ids.begin(), top_ids_.size(), top_ids_.begin());
  std::copy_n(top_logprobs.begin(), top_logprobs_.size(), top_logprobs_.begin());
  return answer(r.status, {r.token, -1, r.logprob});
}

}  // namespace switchyard
