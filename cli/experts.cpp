// SPDX-License-Identifier: Apache-2.0
// switchyard experts: how the tokens of a text spread over the experts of a model.
#include "cli/experts.h"

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/runtime.h"
#include "cli/sample_text.h"

namespace switchyard::cli {
namespace {

struct ExpertsFlags {
  Settings settings;
  std::string file;
  uint32_t tokens = 1024;
  bool json = false;
};

Status experts(const ExpertsFlags& o) {
  Settings settings = o.settings;
  settings.routers = true;
  SWY_LET(const Runtime r, load_runtime(settings));
  SWY_LET(const std::vector<int32_t> ids,
          sample_text(r.tokenizer.get(), r.model->vocab(), std::min(o.tokens, r.model->context()), o.file));
  SWY_LET(const auto layers, count_experts(*r.model, ids));
  if (o.json) {
    print_json(experts_json(layers, ids.size()));
  } else {
    fmt::print("{}", experts_text(layers, ids.size()));
  }
  return {};
}

}  // namespace

nlohmann::ordered_json experts_json(const std::vector<ExpertCounts>& layers, size_t tokens) {
  nlohmann::ordered_json out = {{"tokens", tokens}, {"layers", nlohmann::ordered_json::array()}};
  for (const ExpertCounts& l : layers) {
    out["layers"].push_back({{"layer", l.layer},
                             {"least", l.least()},
                             {"median", l.median()},
                             {"most", l.most()},
                             {"busiest_tenth", l.busiest_tenth()},
                             {"counts", l.counts}});
  }
  return out;
}

std::string experts_text(const std::vector<ExpertCounts>& layers, size_t tokens) {
  std::string text = fmt::format(
      "experts chosen over {} tokens, as shares; the last column is that of the busiest tenth together\n"
      "{:<24} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}\n",
      tokens, "", "experts", "even", "least", "median", "most", "tenth");
  for (const ExpertCounts& l : layers) {
    text += fmt::format("{:<24} {:>8} {:>7.2f}% {:>7.2f}% {:>7.2f}% {:>7.2f}% {:>7.1f}%\n", l.layer, l.counts.size(),
                        100.0 / static_cast<double>(l.counts.size()), 100 * l.least(), 100 * l.median(), 100 * l.most(),
                        100 * l.busiest_tenth());
  }
  return text;
}

void add_experts(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<ExpertsFlags>();
  CLI::App* c = app.add_subcommand("experts", "Show how the tokens of a text spread over a model's experts");
  c->footer("Example: switchyard experts --file text.txt");
  add_input(*c, "--file,-f", o->file, "the text; without it the demo model's, or random ids");
  c->add_option("--tokens", o->tokens, "tokens of the text to read; at most --ctx")
      ->check(CLI::Range(1u, 1u << 20))
      ->capture_default_str();
  c->add_flag("--json", o->json, "print JSON, with the count of every expert");
  add_settings(*c, o->settings, "program");
  set_action(*c, exit_code, [o] { return experts(*o); });
}

}  // namespace switchyard::cli
