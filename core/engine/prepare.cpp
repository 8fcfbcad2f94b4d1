// SPDX-License-Identifier: Apache-2.0
#include "core/engine/prepare.h"

#include <algorithm>

namespace switchyard {
namespace {

// The sizes from that of `least` to `limit`.
std::vector<uint32_t> sizes(uint32_t least, uint32_t limit) {
  std::vector<uint32_t> all;
  for (uint32_t n = bucket_size(least, limit);; n = bucket_size(n + 1, limit)) {
    all.push_back(n);
    if (n >= limit) return all;
  }
}

// At most one token is sampled per sequence of a batch.
StepCounts step_of(uint32_t rows, uint32_t seqs, uint32_t context) {
  return {.rows = rows, .seqs = seqs, .logit_rows = seqs, .sample_rows = seqs, .context = context};
}

// The head's results in a step in which every request is sampled like this.
Result<uint32_t> wants_of(const Model& model, const SamplingParams& sampling) {
  SWY_LET(const Sampler sampler, Sampler::create(sampling, model.vocab()));
  SWY_LET(const PathChoice choice, choose_path({}, sampler, false, model.device_sampling()));
  return want_of(choice.path, sampler.top_logprobs() > 0);
}

}  // namespace

std::vector<StepCounts> batch_steps(uint32_t sessions, uint32_t chunk, uint32_t context) {
  std::vector<StepCounts> steps;
  std::vector<uint32_t> rows = sizes(2, chunk);
  if (chunk < 2) rows.clear();  // one row is a decoding step
  // The largest first: all use its memory then.
  for (auto n = rows.rbegin(); n != rows.rend(); ++n) {
    const uint32_t all = std::min(sessions, *n - 1);
    if (all > 1) steps.push_back(step_of(*n, all, context));
    steps.push_back(step_of(*n, 1, context));
  }
  for (const uint32_t seqs : sizes(1, sessions)) {
    for (const uint32_t tokens : sizes(kSmallestContextBucket, context)) {
      steps.push_back(step_of(seqs, seqs, tokens));
    }
  }
  return steps;
}

std::vector<StepCounts> draft_steps(uint32_t sessions, uint32_t drafts, uint32_t context) {
  std::vector<StepCounts> steps;
  if (drafts == 0) return steps;
  for (const uint32_t rows : sizes(2, sessions + drafts)) {
    const uint32_t seqs = std::min(sessions, rows - 1);
    steps.push_back({.rows = rows, .seqs = seqs, .logit_rows = rows, .sample_rows = rows, .context = context});
  }
  return steps;
}

namespace {

constexpr uint32_t kLayerRows = 512;  // more than wait for the multi-token prediction layer, as a rule

// Of the multi-token prediction layer, which runs one sequence at a time.
std::vector<StepCounts> layer_steps(uint32_t max_rows, uint32_t context) {
  std::vector<StepCounts> steps;
  for (const uint32_t rows : sizes(1, std::min(max_rows, kLayerRows))) {
    steps.push_back({.rows = rows, .seqs = 1, .logit_rows = 1, .sample_rows = 1, .context = context});
  }
  return steps;
}

// Where penalties are usual the host draws every row.
Status prepare_drafts(Model& model, const SamplingParams& sampling, uint32_t wants,
                      const StepRunner::Progress& progress) {
  SWY_LET(const Sampler sampler, Sampler::create(sampling, model.vocab()));
  if (!sampler.counts().empty()) wants = kWantLogits;
  SWY_TRY(model.runner().prepare(draft_steps(model.max_sessions(), model.drafts(), model.context()), wants, progress));
  MtpLayer* const layer = model.mtp();
  if (layer == nullptr) return {};
  const bool drawn = (wants & (kWantTokens | kWantTop)) != 0;
  return layer->prepare(layer_steps(layer->max_rows(), model.context()), drawn, progress);
}

}  // namespace

Status prepare_steps(Model& model, const SamplingParams& sampling, const StepRunner::Progress& progress) {
  SWY_LET(const uint32_t wants, wants_of(model, sampling));
  SWY_TRY(model.runner().prepare(batch_steps(model.max_sessions(), model.chunk(), model.context()), wants, progress));
  return prepare_drafts(model, sampling, wants, progress);
}

Status prepare_decoding(Model& model, const SamplingParams& sampling, const StepRunner::Progress& progress) {
  SWY_LET(const uint32_t wants, wants_of(model, sampling));
  SWY_TRY(model.runner().prepare(batch_steps(model.max_sessions(), 1, model.context()), wants, progress));
  return prepare_drafts(model, sampling, wants, progress);
}

}  // namespace switchyard
