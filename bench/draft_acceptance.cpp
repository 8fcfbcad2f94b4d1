// SPDX-License-Identifier: Apache-2.0
#include "bench/draft_acceptance.h"

#include <algorithm>
#include <cstdio>

#include "core/draft/ngram.h"
#include "core/draft/speculation.h"
#include "core/engine/batch.h"
#include "core/engine/mtp_drafter.h"

namespace switchyard {
namespace {

// A drafter's guesses with the most likely token in place of a drawn one.
class GreedyDrafter final : public Drafter {
 public:
  explicit GreedyDrafter(std::shared_ptr<Drafter> inner) : inner_(std::move(inner)) {}
  void saw(std::span<const int32_t> ids) override { inner_->saw(ids); }
  void will_propose(uint32_t most, Guesses&) override {
    greedy_ = {};
    inner_->will_propose(most, greedy_);
  }
  Status propose(uint32_t most, Guesses& guesses) override {
    if (!inner_->computes()) greedy_ = {};
    SWY_TRY(inner_->propose(most, greedy_));
    for (const int32_t id : greedy_.ids()) guesses.add(id);
    return {};
  }
  bool may_propose_after(uint32_t more) const override { return inner_->may_propose_after(more); }
  std::string_view name() const override { return inner_->name(); }
  double expected_acceptance() const override { return inner_->expected_acceptance(); }
  bool computes() const override { return inner_->computes(); }
  uint32_t most_drafts() const override { return inner_->most_drafts(); }
  bool wants_hidden() const override { return inner_->wants_hidden(); }
  Status saw_hidden(uint32_t position, std::span<const int32_t> ids, std::span<const float> rows) override {
    return inner_->saw_hidden(position, ids, rows);
  }

 private:
  class Greedy final : public Guesses {
   public:
    std::optional<int32_t> draw(std::span<const float> logits) override {
      add(static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
      return ids_.back();
    }
  };
  std::shared_ptr<Drafter> inner_;
  Greedy greedy_;
};

struct Kept {
  DraftCounts drafts;
  uint64_t tokens = 0;
};

class Measurement {
 public:
  Measurement(LoadedModel& m, Speculation drafter, const AcceptanceOptions& options, std::vector<int32_t> text)
      : m_(m), drafter_(drafter), options_(options), text_(std::move(text)) {}

  Result<Kept> over_the_text(float temperature, bool greedy) {
    Kept kept;
    SWY_LET(const auto session, m_.model->session());
    const size_t apart = (text_.size() - options_.prompt_tokens) / options_.prompts;
    for (uint32_t i = 0; i < options_.prompts; ++i) {
      session->reset();
      Request r;
      const auto from = text_.begin() + static_cast<ptrdiff_t>(i * apart);
      r.prompt.assign(from, from + options_.prompt_tokens);
      r.max_tokens = tokens();
      r.sampling.temperature = temperature;
      r.sampling.top_p = 1;
      r.sampling.seed = 100 + i;
      SWY_LET(auto drafter, make_drafter(*session));
      if (greedy) drafter = std::make_shared<GreedyDrafter>(std::move(drafter));
      r.drafters.push_back(std::move(drafter));
      r.draft_always = true;
      Batch batch(*m_.model);
      SWY_LET(const auto id, batch.add(*session, std::move(r)));
      SWY_TRY(batch.run(id));
      const Outcome o = *batch.take(id);
      SWY_TRY(o.status);
      kept.drafts.add(o.drafts);
      kept.tokens += o.ids.size();
    }
    return kept;
  }
  uint32_t tokens() const { return drafter_ == Speculation::ngram ? options_.ngram_tokens : options_.tokens; }

 private:
  Result<std::shared_ptr<Drafter>> make_drafter(Session& session) {
    if (drafter_ == Speculation::model) return m_.draft->drafter();
    if (drafter_ == Speculation::mtp) return std::shared_ptr<Drafter>(std::make_shared<MtpDrafter>(session));
    if (drafter_ == Speculation::ngram) return std::shared_ptr<Drafter>(std::make_shared<NgramDrafter>());
    return error(Code::usage, "the drafter is '{}'; it must be ngram, mtp or model:FILE", options_.drafter);
  }

  LoadedModel& m_;
  Speculation drafter_;
  const AcceptanceOptions& options_;
  std::vector<int32_t> text_;
};

void print_row(float temperature, const char* how, const Kept& kept, uint32_t drafts) {
  std::printf("| %.1f | %s |", static_cast<double>(temperature), how);
  for (uint32_t i = 0; i < drafts; ++i) std::printf(" %.3f |", kept.drafts.share(i));
  const auto steps = static_cast<double>(std::max<uint64_t>(kept.drafts.steps, 1));
  std::printf(" %.2f | %llu | %llu |\n", 1 + static_cast<double>(kept.drafts.all_accepted()) / steps,
              static_cast<unsigned long long>(kept.drafts.steps), static_cast<unsigned long long>(kept.tokens));
}

}  // namespace

Status print_acceptance(LoadedModel& m, const std::string& backend, const ModelOptions& model_options,
                        const AcceptanceOptions& o) {
  SWY_LET(const Speculation drafter, parse_speculation(o.drafter));
  if (drafter == Speculation::model) {
    SWY_LET(Program program, Program::load(Os::real(), std::string(draft_model_file(o.drafter))));
    DraftModelSource source{o.drafter, std::make_shared<const Program>(std::move(program))};
    SWY_TRY(add_draft_model(m, backend, std::move(source), model_options));
  }
  SWY_LET(const Tokenizer* tokenizer, m.text());
  SWY_LET(const std::string text, Os::real().read(o.text, uint64_t{1} << 30));
  SWY_LET(std::vector<int32_t> ids, tokenizer->encode(text));
  if (ids.size() < size_t{o.prompts} * o.prompt_tokens) {
    return error(Code::usage, "{} has {} tokens; {} prompts of {} need more", o.text, ids.size(), o.prompts,
                 o.prompt_tokens);
  }
  Measurement measurement(m, drafter, o, std::move(ids));
  std::printf(
      "%u texts of %u tokens after %u of %s, %u drafts a step; share of the drafts at a place that were kept\n\n",
      o.prompts, measurement.tokens(), o.prompt_tokens, o.text.c_str(), o.drafts);
  std::printf("| temperature | drafts |");
  for (uint32_t i = 0; i < o.drafts; ++i) std::printf(" %u |", i + 1);
  std::printf(" tokens a step with drafts | such steps | tokens |\n|---|---|");
  for (uint32_t i = 0; i < o.drafts + 3; ++i) std::printf("---|");
  std::printf("\n");
  for (const float temperature : {0.0f, 0.7f, 1.0f}) {
    for (const bool greedy : {false, true}) {
      if (greedy && drafter == Speculation::ngram) continue;  // its guesses are copied, not drawn
      SWY_LET(const Kept kept, measurement.over_the_text(temperature, greedy));
      const char* how = drafter == Speculation::ngram ? "copied" : greedy ? "most likely" : "same noise";
      print_row(temperature, how, kept, o.drafts);
    }
  }
  return {};
}

}  // namespace switchyard
