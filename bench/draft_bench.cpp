// SPDX-License-Identifier: Apache-2.0
// What drafted tokens cost and save on a model: the time of a step by its rows of one sequence, and of a text with
// a given share of drafts that are right, beside the same text without drafts.
//   draft_bench MODEL.swy|synth:... BACKEND FOLDER [again] [steps] [texts=PART]
//   draft_bench MODEL.swy BACKEND FOLDER acceptance ngram|mtp|model:FILE TEXT
// The second form tells what share of a drafter's guesses is kept (draft_acceptance.h). FOLDER has the backends.
// Masks that allow one token keep both texts the same. With `again` no rows are pending: those that stand are computed
// again. With `steps` there are no texts; with `texts=` only those whose name has this part, and no steps.
#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bench/draft_acceptance.h"
#include "core/draft/speculation.h"
#include "core/engine/batch.h"
#include "core/engine/mtp_drafter.h"
#include "core/import/synthetic.h"
#include "core/plugin/registry.h"

namespace switchyard {
namespace {

constexpr uint32_t kContext = 2048, kDepth = 256, kTokens = 160, kRounds = 9;

double now_ms() { return static_cast<double>(Os::real().now_ns()) / 1e6; }

double median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + static_cast<ptrdiff_t>(x.size() / 2), x.end());
  return x[x.size() / 2];
}

// Guesses for a text that are wrong at so many of each 20 tokens, at random ones of them.
class Guesser final : public Drafter {
 public:
  Guesser(const char* name, std::vector<int32_t> whole, uint32_t wrong, uint32_t most, uint32_t seed)
      : name_(name), whole_(std::move(whole)), most_(most) {
    std::mt19937 random(seed);
    std::vector<bool> block(20);
    std::fill_n(block.begin(), wrong, true);
    while (wrong_.size() < whole_.size()) {
      std::shuffle(block.begin(), block.end(), random);
      wrong_.insert(wrong_.end(), block.begin(), block.end());
    }
  }
  void saw(std::span<const int32_t> ids) override { seen_ += ids.size(); }
  Status propose(uint32_t most, Guesses& guesses) override {
    for (size_t at = seen_; at < std::min<size_t>(seen_ + std::min(most, most_), whole_.size()); ++at) {
      guesses.add(!wrong_[at] ? whole_[at] : whole_[at] == 0 ? 1 : 0);
    }
    return {};
  }
  bool may_propose_after(uint32_t) const override { return true; }
  std::string_view name() const override { return name_; }
  double expected_acceptance() const override { return 0.8; }

 private:
  const char* name_;
  std::vector<int32_t> whole_;
  uint32_t most_;
  std::vector<bool> wrong_;  // by place in the text
  size_t seen_ = 0;
};

struct Text {
  std::vector<int32_t> prompt, ids;
  double ms_a_token = 0;
  uint64_t drafted = 0, accepted = 0;
};

class Bench {
 public:
  Bench(Model& model, std::unique_ptr<Session> session) : model_(model), session_(std::move(session)) {
    std::mt19937 random(3);
    for (uint32_t i = 0; i < kDepth; ++i) prompt_.push_back(static_cast<int32_t>(random() % model.vocab()));
  }

  // A step of so many rows, of which as many stand. Returns its time.
  Result<double> step(uint32_t rows, uint32_t stand) {
    const bool pending = model_.pending_rows() > 0;
    const double begin = now_ms();
    SWY_TRY(session_->prepare(rows, model_.feeds_again()));
    StepSequence s = session_->sequence();
    s.tokens = std::span(prompt_).first(rows);
    s.logit_rows = rows;
    s.pending = pending;
    if (pending) session_->pend();
    const auto ran = model_.runner().run({&s, 1});
    if (stand == 0) session_->abandon();
    session_->commit(stand);
    SWY_TRY(ran.status());
    return now_ms() - begin;
  }

  // Each step begins at the same position, and is taken back. With pending rows it follows one of as many rows, which
  // all stand, so that it applies these first.
  Status steps() {
    SWY_TRY(session_->feed(prompt_).status());
    SWY_LET(const auto begin, session_->keep());
    const std::vector<uint32_t> sizes = {1, 2, 3, 4, 5, 6, 7, 8, 16, 32};
    std::vector<std::vector<double>> ms(sizes.size());
    for (uint32_t round = 0; round < kRounds + 2; ++round) {
      for (size_t i = 0; i < sizes.size(); ++i) {
        SWY_TRY(session_->resume(*begin));
        if (model_.pending_rows() > 0) SWY_TRY(step(sizes[i], sizes[i]).status());
        SWY_LET(const double took, step(sizes[i], 0));
        if (round >= 2) ms[i].push_back(took);
      }
    }
    const auto least = [&](size_t i) { return *std::min_element(ms[i].begin(), ms[i].end()); };
    std::printf("| rows | ms a step | of one row | least | of one row |\n|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizes.size(); ++i) {
      std::printf("| %u | %.3f | %.2f | %.3f | %.2f |\n", sizes[i], median(ms[i]), median(ms[i]) / median(ms[0]),
                  least(i), least(i) / least(0));
    }
    return {};
  }

  // `told`: the text, so that guesses are right as often as they are meant to be, also where a row in a step of several
  // is rounded in another way than alone. Each mask allows its next token alone.
  Result<Text> tell(std::shared_ptr<Drafter> drafter, bool always, const Text* told = nullptr) {
    session_->reset();
    Text t;
    t.prompt = prompt_;
    Batch batch(model_);
    Request r;
    r.prompt = prompt_;
    r.max_tokens = kTokens;
    r.sampling.temperature = 1.0f;
    r.sampling.seed = 7;
    if (told != nullptr) {
      r.mask = [told](std::span<const int32_t> before, std::span<uint32_t> mask) {
        if (before.size() >= told->ids.size()) return;
        const auto next = static_cast<uint32_t>(told->ids[before.size()]);
        mask[next / 32] = 1u << next % 32;
      };
    }
    if (drafter != nullptr) r.drafters.push_back(std::move(drafter));
    r.draft_always = always;
    SWY_LET(const auto id, batch.add(*session_, std::move(r)));
    SWY_TRY(batch.run(id));
    const Outcome o = *batch.take(id);
    SWY_TRY(o.status);
    t.ids = o.ids;
    t.ms_a_token = static_cast<double>(o.draw_ns) / 1e6 / static_cast<double>(o.ids.size() - 1);
    t.drafted = o.drafted, t.accepted = o.accepted;
    return t;
  }

  // Pairs of the text with and without drafts, in turn.
  Status pair(const char* name, uint32_t wrong, uint32_t most, bool always) {
    SWY_LET(const Text first, tell(nullptr, false));
    std::vector<int32_t> whole = first.prompt;
    whole.insert(whole.end(), first.ids.begin(), first.ids.end());
    const auto guesser = [&](uint32_t seed) { return std::make_shared<Guesser>(name, whole, wrong, most, seed); };
    SWY_TRY(tell(guesser(kPairs), always, &first).status());  // makes the lists
    std::vector<double> ratio, plain_ms, ms;
    uint64_t drafted = 0, accepted = 0;
    for (uint32_t i = 0; i < kPairs; ++i) {
      SWY_LET(const Text plain, tell(nullptr, false, &first));
      SWY_LET(const Text with, tell(guesser(i), always, &first));
      plain_ms.push_back(plain.ms_a_token);
      ms.push_back(with.ms_a_token);
      ratio.push_back(plain.ms_a_token / with.ms_a_token);
      drafted += with.drafted, accepted += with.accepted;
    }
    std::printf("| %s | %.3f | %.3f | %.3f | %llu of %llu |\n", name, median(plain_ms), median(ms), median(ratio),
                static_cast<unsigned long long>(accepted / kPairs), static_cast<unsigned long long>(drafted / kPairs));
    return {};
  }

 private:
  static constexpr uint32_t kPairs = 5;
  Model& model_;
  std::unique_ptr<Session> session_;
  std::vector<int32_t> prompt_;
};

Result<Program> program_of(const std::string& name) {
  if (!name.starts_with("synth:")) return Program::load(Os::real(), name);
  SWY_LET(const SyntheticRequest request, parse_synthetic(name.substr(6)));
  return synthetic_program(Os::real(), request, std::thread::hardware_concurrency());
}

struct Arguments {
  std::string model, backend, folder;
  bool again = false, steps = false;
  std::string texts;                  // "": all, and the steps
  AcceptanceOptions acceptance = {};  // without a drafter: none
};

Status run(const Arguments& a) {
  const auto host = std::make_shared<Host>(std::thread::hardware_concurrency());
  DiscoveryOptions discovery = default_discovery();
  discovery.search_path = a.folder;
  Registry registry = Registry::discover(Os::real(), discovery, *host);
  SWY_LET(Program program, program_of(a.model));
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
  std::printf("\n| drafts | ms a token without | with | times as fast | accepted |\n|---|---|---|---|---|\n");
  const struct {
    const char* name;
    uint32_t wrong;  // of 20
    uint32_t most;
    bool always;
  } texts[] = {{"auto, all wrong", 20, 31, false},   {"auto, 0.5 right", 10, 31, false},
               {"auto, 0.85 right", 3, 31, false},   {"auto, all right", 0, 31, false},
               {"always 2, 0.85 right", 3, 2, true}, {"always 3, 0.85 right", 3, 3, true},
               {"always 7, 0.85 right", 3, 7, true}, {"always 7, all right", 0, 7, true},
               {"always 31, all right", 0, 31, true}};
  for (const auto& t : texts) {
    if (std::string_view(t.name).find(a.texts) != std::string_view::npos) {
      SWY_TRY(bench.pair(t.name, t.wrong, t.most, t.always));
    }
  }
  return {};
}

}  // namespace
}  // namespace switchyard

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::vector<std::string> words(argv + std::min(argc, 4), argv + argc);
  const auto said = [&](const char* word) { return std::find(words.begin(), words.end(), word) != words.end(); };
  const bool acceptance = argc == 7 && said("acceptance");
  if (argc < 4 || argc > 7 || (said("acceptance") && !acceptance)) {
    std::fprintf(stderr,
                 "usage: draft_bench MODEL.swy|synth:... BACKEND FOLDER [again] [steps] [texts=PART]\n"
                 "       draft_bench MODEL.swy BACKEND FOLDER acceptance ngram|mtp|model:FILE TEXT\n");
    return 2;
  }
  switchyard::Arguments a{argv[1], argv[2], argv[3], said("again"), said("steps"), ""};
  for (const std::string& word : words) {
    if (word.starts_with("texts=")) a.texts = word.substr(6);
  }
  if (acceptance) a.acceptance = {.drafter = argv[5], .text = argv[6]};
  const switchyard::Status s = switchyard::run(a);
  if (!s.ok()) std::fprintf(stderr, "draft_bench: %s\n", s.message().c_str());
  return s.ok() ? 0 : 1;
}
