// SPDX-License-Identifier: Apache-2.0
#include "bench/draft_layer.h"

#include <cstdio>
#include <functional>
#include <random>

#include "bench/draft_texts.h"
#include "core/base/median.h"
#include "core/engine/prepare.h"
#include "core/text/tokenizer.h"

namespace switchyard {
namespace {

constexpr uint32_t kTokensOfText = 1024, kPromptTokens = 256, kGuesses = MtpDrafter::kMostDrafts, kPrompts = 24;

// Microseconds, the median of many.
Result<double> time_of(uint32_t rounds, const std::function<Status()>& before, const std::function<Status()>& work) {
  std::vector<double> us;
  for (uint32_t i = 0; i < rounds; ++i) {
    SWY_TRY(before());
    const uint64_t begin = Os::real().now_ns();
    SWY_TRY(work());
    us.push_back(static_cast<double>(Os::real().now_ns() - begin) / 1e3);
  }
  return median_of(us);
}

class LayerTexts {
 public:
  LayerTexts(std::unique_ptr<Session> plain, std::unique_ptr<Session> layer, std::vector<std::vector<int32_t>> prompts,
             const LayerBench& options)
      : plain_(std::move(plain)), layer_(std::move(layer)), prompts_(std::move(prompts)), options_(options) {}

  // A guess from a row that waits, and from the layer's own; rows of a text, which are read without a guess.
  Status steps() {
    const uint32_t width = layer_->model().hidden_width(), rounds = options_.text.empty() ? 15 : 200;
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    std::vector<float> rows(size_t{kPromptTokens + 1} * width);
    for (float& x : rows) x = normal(random);
    const std::vector<int32_t>& ids = prompts_[0];
    const auto wait = [&](uint32_t n) -> Status {  // so many rows whose next token is known, and the last one
      layer_->reset();
      SWY_TRY(layer_->prepare(kPromptTokens));
      layer_->trail().saw(0, std::span(ids).first(n + 1), std::span(rows).first(size_t{n + 1} * width));
      return {};
    };
    std::printf("| the layer's step | us |\n|---|---|\n");
    SWY_LET(const double one, time_of(
                                  rounds, [&] { return wait(0); }, [&] { return layer_->draft_row(1).status(); }));
    std::printf("| a guess | %.1f |\n", one);
    SWY_LET(const double next, time_of(
                                   rounds, [] { return Status(); },
                                   [&]() -> Status {
                                     SWY_TRY(layer_->draft_row(1).status());
                                     return layer_->next_draft_row(1).status();
                                   }));
    std::printf("| two guesses | %.1f |\n", next);
    SWY_TRY(drawn(rounds, wait));
    for (const uint32_t n : {1u, 2u, 4u, 8u, 16u, 32u, 64u, 128u, 255u}) {
      SWY_LET(const double us, time_of(
                                   rounds / 4 + 1, [&] { return wait(n); }, [&] { return layer_->read_trail(); }));
      std::printf("| %u rows of a text | %.1f |\n", n, us);
    }
    const auto see = [&] {
      layer_->trail().saw(0, std::span(ids).first(1), std::span(rows).first(width));
      return Status();
    };
    SWY_LET(const double saw, time_of(
                                  rounds, [&] { return layer_->reset(), Status(); }, see));
    std::printf("| a row that waits | %.2f |\n", saw);
    layer_->reset();
    return {};
  }

  // Guesses that the device draws, until their ids are there.
  Status drawn(uint32_t rounds, const std::function<Status(uint32_t)>& wait) {
    Model& model = layer_->model();
    if (!model.mtp()->draws()) return {};
    SWY_LET(const Sampler sampler, Sampler::create({.temperature = 1, .top_p = 1, .seed = 7}, model.vocab()));
    StepRunner& runner = model.runner();
    for (const uint32_t n : {1u, 2u, 3u, 4u}) {
      std::vector<SampleRow> rows;
      for (uint32_t i = 0; i < n; ++i) {
        rows.push_back({.sampler = &sampler, .position = i + 1, .token_entry = runner.guess_entries() + i});
      }
      const auto guess = [&]() -> Status {
        SWY_TRY(layer_->submit_drafts(1, rows).status());
        SWY_TRY(runner.read_ids(runner.guess_entries(), n));
        return runner.ids().status();
      };
      SWY_LET(const double us, time_of(
                                   rounds, [&] { return wait(0); }, guess));
      std::printf("| %u drawn on the device | %.1f |\n", n, us);
    }
    return {};
  }

  Status pairs(const char* name, uint32_t most, bool always, float temperature, Wrong wrong) {
    const std::string row = std::string(name) + (options_.text.empty() ? "" : temperature == 0 ? ", at 0" : ", at 0.7");
    if (row.find(options_.texts) == std::string::npos) return {};
    told_ = true;
    TextPairs pairs;
    StretchSums sums;
    const uint32_t rounds = options_.pairs > 0 ? options_.pairs : options_.text.empty() ? 5 : 40;
    Telling as{.tokens = 160, .temperature = temperature};
    BenchText told;  // of a forced text
    if (options_.text.empty()) {
      SWY_LET(told, tell(*plain_, prompts_[0], as));
    }
    for (uint32_t i = 0; i < rounds; ++i) {
      const std::vector<int32_t>& prompt = prompts_[i % prompts_.size()];
      Telling drafted = as;
      drafted.always = always;
      if (most > 0) drafted.drafter = std::make_shared<MtpDrafter>(*layer_, most);
      if (most > 0 && options_.text.empty()) {
        drafted.drafter = std::make_shared<ForcedDrafter>(name, told, wrong, most, i, layer_.get());
      }
      const auto plain = [&] { return tell(*plain_, prompt, as); };
      const auto with = [&] {
        layer_->model().observe(options_.where ? &sums : nullptr);
        auto told_so = tell(*layer_, prompt, drafted);
        layer_->model().observe(nullptr);
        return told_so;
      };
      SWY_TRY(pairs.add(i % 2 == 0, plain, with));
    }
    pairs.print(row);
    if (options_.where) sums.print();
    return {};
  }

  Status texts() {
    TextPairs::print_head();
    for (const float temperature :
         !options_.text.empty() ? std::vector<float>{0.0f, 0.7f} : std::vector<float>{kForcedTemperature}) {
      const Wrong few{.share = 0.15};
      SWY_TRY(pairs("no guesses", 0, false, temperature, few));
      SWY_TRY(pairs("auto", kGuesses, false, temperature, few));
      SWY_TRY(pairs("always 1", 1, true, temperature, few));
      SWY_TRY(pairs("always 2", 2, true, temperature, few));
      SWY_TRY(pairs("always 3", 3, true, temperature, few));
      if (options_.text.empty()) SWY_TRY(pairs("auto, none right", kGuesses, false, temperature, {.share = 1}));
    }
    if (!told_) return error(Code::usage, "no text has '{}' in its name", options_.texts);
    return {};
  }

 private:
  std::unique_ptr<Session> plain_, layer_;
  std::vector<std::vector<int32_t>> prompts_;
  const LayerBench& options_;
  bool told_ = false;
};

// Parts of a text; of none, random tokens.
Result<std::vector<std::vector<int32_t>>> prompts_of(const Program& program, uint32_t vocab, const std::string& path) {
  std::vector<std::vector<int32_t>> prompts;
  std::vector<int32_t> ids;
  if (path.empty()) {
    std::mt19937 random(3);
    for (uint32_t i = 0; i < kPromptTokens; ++i) ids.push_back(static_cast<int32_t>(random() % vocab));
  } else {
    SWY_LET(const std::string text, Os::real().read(path, uint64_t{64} << 20));
    SWY_LET(const Tokenizer tokenizer, Tokenizer::parse(program.tokenizer_json));
    SWY_LET(ids, tokenizer.encode(text, Specials::letters));
  }
  if (ids.size() < kPromptTokens) return error(Code::usage, "{} has fewer than {} tokens", path, kPromptTokens);
  const size_t step = path.empty() ? kPromptTokens : std::max<size_t>((ids.size() - kPromptTokens) / kPrompts, 1);
  for (size_t at = 0; at + kPromptTokens <= ids.size() && prompts.size() < kPrompts; at += step) {
    prompts.emplace_back(ids.begin() + static_cast<ptrdiff_t>(at),
                         ids.begin() + static_cast<ptrdiff_t>(at + kPromptTokens));
  }
  return prompts;
}

}  // namespace

Status print_layer(Registry& registry, Host& host, const LayerBench& bench) {
  SWY_LET(Program loaded, bench_program(bench.model));
  const auto program = std::make_shared<const Program>(std::move(loaded));
  std::vector<std::unique_ptr<Model>> models;  // a large one is loaded once
  for (const Speculation speculation : {Speculation::mtp, Speculation::off}) {
    if (speculation == Speculation::off && bench.text.empty()) break;
    ModelOptions options;
    options.context = kTokensOfText;
    options.sessions = bench.text.empty() ? 2 : 1;
    options.load_threads = host.threads();
    SWY_TRY(add_speculation(speculation, *program, options));
    SWY_LET(auto selection, registry.select(bench.backend));
    SWY_LET(auto model, Model::create(program, std::move(selection.devices), selection.policy, options));
    SWY_TRY(prepare_decoding(*model, {}));
    models.push_back(std::move(model));
  }
  SWY_LET(auto prompts, prompts_of(*program, models[0]->vocab(), bench.text));
  SWY_LET(auto plain, models.back()->session());
  SWY_LET(auto layer, models[0]->session());
  LayerTexts all(std::move(plain), std::move(layer), std::move(prompts), bench);
  SWY_TRY(all.steps());
  return all.texts();
}

}  // namespace switchyard
