// SPDX-License-Identifier: Apache-2.0
// switchyard perplexity: how well a program predicts a text, and how far it is from another program.
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/runtime.h"
#include "cli/text_input.h"
#include "core/engine/evaluate.h"

namespace switchyard::cli {
namespace {

constexpr uint64_t kMaxTextBytes = uint64_t{1} << 30;
constexpr uint32_t kMaxWindow = 65536;  // tokens

struct PerplexityFlags {
  Settings settings;
  std::string file, against;
  Windows windows;
  bool json = false;
};

// Sums over positions of two programs' logits.
struct Divergence {
  double kl = 0;
  size_t agree = 0, positions = 0;

  void add(std::span<const float> base, std::span<const float> other) {
    kl += divergence_of(base, other);
    agree += most_likely(base) == most_likely(other) ? 1 : 0;
    ++positions;
  }
};

Status perplexity(const PerplexityFlags& o) {
  if (o.windows.size < 2 || o.windows.size > kMaxWindow) {
    return error(Code::usage, "--ctx is {}; a window takes from 2 to {} tokens", o.windows.size, kMaxWindow);
  }
  Settings settings = o.settings;
  const uint32_t window = o.windows.size, step = o.windows.step == 0 ? window : std::min(o.windows.step, window);
  if (settings.chunk != 0 || step > Model::kChunk) settings.chunk = std::max(settings.chunk, step);
  settings.context = std::max(settings.context, window);
  SWY_LET(Runtime r, load_runtime(settings));
  SWY_LET(const Tokenizer* tokenizer, r.text());
  SWY_LET(const std::string text, read_text(o.file, kMaxTextBytes));
  SWY_LET(const std::vector<int32_t> ids, tokenizer->encode(text));
  Runtime base;
  std::unique_ptr<Session> base_session;
  if (!o.against.empty()) {
    settings.model = o.against;
    SWY_LET(base, load_runtime(settings, r.host));
    if (base.model->vocab() != r.model->vocab())
      return error(Code::usage, "{} has a different vocabulary; choose models with the same tokenizer", o.against);
    SWY_LET(base_session, base.model->session());
  }
  const uint64_t begin = Os::real().now_ns();
  Progress bar("scoring");
  WindowScore total;
  Divergence divergence;
  Status inner;
  SWY_TRY(score_windows(*r.model, ids, o.windows,
                        [&](size_t w, size_t count, std::span<const float> logits, const WindowScore& s) {
                          total.nll += s.nll;
                          total.tokens += s.tokens;
                          if (base_session != nullptr) {
                            base_session->reset();
                            const auto tokens = std::span(ids).subspan(w * window, window);
                            const size_t vocab = r.model->vocab();
                            size_t at = 0;  // a step of this model may have fewer rows
                            inner = read_logits(*base_session, tokens, step, [&](auto part, auto other) -> Status {
                              for (size_t i = 0; i < part.size() && at + 1 < window; ++i, ++at)
                                divergence.add(other.subspan(i * vocab, vocab), logits.subspan(at * vocab, vocab));
                              return {};
                            });
                            if (!inner.ok()) return false;
                          }
                          bar.update(w + 1, count);
                          return !interrupted.load();
                        }));
  SWY_TRY(inner);
  const double mean = total.nll / static_cast<double>(total.tokens), seconds = seconds_since(begin);
  nlohmann::ordered_json out = {{"nll", mean},
                                {"perplexity", std::exp(mean)},
                                {"tokens", total.tokens},
                                {"text_tokens", ids.size()},
                                {"window", window},
                                {"step", step},
                                {"seconds", seconds}};
  if (base_session != nullptr) {
    out["kl"] = divergence.kl / static_cast<double>(divergence.positions);
    out["top1_agreement"] = static_cast<double>(divergence.agree) / static_cast<double>(divergence.positions);
  }
  if (o.json) {
    print_json(out);
    return {};
  }
  fmt::print("{:.6f} nats per token, perplexity {:.4f}, over {} tokens in windows of {}, {:.1f} s\n", mean,
             std::exp(mean), total.tokens, window, seconds);
  if (base_session != nullptr) {
    fmt::print("against {}: KL {:.6f} nats, the same most likely token at {:.2f}%\n", o.against,
               out["kl"].get<double>(), 100 * out["top1_agreement"].get<double>());
  }
  return {};
}

}  // namespace

void add_perplexity(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<PerplexityFlags>();
  CLI::App* c = app.add_subcommand("perplexity", "Measure how well a model predicts a text");
  c->footer("Example: switchyard perplexity demo.swy --file text.txt --windows 16 --against demo-bf16.swy");
  add_input(*c, "--file,-f", o->file, "the text; - for standard input")->required();
  c->add_option("--window", o->windows.size, "tokens per window; --ctx means the same here")
      ->check(CLI::Range(2u, kMaxWindow))
      ->capture_default_str();
  c->add_option("--windows", o->windows.limit, "stop after this many windows; 0: the whole text")
      ->capture_default_str();
  c->add_option("--step", o->windows.step,
                "tokens of a step, whatever --chunk says; 0: a whole window. 1 judges the kernels that decode")
      ->capture_default_str();
  add_input(
      *c, "--against", o->against,
      "another model file: also print the KL divergence from it, and how often both have the same most likely token");
  c->add_flag("--json", o->json, "print JSON");
  add_settings(*c, o->settings, "program");
  set_action(*c, exit_code, [o] {
    if (o->settings.context != 0) o->windows.size = o->settings.context;
    return perplexity(*o);
  });
}

}  // namespace switchyard::cli
