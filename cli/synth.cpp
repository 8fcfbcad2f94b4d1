// SPDX-License-Identifier: Apache-2.0
// switchyard synth: a program of a real configuration's shape, with random weights.
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/experts.h"
#include "cli/output.h"
#include "cli/runtime.h"
#include "cli/sample_text.h"

namespace switchyard::cli {
namespace {

constexpr uint32_t kLayers = 4, kTokens = 1024;  // of the histogram

struct SynthFlags {
  std::string config = "qwen3.5-35b-a3b", output, quant = "i4", group = "32";
  uint32_t layers = 0, vocab = 0, threads = 0;
  uint64_t seed = 1;
  bool histogram = true, json = false;
};

std::string short_form(const SynthFlags& o, uint32_t layers) {
  std::string text = o.config + ",quant=" + o.quant + ",group=" + o.group + fmt::format(",seed={}", o.seed);
  if (layers != 0) text += fmt::format(",layers={}", layers);
  if (o.vocab != 0) text += fmt::format(",vocab={}", o.vocab);
  return text;
}

// Over the first layers, which are made once more in memory: the whole model may not fit.
Status histogram(const SynthFlags& o, nlohmann::ordered_json& out) {
  Settings settings;
  settings.model = "synth:" + short_form(o, o.layers == 0 ? kLayers : std::min(o.layers, kLayers));
  settings.threads = o.threads;
  settings.routers = true;
  SWY_LET(const Runtime r, load_runtime(settings));
  SWY_LET(const std::vector<int32_t> ids,
          sample_text(r.tokenizer.get(), r.model->vocab(), std::min(kTokens, r.model->context())));
  SWY_LET(const auto layers, count_experts(*r.model, ids));
  if (!o.json) say_text(experts_text(layers, ids.size()));
  out["experts"] = experts_json(layers, ids.size());
  return {};
}

Status synth(const SynthFlags& o) {
  const std::string text = short_form(o, o.layers);
  SWY_LET(const SyntheticRequest request, synthetic_request(text));
  Settings threads;
  threads.threads = o.threads;
  Progress bar("writing");
  const uint64_t begin = Os::real().now_ns();
  SWY_LET(const uint64_t bytes,
          write_synthetic(Os::real(), request, o.output, thread_count(threads), [&](uint64_t done, uint64_t total) {
            bar.update(done, total);
            return !interrupted.load();
          }));
  nlohmann::ordered_json out = {{"output", o.output}, {"bytes", bytes}, {"seconds", seconds_since(begin)}};
  if (!o.json) {
    say("{}: {:.1f} MiB in {:.1f} s\n", o.output, static_cast<double>(bytes) / 1048576, seconds_since(begin));
  }
  if (o.histogram && !interrupted.load()) {
    const Status s = histogram(o, out);  // the file is there whatever comes of this
    if (!s.ok()) say("cannot show how a text spreads over its experts: {}\n", s.message());
  }
  if (o.json) print_json(out);
  return {};
}

}  // namespace

void add_synth(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<SynthFlags>();
  CLI::App* c = app.add_subcommand("synth", "Make a model with random weights, to measure speed at full size");
  c->footer(
      "Example: switchyard synth --config qwen3.5-35b-a3b --layers 4 --vocab 32768 -o slice.swy\n"
      "Without a file: give any command -m synth:qwen3.5-35b-a3b,layers=4,vocab=32768 instead of a model.");
  add_input(*c, "--config", o->config, "a published size, such as qwen3.5-35b-a3b, or the path of a config.json")
      ->capture_default_str();
  add_output(*c, "--output,-o", o->output, "file to write")->required();
  c->add_option("--layers", o->layers, "0: as the configuration says")->check(CLI::Range(0u, 4096u));
  c->add_option("--vocab", o->vocab,
                "0: as the configuration says; with 4096 or more the model gets the demo's tokenizer")
      ->check(CLI::Range(0u, 1u << 24));
  c->add_option("--seed", o->seed, "other seeds give other weights")->capture_default_str();
  c->add_option("--quant", o->quant, "encoding of the large weights: bf16, i8, i4 or i4a")->capture_default_str();
  c->add_option("--group", o->group, "weights that share a scale: 16, 32, 64, 128, or row")->capture_default_str();
  c->add_flag("!--no-histogram", o->histogram, "do not print how a text spreads over the experts of the first layers");
  c->add_flag("--json", o->json, "print the result as JSON");
  c->add_option("--threads", o->threads, "0: one per core")->check(thread_range());
  set_action(*c, exit_code, [o] { return synth(*o); });
}

}  // namespace switchyard::cli
