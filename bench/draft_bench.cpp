// SPDX-License-Identifier: Apache-2.0
// What drafted tokens cost and save on a model: the time of a step by its rows of one sequence, and of a text with
// a given share of drafts that are right, beside the same text without drafts.
//   draft_bench MODEL.swy|synth:... BACKEND FOLDER [again] [steps] [texts=PART] [pairs=N]
//   draft_bench MODEL.swy|synth:...,mtp=1 BACKEND FOLDER layer [text=FILE] [texts=PART] [pairs=N] [where]
//   draft_bench MODEL.swy BACKEND FOLDER acceptance ngram|mtp|model:FILE TEXT
// The second form is of the model's multi-token prediction layer (draft_layer.h); the third tells what share of a
// drafter's guesses is kept (draft_acceptance.h). The first two have threads=N, too. FOLDER has the backends. With
// `again` no rows are pending: those that stand are computed again. With `steps` there are no texts; with `texts=` only
// those whose name has this part, and no steps.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bench/draft_acceptance.h"
#include "bench/draft_layer.h"
#include "bench/draft_texts.h"
#include "core/base/median.h"
#include "core/draft/speculation.h"
#include "core/engine/mtp_drafter.h"
#include "core/engine/prepare.h"

namespace switchyard {
namespace {

constexpr uint32_t kContext = 2048, kDepth = 256, kRounds = 9;

double now_ms() { return static_cast<double>(Os::real().now_ns()) / 1e6; }

class Bench {
 public:
  Bench(Model& model, std::unique_ptr<Session> session) : model_(model), session_(std::move(session)) {
    std::mt19937 random(3);
    for (uint32_t i = 0; i < kDepth; ++i) prompt_.push_back(static_cast<int32_t>(random() % model.vocab()));
  }

  // Draws the rows of a step on the device.
  Status draw(StepSequence& s) {
    std::vector<SampleRow> draws;
    StepRunner& runner = model_.runner();
    for (uint32_t i = 0; i < s.tokens.size(); ++i) {
      draws.push_back({.sampler = &*sampler_,
                       .position = s.position + i + 1,
                       .token_entry = i == 0 ? 0 : runner.draw_entries() + i - 1});
    }
    s.samples = draws;
    SWY_TRY(runner.submit({&s, 1}, kWantTokens));
    return runner.collect().status();
  }

  // A step of so many rows, of which as many stand. Returns its time.
  Result<double> step(uint32_t rows, uint32_t stand, bool draws) {
    const bool pending = model_.pending_rows() > 0;
    const double begin = now_ms();
    SWY_TRY(session_->prepare(rows, model_.feeds_again()));
    StepSequence s = session_->sequence();
    s.tokens = std::span(prompt_).first(rows);
    s.logit_rows = rows;
    s.pending = pending;
    if (pending) session_->pend();
    Status ran = draws ? draw(s) : model_.runner().run({&s, 1}).status();
    if (stand == 0) session_->abandon();
    session_->commit(stand);
    SWY_TRY(std::move(ran));
    return now_ms() - begin;
  }

  // Each step begins at the same position, and is taken back. With pending rows it follows one of as many rows, which
  // all stand, so that it applies these first.
  Status steps() {
    SWY_TRY(table(false));
    SWY_LET(sampler_, Sampler::create({.temperature = 1, .top_p = 1, .seed = 7}, model_.vocab()));
    return model_.device_sampling().token ? table(true) : Status();
  }

  Status table(bool draws) {
    session_->reset();
    SWY_TRY(session_->feed(prompt_).status());
    SWY_LET(const auto begin, session_->keep());
    const std::vector<uint32_t> sizes = {1, 2, 3, 4, 5, 6, 7, 8, 16, 32};
    std::vector<std::vector<double>> ms(sizes.size());
    for (uint32_t round = 0; round < kRounds + 2; ++round) {
      for (size_t i = 0; i < sizes.size(); ++i) {
        SWY_TRY(session_->resume(*begin));
        if (model_.pending_rows() > 0) SWY_TRY(step(sizes[i], sizes[i], draws).status());
        SWY_LET(const double took, step(sizes[i], 0, draws));
        if (round >= 2) ms[i].push_back(took);
      }
    }
    const auto least = [&](size_t i) { return *std::min_element(ms[i].begin(), ms[i].end()); };
    std::printf("\n%s:\n\n| rows | ms a step | of one row | least | of one row |\n|---|---|---|---|---|\n",
                draws ? "Drawn on the device" : "Logits to the host");
    for (size_t i = 0; i < sizes.size(); ++i) {
      std::printf("| %u | %.3f | %.2f | %.3f | %.2f |\n", sizes[i], median_of(ms[i]),
                  median_of(ms[i]) / median_of(ms[0]), least(i), least(i) / least(0));
    }
    return {};
  }

  // Pairs of the text with and without drafts, in turn.
  Status pair(const char* name, Wrong wrong, uint32_t most, bool always, uint32_t pairs) {
    SWY_LET(const BenchText first, tell(*session_, prompt_, {}));
    const Telling plain;
    const auto guessed = [&](uint32_t seed) {
      const auto drafter = std::make_shared<ForcedDrafter>(name, first, wrong, most, seed);
      return tell(*session_, prompt_, {.drafter = drafter, .always = always});
    };
    SWY_TRY(guessed(pairs).status());  // makes the lists
    TextPairs all;
    for (uint32_t i = 0; i < pairs; ++i) {
      const auto without = [&] { return tell(*session_, prompt_, plain); };
      SWY_TRY(all.add(i % 2 == 0, without, [&] { return guessed(i); }));
    }
    all.print(name);
    return {};
  }

 private:
  Model& model_;
  std::unique_ptr<Session> session_;
  std::vector<int32_t> prompt_;
  std::optional<Sampler> sampler_;
};

struct Arguments {
  std::string model, backend, folder;
  bool again = false, steps = false;
  std::string texts = {};  // "": all, and the steps
  uint32_t pairs = 0;      // of texts; 0: as many as are usual
  uint32_t threads = std::thread::hardware_concurrency();
  bool layer = false, where = false;  // of the model
  std::string text = {};              // for it
  AcceptanceOptions acceptance = {};  // without a drafter: none
};

Status run(const Arguments& a) {
  const auto host = std::make_shared<Host>(a.threads);
  DiscoveryOptions discovery = default_discovery();
  discovery.search_path = a.folder;
  Registry registry = Registry::discover(Os::real(), discovery, *host);
  if (a.layer) return print_layer(registry, *host, {a.model, a.backend, a.text, a.texts, a.pairs, a.where});
  SWY_LET(Program program, bench_program(a.model));
  ModelOptions options;
  options.context = kContext;
  if (a.acceptance.drafter.empty()) {
    options.drafts = kDefaultDrafts;
    options.checkpoints = 1;
  } else {
    SWY_LET(const Speculation drafter, parse_speculation(a.acceptance.drafter));
    SWY_TRY(add_speculation(drafter, program, options));
    options.drafts = a.acceptance.drafts;
  }
  options.pending_rows = !a.again;
  SWY_LET(LoadedModel loaded, load_model(host, std::move(registry), a.backend,
                                         std::make_shared<const Program>(std::move(program)), options));
  if (!a.acceptance.drafter.empty()) return print_acceptance(loaded, a.backend, options, a.acceptance);
  SWY_LET(auto session, loaded.model->session());
  Bench bench(*loaded.model, std::move(session));
  std::printf("%u pending rows\n", loaded.model->pending_rows());
  if (a.texts.empty()) SWY_TRY(bench.steps());
  if (a.steps) return {};
  SWY_TRY(prepare_decoding(*loaded.model, {.temperature = kForcedTemperature, .top_p = 1}));
  TextPairs::print_head();
  const Wrong few{.share = 0.15}, drawn{.share = 0.15, .drawn = true}, none = {};
  const struct {
    const char* name;
    Wrong wrong;
    uint32_t most;
    bool always;
  } texts[] = {{"auto, none right", {.share = 1}, 31, false}, {"auto, half right", {.share = 0.5}, 31, false},
               {"auto, 0.85 right", few, 31, false},          {"auto, 0.85 right, drawn", drawn, 31, false},
               {"auto, all right", none, 31, false},          {"always 2, 0.85 right", few, 2, true},
               {"always 3, 0.85 right", few, 3, true},        {"always 3, 0.85 right, drawn", drawn, 3, true},
               {"always 7, 0.85 right", few, 7, true},        {"always 7, all right", none, 7, true},
               {"always 31, all right", none, 31, true}};
  size_t told = 0;
  for (const auto& t : texts) {
    if (std::string_view(t.name).find(a.texts) == std::string_view::npos) continue;
    ++told;
    SWY_TRY(bench.pair(t.name, t.wrong, t.most, t.always, a.pairs > 0 ? a.pairs : 5));
  }
  if (told == 0) return error(Code::usage, "no text has '{}' in its name", a.texts);
  return {};
}

}  // namespace
}  // namespace switchyard

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  constexpr char kUsage[] =
      "usage: draft_bench MODEL.swy|synth:... BACKEND FOLDER [again] [steps] [texts=PART] [pairs=N]\n"
      "       draft_bench MODEL.swy|synth:...,mtp=1 BACKEND FOLDER layer [text=FILE] [texts=PART] [pairs=N] [where]\n"
      "                   both with [threads=N]\n"
      "       draft_bench MODEL.swy BACKEND FOLDER acceptance ngram|mtp|model:FILE TEXT\n";
  bool known = argc >= 4;
  switchyard::Arguments a;
  if (known) a.model = argv[1], a.backend = argv[2], a.folder = argv[3];
  for (int i = 4; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "again" || word == "steps" || word == "layer" || word == "where") {
      (word == "again" ? a.again : word == "steps" ? a.steps : word == "layer" ? a.layer : a.where) = true;
    } else if (word.starts_with("texts=")) {
      a.texts = word.substr(6);
    } else if (word.starts_with("text=")) {
      a.text = word.substr(5);
    } else if (word.starts_with("pairs=")) {
      a.pairs = static_cast<uint32_t>(std::atoi(word.c_str() + 6));
      known &= a.pairs > 0;
    } else if (word.starts_with("threads=")) {
      a.threads = static_cast<uint32_t>(std::atoi(word.c_str() + 8));
      known &= a.threads > 0 && a.threads <= 1024;
    } else if (word == "acceptance" && argc == 7 && i == 4) {
      a.acceptance = {.drafter = argv[5], .text = argv[6]};
      break;
    } else {
      known = false;
    }
  }
  if (!known || (a.layer ? a.again || a.steps : a.where || !a.text.empty())) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  const switchyard::Status s = switchyard::run(a);
  if (!s.ok()) std::fprintf(stderr, "draft_bench: %s\n", s.message().c_str());
  return s.ok() ? 0 : 1;
}
