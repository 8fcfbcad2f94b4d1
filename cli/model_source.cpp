// SPDX-License-Identifier: Apache-2.0
#include "cli/model_source.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "cli/output.h"
#include "cli/pull_model.h"
#include "cli/signals.h"
#include "core/base/printable.h"
#include "core/import/convert.h"
#include "core/import/model_folder.h"

namespace switchyard::cli {
namespace {

constexpr const char* kDefaultEncoding = "i4";
constexpr const char* kDefaultGroup = "64";

std::string program_folder() {
  std::error_code ec;
  return std::filesystem::read_symlink("/proc/self/exe", ec).parent_path().string();
}

// A program that was made of this model, whose own files may be gone.
std::optional<ModelSource> kept_program_of(const hub::ModelName& name) {
  for (const KeptProgram& kept : kept_programs(Os::real(), default_model_folder())) {
    const bool any = name.selector.empty() && kept.origin.starts_with(name.repo + ":");
    if (any || kept.origin == name.text()) return ModelSource{ModelSource::Kind::program, kept.path, kept.origin, ""};
  }
  return {};
}

Result<ModelSource> find_hub_model(const hub::ModelName& name) {
  const hub::Cache cache(hub::hub_cache_folder());
  if (const auto cached = cache.find(name); cached.ok()) {
    hub::CachedModel model = *cached;
    if (!model.choice.gguf) model.name.selector = name.selector;
    return source_of(model);
  }
  if (const auto kept = kept_program_of(name)) return *kept;
  SWY_LET(const PulledModel pulled, pull_model(name, {}));
  return source_of(pulled.model);
}

// A line that says how long the rest takes, where no bar can be drawn.
class Estimate {
 public:
  void update(uint64_t done, uint64_t total) {
    constexpr double kSeconds = 3;
    if (told_ || done == 0 || seconds_since(begin_ns_) < kSeconds) return;
    told_ = true;
    const double share = static_cast<double>(done) / static_cast<double>(total);
    say("converting: about {:.0f} s left\n", seconds_since(begin_ns_) * (1 / share - 1));
  }

 private:
  uint64_t begin_ns_ = Os::real().now_ns();
  bool told_ = false;
};

// The name of the program file of a model, in a folder.
Result<std::string> kept_name(const ModelSource& source) {
  if (source.kind == ModelSource::Kind::gguf) {
    SWY_LET(const GgufFile file, GgufFile::open(Os::real(), source.path));
    return program_name(source.path, file);
  }
  const size_t slash = source.origin.find('/'), colon = source.origin.find(':');
  return program_name(source.origin.substr(slash + 1, colon - slash - 1), source.key);
}

}  // namespace

std::string model_path(const Settings& settings) {
  return settings.model.empty() ? program_folder() + "/../share/switchyard/models/demo.swy" : settings.model;
}

Status check_model_path(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ec;
  const std::string extension = fs::path(path).extension();
  const bool folder = fs::is_directory(path, ec);
  const fs::path checkpoint = folder ? fs::path(path) : extension == ".safetensors" ? fs::path(path).parent_path() : "";
  if (!checkpoint.empty() && fs::exists(checkpoint / "config.json", ec)) {
    return error(Code::usage,
                 "{} is a Hugging Face checkpoint; make a program file of it: switchyard convert {} -o NAME.swy", path,
                 checkpoint.string());
  }
  if (folder) return error(Code::usage, "{} is a folder without a config.json; name a program file (.swy)", path);
  if (extension == ".gguf" && fs::is_regular_file(path, ec) && !is_gguf(Os::real(), path)) {
    return error(Code::invalid_data, "{} is no GGUF file, whose first bytes are \"GGUF\"; was all of it fetched?",
                 path);
  }
  return {};
}

Result<ModelSource> source_of(const hub::CachedModel& model) {
  if (model.choice.gguf) return ModelSource{ModelSource::Kind::gguf, model.path(), model.name.text(), ""};
  const std::string& selector = model.name.selector;
  const std::string quant = selector.empty() ? kDefaultEncoding : selector;
  ModelSource s{ModelSource::Kind::checkpoint, model.path(), model.name.repo + ":" + quant, quant};
  std::vector<std::string> blobs = model.blobs();
  std::sort(blobs.begin(), blobs.end());  // lists have them in several orders
  s.key += fmt::format(" {}", fmt::join(blobs, " "));
  SWY_LET(s.encoding, parse_encoding(quant, kDefaultGroup));
  return s;
}

Result<ModelSource> find_model(const Settings& settings) {
  const std::string path = model_path(settings);
  std::error_code ec;
  if (!std::filesystem::exists(path, ec)) {
    if (const auto name = hub::parse_name(path)) return find_hub_model(*name);
  }
  SWY_TRY(check_model_path(path));
  return ModelSource{is_gguf(Os::real(), path) ? ModelSource::Kind::gguf : ModelSource::Kind::program, path, "", ""};
}

Result<std::string> program_of(const ModelSource& source, const Settings& settings) {
  if (source.kind == ModelSource::Kind::program) return source.path;
  const std::string folder = default_model_folder();
  if (folder.empty()) {
    return error(Code::usage,
                 "{}: no folder is known in which to keep the converted model; set SWITCHYARD_MODELS to one, or use "
                 "switchyard convert {} -o NAME.swy",
                 source.path, source.path);
  }
  ConvertOptions options;
  options.source = source.path;
  options.origin = source.origin;
  options.encoding = source.encoding;
  options.threads = thread_count(settings);
  SWY_LET(const std::string name, kept_name(source));
  options.output = folder + "/" + name;
  const std::string shown = source.origin.empty() ? source.path : source.origin;
  Progress bar("converting");
  Estimate estimate;
  options.begin = [&](uint64_t bytes) {
    const auto free = Os::real().free_bytes(folder);
    say("{} is converted once, into {} ({:.1f} MiB, {:.1f} MiB free)\n", shown, options.output,
        static_cast<double>(bytes) / 1048576, static_cast<double>(free.ok() ? *free : 0) / 1048576);
  };
  options.progress = [&](uint64_t done, uint64_t total) {
    bar.update(done, total);
    if (!bar.on_terminal()) estimate.update(done, total);
    return !interrupted.load();
  };
  SWY_LET(const ConvertReport report,
          convert_once(
              Os::real(), options, [] { return interrupted.load(); },
              [&] { say("{} is being converted by another process; waiting for it\n", shown); }));
  for (const std::string& note : report.notes) say("note: {}\n", printable_line(note));
  return options.output;
}

}  // namespace switchyard::cli
