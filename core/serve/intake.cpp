// SPDX-License-Identifier: Apache-2.0
#include "core/serve/intake.h"

#include <algorithm>

#include "core/engine/room.h"

namespace switchyard {
namespace {

Rejection invalid(Status status) { return {Rejection::Why::invalid, std::move(status), 0, 0, 0}; }

}  // namespace

Intake::Intake(const Model& model, const Tokenizer* tokenizer, DraftModel* draft)
    : model_(model), tokenizer_(tokenizer), draft_(draft), unused_(std::make_shared<swy::RowSampler>(model.vocab())) {}

Rejection Intake::check_prompt(std::span<const int32_t> ids, size_t history) const {
  if (ids.empty()) return invalid(error(Code::usage, "the prompt has no tokens"));
  if (Status s = model_.check_tokens(ids); !s.ok()) return invalid(std::move(s));
  if (Status s = check_room(model_, history, ids.size()); !s.ok()) {
    return {Rejection::Why::too_long, std::move(s), 0, history + ids.size(), model_.context()};
  }
  return {};
}

Rejection Intake::check(GenerationRequest& r, Job& job, std::function<bool(const TextPiece&)> took) const {
  if (r.text.max_tokens == 0) return invalid(error(Code::usage, "max_tokens is 0; it must be at least 1"));
  if (Status s = model_.check_tokens(r.history); !s.ok()) return invalid(std::move(s));
  if (Rejection no = check_prompt(r.prompt, r.history.size()); no.why != Rejection::Why::none) return no;
  auto text = TextGeneration::create(model_, tokenizer_, r.text, std::move(took), r.constraint);
  if (!text.ok()) return invalid(text.status());
  job.text = std::move(*text);
  job.text->guess_by(draft_);
  const SamplingParams& sampling = job.text->options().sampling;
  const auto sampler = Sampler::create(sampling, model_.vocab(), unused_);
  if (!sampler.ok()) return invalid(sampler.status());
  const TextOptions& t = r.text;
  const bool masked = r.constraint != nullptr || !t.allow_regex.empty() || !t.json_schema.empty() || !t.grammar.empty();
  const auto path = choose_path(r.text.path, *sampler, masked, model_.device_sampling());
  if (!path.ok()) return invalid(path.status());
  job.text->set_seed(sampler->seed());
  job.ticket->seed = sampler->seed();
  std::sort(r.checkpoints.begin(), r.checkpoints.end());
  return {};
}

}  // namespace switchyard
