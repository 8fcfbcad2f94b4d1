// SPDX-License-Identifier: Apache-2.0
// switchyard rm: deletes fetched files and converted models.
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/pull_model.h"
#include "core/base/printable.h"
#include "core/base/status.h"
#include "core/import/convert.h"
#include "core/import/model_folder.h"

namespace switchyard::cli {
namespace {

struct RmFlags {
  std::vector<std::string> names;
  bool fetched = false, converted = false, json = false;
};

// What a name stands for. Of a repository without a selector: all that is here of it.
struct Found {
  std::vector<hub::CachedModel> fetched;
  std::vector<KeptProgram> converted;
};

bool names_it(const hub::ModelName& name, const std::string& text) {
  return name.selector.empty() ? text == name.repo || text.starts_with(name.repo + ":") : text == name.text();
}

// The converted model of a GGUF file that is named by its path; the file itself is not ours to delete.
std::string program_of_file(const std::string& path) {
  std::error_code ec;
  if (!std::filesystem::is_regular_file(path, ec) || !is_gguf(Os::real(), path)) return "";
  const auto file = GgufFile::open(Os::real(), path);
  return file.ok() ? program_name(path, *file) : "";
}

Result<Found> find_named(const std::string& text) {
  Found found;
  const std::string of_file = program_of_file(text);
  const auto name = hub::parse_name(text);
  if (name) {
    for (hub::CachedModel& m : hub::Cache(hub::hub_cache_folder()).list()) {
      const bool encoding = !m.choice.gguf && hub::is_encoding(name->selector);  // only what was converted
      if (!encoding && names_it(*name, m.name.text())) found.fetched.push_back(std::move(m));
    }
  }
  for (KeptProgram& kept : kept_programs(Os::real(), default_model_folder())) {
    const std::string file = std::filesystem::path(kept.path).filename();
    if (file == text || file == of_file || (name && !kept.origin.empty() && names_it(*name, kept.origin))) {
      found.converted.push_back(std::move(kept));
    }
  }
  if (found.fetched.empty() && found.converted.empty()) {
    if (!of_file.empty()) return error(Code::not_found, "no converted model of {} is here", printable(text));
    return error(Code::not_found, "'{}' is not here; switchyard list shows the names of what is", printable(text));
  }
  return found;
}

Status rm_command(const RmFlags& o) {
  const bool both = o.fetched == o.converted;
  std::vector<Found> all;
  for (const std::string& name : o.names) {  // nothing is deleted unless all names are right
    SWY_LET(Found found, find_named(name));
    all.push_back(std::move(found));
  }
  uint64_t freed = 0;
  nlohmann::ordered_json deleted = nlohmann::ordered_json::array();
  const hub::Cache cache(hub::hub_cache_folder());
  for (const Found& found : all) {
    for (const KeptProgram& kept : found.converted) {
      std::error_code ec;
      if (!both && !o.converted) continue;
      if (std::filesystem::remove(kept.path, ec)) freed += kept.bytes;
      if (ec) return error(Code::io, "cannot remove {}: {}", kept.path, ec.message());
      deleted.push_back(kept.path);
    }
    for (const hub::CachedModel& m : found.fetched) {
      if (!both && !o.fetched) continue;
      SWY_LET(const uint64_t bytes, cache.remove(m));
      freed += bytes;
      deleted.push_back(m.path());
    }
  }
  if (o.json) {
    print_json({{"deleted", deleted}, {"freed_bytes", freed}});
  } else {
    for (const auto& path : deleted) fmt::print("deleted {}\n", printable_line(path.get<std::string>()));
    fmt::print("{} freed\n", size_text(freed));
  }
  return {};
}

}  // namespace

void add_rm(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<RmFlags>();
  CLI::App* c = app.add_subcommand("rm", "Delete models that were fetched or converted");
  c->footer(
      "Example: switchyard rm unsloth/Qwen3.5-35B-A3B-GGUF:Q4_K_M\n"
      "         switchyard rm --fetched unsloth/Qwen3.5-35B-A3B-GGUF    # keep the converted model, which still runs\n"
      "OWNER/NAME without :QUANT is all that is here of it. Fetched files are shared with other programs that use the\n"
      "hub's cache folder: they must fetch them again, too.");
  c->add_option("names", o->names,
                "names, as switchyard list shows them, or GGUF files whose converted models to delete")
      ->required();
  c->add_flag("--fetched", o->fetched, "only the fetched files");
  c->add_flag("--converted", o->converted, "only the converted models");
  c->add_flag("--json", o->json, "print JSON");
  set_action(*c, exit_code, [o] { return rm_command(*o); });
}

}  // namespace switchyard::cli
