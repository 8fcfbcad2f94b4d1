// SPDX-License-Identifier: Apache-2.0
#include "core/generate/text_generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/draft/ngram.h"
#include "core/engine/mtp_drafter.h"
#include "core/generate/forced_text.h"
#include "core/generate/text_constraint.h"

namespace switchyard {
namespace {

// The constraint that the options name; none if they name none.
Result<std::shared_ptr<TokenConstraint>> constraint_of(const TextOptions& o, const Tokenizer* tokenizer,
                                                       uint32_t vocab) {
  const bool gbnf = o.grammar.find("::=") != std::string::npos;
  struct Given {
    const std::string& text;
    ConstraintKind kind;
    std::string name;
  };
  const Given all[] = {{o.allow_regex, ConstraintKind::regex, fmt::format("--allow-regex '{}'", o.allow_regex)},
                       {o.json_schema, ConstraintKind::json_schema, "--json-schema"},
                       {o.grammar, gbnf ? ConstraintKind::gbnf : ConstraintKind::lark, "--grammar"}};
  std::shared_ptr<TokenConstraint> made;
  for (const Given& given : all) {
    if (given.text.empty()) continue;
    if (made != nullptr) return error(Code::usage, "give {} or {}, not both", made->name(), given.name);
    if (tokenizer == nullptr) return error(Code::usage, "{} needs a tokenizer, which this model lacks", given.name);
    SWY_LET(auto compiled, compile_constraint(given.kind, given.text, *tokenizer, vocab, given.name));
    made = std::make_shared<TextConstraint>(std::move(compiled), *tokenizer, o.sampling.stop_ids, given.name);
  }
  return made;
}

}  // namespace

Result<std::unique_ptr<TextGeneration>> TextGeneration::create(const Model& model, const Tokenizer* tokenizer,
                                                               TextOptions options,
                                                               std::function<bool(const TextPiece&)> on_piece,
                                                               std::shared_ptr<TokenConstraint> constraint) {
  if (tokenizer == nullptr && !options.stops.empty()) {
    return error(Code::usage, "a stop string needs a tokenizer, which this model lacks");
  }
  if (!options.ignore_eos && options.sampling.stop_ids.empty()) {
    const auto& ends = model.program().eos_ids;
    options.sampling.stop_ids.assign(ends.begin(), ends.end());
  }
  std::unique_ptr<TextGeneration> g(new TextGeneration(model, tokenizer, std::move(options), std::move(on_piece)));
  SWY_LET(g->constraint_, constraint_of(g->options_, tokenizer, model.vocab()));
  if (constraint != nullptr) {
    if (g->constraint_ != nullptr) {
      return error(Code::usage, "give {} or {}, not both", g->constraint_->name(), constraint->name());
    }
    g->constraint_ = std::move(constraint);
  }
  return g;
}

Request TextGeneration::request(std::vector<int32_t> prompt, std::vector<int32_t> history, Session* session) {
  Request r;
  r.prompt = std::move(prompt);
  r.history = std::move(history);
  r.max_tokens = options_.max_tokens;
  r.sampling = options_.sampling;
  r.path = options_.path;
  r.on_token = [this](const TokenEvent& event) { return take(event); };
  if (constraint_ != nullptr) {
    r.mask_name = constraint_->name();
    r.mask = [this](std::span<const int32_t> drawn, std::span<uint32_t> mask) { allow(drawn, mask); };
  }
  if (model_.drafts() > 0) add_drafters(r, session);
  return r;
}

void TextGeneration::add_drafters(Request& r, Session* session) {
  if (options_.speculate == Speculation::off) return;
  const bool mtp = options_.speculate == Speculation::mtp, all = options_.speculate == Speculation::automatic;
  const bool model = options_.speculate == Speculation::model;
  r.draft_always = !all && !model;
  if (constraint_ != nullptr && tokenizer_ != nullptr && !r.draft_always) {
    r.drafters.push_back(std::make_shared<ForcedText>(constraint_, *tokenizer_, drawn_));
  }
  if (!mtp) r.drafters.push_back(std::make_shared<NgramDrafter>());
  const bool layer = session != nullptr && session->may_draft();
  if (layer && (mtp || all)) {
    r.drafters.push_back(
        std::make_shared<MtpDrafter>(*session, mtp ? MtpDrafter::kAlwaysDrafts : MtpDrafter::kMostDrafts));
  }
  if (model && draft_ != nullptr) r.drafters.push_back(draft_->drafter());
}

// The tokens after the request's own are drafts. Where they are not more than those of the last call, they may be
// others.
void TextGeneration::allow(std::span<const int32_t> drawn, std::span<uint32_t> mask) {
  if (ahead_ && drawn.size() <= followed_) take_back();
  followed_ = drawn.size();
  if (drawn.size() > drawn_.size() && !std::exchange(ahead_, true)) constraint_->hold();
  constraint_->allow(drawn, mask);
}

void TextGeneration::take_back() {
  if (std::exchange(ahead_, false)) constraint_->back();
}

bool TextGeneration::give(const TextPiece& piece) {
  text_ += piece.text;
  return !on_piece_ || on_piece_(piece);
}

bool TextGeneration::take(const TokenEvent& event) {
  const Stretch stretch(model_.runner().observer(), "detokenize");
  TextPiece piece{event.id, {}, event.logprob, event.top_ids, event.top_logprobs};
  if (!event.end && detokenizer_) piece.text = stops_.push(detokenizer_->push(event.id));
  take_back();
  if (constraint_ != nullptr && !event.end) {
    drawn_.push_back(event.id);
    matched_ = constraint_->finished(drawn_);
  }
  return give(piece) && !stops_.stopped() && !matched_;
}

void TextGeneration::finish() {
  if (!detokenizer_) return;
  TextPiece rest{-1, stops_.push(detokenizer_->flush()), 0, {}, {}};
  rest.text += stops_.flush();
  if (!rest.text.empty()) give(rest);
}

Status TextGeneration::failure(const Outcome& outcome) const {
  if (outcome.stopped == StopReason::failed && constraint_ != nullptr && !constraint_->fault().ok()) {
    return constraint_->fault();
  }
  return outcome.status;
}

const char* TextGeneration::stopped(const Outcome& outcome) const {
  if (outcome.stopped == StopReason::callback) {
    if (stops_.stopped()) return "stop";
    if (matched_) return "pattern";
  }
  return stop_name(outcome.stopped);
}

}  // namespace switchyard
