// SPDX-License-Identifier: Apache-2.0
// TextGeneration: a batch's request that begins and ends as text: the prompt's ids in, the answer's text out as it
// completes, up to an end-of-sequence id, a stop string, a pattern's end or a limit.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/draft/speculation.h"
#include "core/engine/batch.h"
#include "core/engine/model_drafter.h"
#include "core/generate/stop_strings.h"
#include "core/generate/token_constraint.h"
#include "core/text/detokenizer.h"
#include "core/text/tokenizer.h"

namespace switchyard {

struct TextOptions {
  uint32_t max_tokens = 128;
  SamplingParams sampling;
  std::optional<SamplingPath> path;
  std::vector<std::string> stops;  // nothing of them is given out
  // The text belongs to this language, as far as it comes; at most one of them is given.
  std::string allow_regex, json_schema;
  std::string grammar;  // GBNF, or in the style of Lark
  bool ignore_eos = false;
  Speculation speculate = Speculation::off;  // with a model that was made with ModelOptions::drafts
};

// One token, and the text that became complete with it (of this token and earlier ones; often none).
struct TextPiece {
  int32_t id = 0;
  std::string text;
  float logprob = 0;
  std::span<const int32_t> top_ids;
  std::span<const float> top_logprobs;
};

class TextGeneration {
 public:
  // `model` and `tokenizer` outlive it. Without a tokenizer the pieces are ids alone. `on_piece` may be empty;
  // returning false ends the generation. `constraint` stands for those of the options. Errors: usage, for a constraint
  // that cannot be followed, or two of them, and for what needs a tokenizer where there is none.
  static Result<std::unique_ptr<TextGeneration>> create(const Model& model, const Tokenizer* tokenizer,
                                                        TextOptions options,
                                                        std::function<bool(const TextPiece&)> on_piece,
                                                        std::shared_ptr<TokenConstraint> constraint = {});

  // The batch's part, which borrows this object. A request that was set aside goes on with another one.
  // `session`: the one that it is for, whose model's own layer may then draft.
  Request request(std::vector<int32_t> prompt, std::vector<int32_t> history = {}, Session* session = nullptr);
  const TextOptions& options() const { return options_; }
  void set_seed(uint64_t seed) { options_.sampling.seed = seed; }  // before the first request
  // The model that guesses for Speculation::model; it outlives this object's requests. Before the first of them.
  void guess_by(DraftModel* model) { draft_ = model; }

  // When the request has ended: the rest of the text goes to `on_piece`, with id -1.
  void finish();
  const std::string& text() const { return text_; }
  // "end", "stop", "pattern", "length", "context", "cancelled", "callback" or "failed".
  const char* stopped(const Outcome& outcome) const;
  // Why it failed; where the constraint reached a limit, that.
  Status failure(const Outcome& outcome) const;

 private:
  TextGeneration(const Model& model, const Tokenizer* tokenizer, TextOptions options,
                 std::function<bool(const TextPiece&)> on_piece)
      : model_(model),
        tokenizer_(tokenizer),
        options_(std::move(options)),
        on_piece_(std::move(on_piece)),
        stops_(options_.stops) {
    if (tokenizer != nullptr) detokenizer_.emplace(*tokenizer);
  }
  bool take(const TokenEvent& event);
  bool give(const TextPiece& piece);
  void add_drafters(Request& request, Session* session);
  void take_back();
  void allow(std::span<const int32_t> drawn, std::span<uint32_t> mask);

  const Model& model_;
  DraftModel* draft_ = nullptr;
  const Tokenizer* tokenizer_;  // NULL: the model has none
  TextOptions options_;
  std::function<bool(const TextPiece&)> on_piece_;
  std::optional<Detokenizer> detokenizer_;
  StopStrings stops_;
  std::shared_ptr<TokenConstraint> constraint_;
  std::vector<int32_t> drawn_;  // for the constraint
  bool ahead_ = false;          // the constraint has followed drafts
  size_t followed_ = 0;         // tokens of the last mask, drafts included
  bool matched_ = false;        // nothing can follow
  std::string text_;
};

}  // namespace switchyard
