// SPDX-License-Identifier: Apache-2.0
// What the drafts of a model's multi-token prediction layer cost and save. `draft_bench` tells how often they are kept.
//   mtp_bench MODEL.swy|synth:...,mtp=1 BACKEND FOLDER [TEXT]
// With a text, each prompt is a part of it, and the drafts are the layer's own. Without one the layer computes its
// drafts, and what it gives is replaced by guesses that are right with a probability: for models with random weights.
#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/engine/batch.h"
#include "core/engine/mtp_drafter.h"
#include "core/engine/prepare.h"
#include "core/import/synthetic.h"
#include "core/plugin/registry.h"
#include "core/text/tokenizer.h"

namespace switchyard {
namespace {

constexpr uint32_t kContext = 1024, kDepth = 256, kMost = 4;

// Of texts, and of the fewer, shorter ones of a large model.
struct Amount {
  uint32_t tokens = 160, pairs = 40;
};

double median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + static_cast<ptrdiff_t>(x.size() / 2), x.end());
  return x[x.size() / 2];
}

// The layer computes as for its own drafts; the guesses are right with a probability.
class Forced final : public Drafter {
 public:
  Forced(Session& session, std::vector<int32_t> whole, double right, uint32_t most)
      : session_(session), inner_(session), whole_(std::move(whole)), right_(right), most_(most) {}
  void saw(std::span<const int32_t> ids) override { seen_ += ids.size(); }
  Status propose(uint32_t most, Guesses& guesses) override {
    SWY_TRY(inner_.catch_up());
    for (uint32_t i = 0; i < std::min(most, most_) && seen_ + i < whole_.size() && session_.can_draft(); ++i) {
      SWY_TRY(
          (i == 0 ? session_.draft_row(whole_[seen_ - 1]) : session_.next_draft_row(guesses.ids().back())).status());
      const bool right = std::uniform_real_distribution<>(0, 1)(random_) < right_;
      guesses.add(right ? whole_[seen_ + i] : (whole_[seen_ + i] == 0 ? 1 : 0));
    }
    return {};
  }
  bool may_propose_after(uint32_t) const override { return true; }
  double expected_acceptance() const override { return 0.8; }
  bool computes() const override { return true; }
  uint32_t most_drafts() const override { return most_; }
  uint64_t reading_ns() const override { return inner_.reading_ns(); }
  bool can_propose() const override { return session_.can_draft(); }
  bool wants_hidden() const override { return true; }
  Status saw_hidden(uint32_t position, std::span<const int32_t> ids, std::span<const float> rows) override {
    return inner_.saw_hidden(position, ids, rows);
  }

 private:
  Session& session_;
  MtpDrafter inner_;
  std::vector<int32_t> whole_;
  double right_;
  uint32_t most_;
  std::mt19937 random_{1};
  size_t seen_ = 0;
};

struct Text {
  std::vector<int32_t> ids;
  double ms_a_token = 0;
  uint64_t drafted = 0, accepted = 0;
};

Result<Text> tell(Session& session, std::span<const int32_t> prompt, float temperature,
                  std::shared_ptr<Drafter> drafter, bool always, uint32_t tokens) {
  session.reset();
  Batch batch(session.model());
  Request r;
  r.prompt.assign(prompt.begin(), prompt.end());
  r.max_tokens = tokens;
  r.sampling.temperature = temperature;
  r.sampling.top_p = 1;
  r.sampling.seed = 7;
  if (drafter != nullptr) r.drafters.push_back(std::move(drafter));
  r.draft_always = always;
  SWY_LET(const auto id, batch.add(session, std::move(r)));
  SWY_TRY(batch.run(id));
  const Outcome o = *batch.take(id);
  SWY_TRY(o.status);
  return Text{o.ids, static_cast<double>(o.draw_ns) / 1e6 / static_cast<double>(o.ids.size() - 1), o.drafted,
              o.accepted};
}

class Bench {
 public:
  Bench(std::unique_ptr<Session> plain, std::unique_ptr<Session> layer, std::vector<std::vector<int32_t>> prompts,
        Amount amount)
      : plain_(std::move(plain)), layer_(std::move(layer)), prompts_(std::move(prompts)), amount_(amount) {}

  // Texts with and without drafts, in turn. `right` < 0: the layer's own drafts.
  Status pair(const char* name, uint32_t most, bool always, float temperature, double right) {
    std::vector<double> ratio, plain_ms, ms;
    uint64_t drafted = 0, accepted = 0;
    size_t same = 0;
    double first = 0;  // of the text that makes the lists, and for which nothing was measured before
    for (uint32_t i = 0; i <= amount_.pairs; ++i) {
      const std::vector<int32_t>& prompt = prompts_[i % prompts_.size()];
      SWY_LET(const Text plain, tell(*plain_, prompt, temperature, nullptr, false, amount_.tokens));
      std::shared_ptr<Drafter> drafter = std::make_shared<MtpDrafter>(*layer_, most);
      if (right >= 0) {
        std::vector<int32_t> whole = prompt;
        whole.insert(whole.end(), plain.ids.begin(), plain.ids.end());
        drafter = std::make_shared<Forced>(*layer_, std::move(whole), right, most);
      }
      SWY_LET(const Text with, tell(*layer_, prompt, temperature, std::move(drafter), always, amount_.tokens));
      if (i == 0) first = plain.ms_a_token / with.ms_a_token;
      if (i == 0) continue;
      plain_ms.push_back(plain.ms_a_token);
      ms.push_back(with.ms_a_token);
      ratio.push_back(plain.ms_a_token / with.ms_a_token);
      drafted += with.drafted, accepted += with.accepted;
      same += with.ids == plain.ids ? 1 : 0;
    }
    std::printf("| %s | %.1f | %.3f | %.3f | %.3f | %.3f | %llu of %llu | %zu of %u |\n", name, temperature,
                median(plain_ms), median(ms), first, median(ratio), static_cast<unsigned long long>(accepted),
                static_cast<unsigned long long>(drafted), same, amount_.pairs);
    return {};
  }

  Status speed(bool own) {
    std::printf(
        "\n| drafts | temperature | ms a token without | with | times as fast: first text | the others | kept | same "
        "|\n"
        "|---|---|---|---|---|---|---|---|\n");
    for (const float temperature : own ? std::vector<float>{0.0f, 0.7f} : std::vector<float>{1.0f}) {
      const double right = own ? -1 : 0.85;
      SWY_TRY(pair("as many as pay", kMost, false, temperature, right));
      SWY_TRY(pair("always 2", 2, true, temperature, right));
      if (own) SWY_TRY(pair("always 1", 1, true, temperature, right));
      if (own) SWY_TRY(pair("always 3", 3, true, temperature, right));
      if (!own) SWY_TRY(pair("as many as pay, all wrong", kMost, false, temperature, 0));
    }
    return {};
  }

 private:
  std::unique_ptr<Session> plain_, layer_;
  std::vector<std::vector<int32_t>> prompts_;
  Amount amount_;
};

Result<Program> program_of(const std::string& name) {
  if (!name.starts_with("synth:")) return Program::load(Os::real(), name);
  SWY_LET(const SyntheticRequest request, parse_synthetic(name.substr(6)));
  return synthetic_program(Os::real(), request, std::thread::hardware_concurrency());
}

// Parts of a text; of none, random tokens.
Result<std::vector<std::vector<int32_t>>> prompts_of(const Program& program, uint32_t vocab, const std::string& path) {
  constexpr uint32_t kPrompts = 24;
  std::vector<std::vector<int32_t>> prompts;
  std::vector<int32_t> ids;
  if (path.empty()) {
    std::mt19937 random(3);
    for (uint32_t i = 0; i < kDepth; ++i) ids.push_back(static_cast<int32_t>(random() % vocab));
  } else {
    SWY_LET(const std::string text, Os::real().read(path, uint64_t{64} << 20));
    SWY_LET(const Tokenizer tokenizer, Tokenizer::parse(program.tokenizer_json));
    SWY_LET(ids, tokenizer.encode(text, Specials::letters));
  }
  if (ids.size() < kDepth) return error(Code::usage, "{} has fewer than {} tokens", path, kDepth);
  const size_t step = path.empty() ? kDepth : std::max<size_t>((ids.size() - kDepth) / kPrompts, 1);
  for (size_t at = 0; at + kDepth <= ids.size() && prompts.size() < kPrompts; at += step) {
    prompts.emplace_back(ids.begin() + static_cast<ptrdiff_t>(at), ids.begin() + static_cast<ptrdiff_t>(at + kDepth));
  }
  return prompts;
}

Status run(const std::string& name, const std::string& backend, const std::string& folder, const std::string& text) {
  Host host(std::thread::hardware_concurrency());
  DiscoveryOptions discovery = default_discovery();
  discovery.search_path = folder;
  Registry registry = Registry::discover(Os::real(), discovery, host);
  SWY_LET(Program loaded, program_of(name));
  const auto program = std::make_shared<const Program>(std::move(loaded));
  // A large model is loaded once.
  std::vector<std::unique_ptr<Model>> models;
  for (const Speculation speculation : {Speculation::mtp, Speculation::off}) {
    if (speculation == Speculation::off && text.empty()) break;
    ModelOptions options;
    options.context = kContext;
    options.sessions = text.empty() ? 2 : 1;
    options.load_threads = host.threads();
    SWY_TRY(add_speculation(speculation, *program, options));
    SWY_LET(auto selection, registry.select(backend));
    SWY_LET(auto model, Model::create(program, std::move(selection.devices), selection.policy, options));
    SWY_TRY(prepare_decoding(*model, {}));
    models.push_back(std::move(model));
  }
  SWY_LET(auto prompts, prompts_of(*program, models[0]->vocab(), text));
  SWY_LET(auto plain, models.back()->session());
  SWY_LET(auto layer, models[0]->session());
  Bench bench(std::move(plain), std::move(layer), std::move(prompts),
              text.empty() ? Amount{.tokens = 96, .pairs = 3} : Amount());
  return bench.speed(!text.empty());
}

}  // namespace
}  // namespace switchyard

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (argc < 4) {
    std::fprintf(stderr, "usage: mtp_bench MODEL.swy|synth:...,mtp=1 BACKEND FOLDER [TEXT]\n");
    return 2;
  }
  const switchyard::Status s = switchyard::run(argv[1], argv[2], argv[3], argc > 4 ? argv[4] : "");
  if (!s.ok()) std::fprintf(stderr, "mtp_bench: %s\n", s.message().c_str());
  return s.ok() ? 0 : 1;
}
