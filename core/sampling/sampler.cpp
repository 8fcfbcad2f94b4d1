#include "core/sampling/sampler.h"

#include <random>

#include "switchyard/sampling_row.h"

namespace switchyard {

Result<Sampler> Sampler::create(const SamplingParams& p, uint32_t vocab) {
  Sampler s;
  swy_sample_params_init(&s.params_);
  s.params_.temperature = p.temperature;
  s.params_.top_p = p.top_p;
  s.params_.min_p = p.min_p;
  s.params_.top_k = p.top_k;
  s.params_.repetition_penalty = p.repetition_penalty;
  s.params_.presence_penalty = p.presence_penalty;
  s.params_.frequency_penalty = p.frequency_penalty;
  swy_sample_fault fault{};
  if (swy_sample_params_normalise(&s.params_, &fault) == 0) {
    return error(Code::usage, "{} is {}; it must be {}", fault.field, fault.value, fault.range);
  }
  if (p.seed) {
    s.params_.seed = *p.seed;
  } else {
    std::random_device random;
    s.params_.seed = uint64_t{random()} << 32 | random();
  }
  s.workspace_.resize(vocab);
  if (s.penalised()) s.counts_.resize(vocab);
  return s;
}

bool Sampler::penalised() const {
  return params_.repetition_penalty != 1.0f || params_.presence_penalty != 0.0f || params_.frequency_penalty != 0.0f;
}

void Sampler::saw_prompt(int32_t id) {
  if (id >= 0 && static_cast<size_t>(id) < counts_.size()) counts_[static_cast<size_t>(id)] |= SWY_SEEN_IN_PROMPT;
}

void Sampler::saw_output(int32_t id) {
  if (id >= 0 && static_cast<size_t>(id) < counts_.size()) ++counts_[static_cast<size_t>(id)];
}

Result<int32_t> Sampler::sample(std::span<const float> logits, uint64_t position) {
  swy_sample_row_in in{};
  in.logits = logits.data();
  in.vocab = static_cast<uint32_t>(logits.size());
  in.counts = counts_.empty() ? nullptr : counts_.data();
  in.position = position;
  swy_sample_row_out out{};
  switch (swy_sample_row(&params_, &in, workspace_.data(), &out)) {
    case SWY_SAMPLE_OK:
      return out.token;
    case SWY_SAMPLE_BAD_LOGIT:
      return error(Code::invalid_data, "the logit of token {} is {}; the model's weights or a kernel are broken",
                   out.id, logits[static_cast<size_t>(out.id)]);
    case SWY_SAMPLE_NO_TOKEN:
      return error(Code::invalid_data, "no token is left to draw: every logit is -inf");
    default:
      return error(Code::internal, "the sampler was called wrongly");
  }
}

}  // namespace switchyard
