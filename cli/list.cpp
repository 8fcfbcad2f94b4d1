// SPDX-License-Identifier: Apache-2.0
// switchyard list: the models of the hub that are here, and the program files that were made of models.
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/pull_model.h"
#include "core/base/printable.h"
#include "core/base/status.h"
#include "core/import/model_folder.h"

namespace switchyard::cli {
namespace {

using nlohmann::ordered_json;

// Whether a program was made of this model. A checkpoint may have several, one for each encoding.
bool made_of(const KeptProgram& kept, const hub::CachedModel& model) {
  if (model.choice.gguf) return kept.origin == model.name.text();
  const std::string begin = model.name.repo + ":";
  return kept.origin.starts_with(begin) && hub::is_encoding(kept.origin.substr(begin.size()));
}

ordered_json listed() {
  const hub::Cache cache(hub::hub_cache_folder());
  const std::vector<KeptProgram> kept = kept_programs(Os::real(), default_model_folder());
  std::vector<bool> used(kept.size());
  ordered_json rows = ordered_json::array();
  for (const hub::CachedModel& m : cache.list()) {
    ordered_json converted = ordered_json::array();
    for (size_t i = 0; i < kept.size(); ++i) {
      if (!made_of(kept[i], m)) continue;
      used[i] = true;
      converted.push_back({{"path", kept[i].path}, {"origin", kept[i].origin}, {"bytes", kept[i].bytes}});
    }
    rows.push_back({{"name", m.name.text()},
                    {"kind", m.choice.gguf ? "gguf" : "safetensors"},
                    {"bytes", m.choice.bytes},
                    {"path", m.path()},
                    {"commit", m.commit},
                    {"converted", converted}});
  }
  for (size_t i = 0; i < kept.size(); ++i) {  // its own source is gone, or was no model of the hub
    if (used[i]) continue;
    const std::string file = std::filesystem::path(kept[i].path).filename();
    rows.push_back({{"name", kept[i].origin.empty() ? file : kept[i].origin},
                    {"kind", "converted"},
                    {"bytes", 0},
                    {"path", kept[i].path},
                    {"commit", nullptr},
                    {"converted", {{{"path", kept[i].path}, {"origin", kept[i].origin}, {"bytes", kept[i].bytes}}}}});
  }
  return rows;
}

Status list_command(bool json) {
  const ordered_json rows = listed();
  if (json) {
    print_json(rows, 2);
    return {};
  }
  if (rows.empty()) {
    say("no models in {} or {}; switchyard pull fetches one\n", hub::hub_cache_folder(), default_model_folder());
    return {};
  }
  size_t width = 4;
  for (const auto& r : rows) width = std::max(width, printable_line(r["name"].get<std::string>()).size());
  fmt::print("{:<{}}  {:>10}  {:>10}\n", "name", width, "fetched", "converted");
  for (const auto& r : rows) {
    uint64_t converted = 0;
    for (const auto& c : r["converted"]) converted += c["bytes"].get<uint64_t>();
    const auto bytes = r["bytes"].get<uint64_t>();
    fmt::print("{:<{}}  {:>10}  {:>10}\n", printable_line(r["name"].get<std::string>()), width,
               bytes == 0 ? "-" : size_text(bytes), converted == 0 ? "-" : size_text(converted));
  }
  return {};
}

}  // namespace

void add_list(CLI::App& app, int& exit_code) {
  auto json = std::make_shared<bool>(false);
  CLI::App* c = app.add_subcommand("list", "List the models that were fetched or converted");
  c->footer(
      "Example: switchyard list --json\n"
      "Shows the models that any program has fetched from the hub (HF_HOME), and what they take on the disk; beside\n"
      "each what its converted form takes (SWITCHYARD_MODELS). Each name can be given to -m, and to switchyard rm.");
  c->add_flag("--json", *json, "print JSON, with paths and commits");
  set_action(*c, exit_code, [json] { return list_command(*json); });
}

}  // namespace switchyard::cli
