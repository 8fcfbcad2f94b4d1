// SPDX-License-Identifier: Apache-2.0
// switchyard diverge: where two backends, or two choices of kernels, first continue a text differently.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/runtime.h"
#include "cli/sample_text.h"
#include "core/engine/diverge.h"

namespace switchyard::cli {
namespace {

using nlohmann::ordered_json;

struct DivergeFlags {
  Settings settings;
  std::string against = "reference", against_model, file;
  std::vector<std::string> against_sets, against_variants;
  uint32_t prompts = 16, length = 32, tokens = 128;
  bool json = false;
};

struct Prompt {
  std::vector<int32_t> ids;
  std::vector<GreedyStep> steps;
  std::optional<GreedyDivergence> divergence;
};

// Stretches of the text, one after another.
Result<std::vector<Prompt>> cut_prompts(const DivergeFlags& o, const Runtime& r) {
  SWY_LET(const auto ids, sample_text(r.tokenizer.get(), r.model->vocab(), o.prompts * o.length, o.file));
  std::vector<Prompt> prompts(o.prompts);
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto from = std::span(ids).subspan(i * o.length, o.length);
    prompts[i].ids.assign(from.begin(), from.end());
  }
  return prompts;
}

Status stop_if_interrupted() {
  return interrupted.load() ? error(Code::cancelled, "stopped before all prompts were continued") : Status();
}

// One after the other, so that only one copy of the weights is in memory, and options of a backend may differ.
Result<std::vector<Prompt>> compare(const DivergeFlags& o, std::unique_ptr<Tokenizer>& tokenizer) {
  Settings settings = o.settings;
  if (settings.context == 0) settings.context = o.length + o.tokens;
  const auto host = std::make_shared<Host>(thread_count(settings));
  std::vector<Prompt> prompts;
  uint32_t vocab = 0;
  Progress bar("continuing");
  {
    SWY_LET(Runtime r, load_runtime(settings, host));
    SWY_LET(prompts, cut_prompts(o, r));
    vocab = r.model->vocab();
    for (size_t i = 0; i < prompts.size(); ++i) {
      bar.update(i, 2 * prompts.size());
      SWY_TRY(stop_if_interrupted());
      SWY_LET(prompts[i].steps, continue_greedily(*r.model, prompts[i].ids, o.tokens));
    }
    tokenizer = std::move(r.tokenizer);
  }
  settings.backend = o.against;
  settings.sets = o.against_sets;
  settings.variants = o.against_variants;
  settings.exact = false;
  if (!o.against_model.empty()) settings.model = o.against_model;
  SWY_LET(Runtime r, load_runtime(settings, host));
  if (r.model->vocab() != vocab)
    return error(Code::usage, "{} has a different vocabulary; choose models with the same tokenizer", settings.model);
  for (size_t i = 0; i < prompts.size(); ++i) {
    bar.update(prompts.size() + i, 2 * prompts.size());
    SWY_TRY(stop_if_interrupted());
    SWY_LET(prompts[i].divergence, first_divergence(*r.model, prompts[i].ids, prompts[i].steps));
  }
  return prompts;
}

std::string word(const Tokenizer* tokenizer, int32_t id) {
  return tokenizer == nullptr
             ? std::to_string(id)
             : ordered_json(tokenizer->decode({&id, 1})).dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

ordered_json report_json(const DivergeFlags& o, const std::vector<Prompt>& prompts) {
  ordered_json out = {{"against", o.against}, {"tokens", o.tokens}, {"prompts", ordered_json::array()}};
  for (const Prompt& p : prompts) {
    ordered_json row = {{"diverged", p.divergence.has_value()}};
    if (const auto& d = p.divergence) {
      row["position"] = d->position;
      row["ids"] = {d->id, d->other_id};
      row["gap"] = d->gap ? ordered_json(*d->gap) : ordered_json();
      row["other_gap"] = d->other_gap;
    }
    out["prompts"].push_back(std::move(row));
  }
  return out;
}

void print_report(const DivergeFlags& o, const std::vector<Prompt>& prompts, const Tokenizer* tokenizer) {
  fmt::print("{:>6} {:>9} {:>8} {:>9}  {}\n", "prompt", "position", "gap", "gap there", "here, there");
  size_t diverged = 0;
  std::vector<size_t> agreed;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto& d = prompts[i].divergence;
    agreed.push_back(d ? d->position : o.tokens);
    if (!d) {
      fmt::print("{:>6} {:>9}\n", i, "-");
      continue;
    }
    ++diverged;
    fmt::print("{:>6} {:>9} {:>8} {:>9.4f}  {}, {}\n", i, d->position, d->gap ? fmt::format("{:.4f}", *d->gap) : "far",
               d->other_gap, word(tokenizer, d->id), word(tokenizer, d->other_id));
  }
  std::sort(agreed.begin(), agreed.end());
  fmt::print("{} of {} prompts differ within {} tokens; the median agrees for {}\n", diverged, prompts.size(), o.tokens,
             agreed[agreed.size() / 2]);
}

Status diverge(const DivergeFlags& o) {
  std::unique_ptr<Tokenizer> tokenizer;
  SWY_LET(const std::vector<Prompt> prompts, compare(o, tokenizer));
  if (o.json) {
    print_json(report_json(o, prompts));
  } else {
    print_report(o, prompts, tokenizer.get());
  }
  return {};
}

}  // namespace

void add_diverge(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<DivergeFlags>();
  CLI::App* c = app.add_subcommand("diverge", "Find where two backends first continue a text differently");
  c->footer(
      "Example: switchyard diverge --backend cpu --against reference\n"
      "         switchyard diverge --backend cpu --against cpu --against-set cpu.exact=1\n"
      "Each prompt is continued greedily. `gap` is by how much the logit of the token chosen here exceeds that of the\n"
      "token chosen there, `gap there` the other way round: small ones are near ties.");
  c->add_option("--against", o->against, "the other backend, as --backend takes it")->capture_default_str();
  c->add_option("--against-set", o->against_sets, "--set of the other")->delimiter(',')->allow_extra_args(false);
  c->add_option("--against-variant", o->against_variants, "--variant of the other")
      ->delimiter(',')
      ->allow_extra_args(false);
  add_input(*c, "--against-model", o->against_model, "another model file with the same vocabulary");
  add_input(*c, "--file,-f", o->file, "the text that prompts are taken from; without it the demo model's");
  c->add_option("--prompts", o->prompts, "how many")->check(CLI::Range(1u, 10000u))->capture_default_str();
  c->add_option("--length", o->length, "tokens of a prompt")->check(CLI::Range(1u, 65536u))->capture_default_str();
  c->add_option("--tokens,-n", o->tokens, "to continue each with")
      ->check(CLI::Range(1u, 65536u))
      ->capture_default_str();
  c->add_flag("--json", o->json, "print JSON");
  add_settings(*c, o->settings, "program");
  set_action(*c, exit_code, [o] { return diverge(*o); });
}

}  // namespace switchyard::cli
