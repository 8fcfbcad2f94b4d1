// SPDX-License-Identifier: Apache-2.0
#include "cli/gguf_file.h"

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/runtime.h"
#include "core/base/printable.h"
#include "core/import/convert.h"
#include "core/import/model_folder.h"

namespace switchyard::cli {

Result<std::string> converted(const std::string& path, const Settings& settings) {
  const std::string folder = default_model_folder();
  if (folder.empty()) {
    return error(Code::usage,
                 "{}: no folder is known in which to keep the converted model; set SWITCHYARD_MODELS to one, or use "
                 "switchyard convert {} -o NAME.swy",
                 path, path);
  }
  ConvertOptions options;
  options.source = path;
  {
    SWY_LET(const GgufFile file, GgufFile::open(Os::real(), path));
    options.output = folder + "/" + program_name(path, file);
  }
  if (Os::real().exists(options.output)) return options.output;
  std::error_code ec;  // what cannot be made is missing when the file is written
  std::filesystem::create_directories(folder, ec);
  options.threads = thread_count(settings);
  Progress bar("converting");
  options.begin = [&](uint64_t bytes) {
    say("{} is converted once, into {} ({:.1f} MiB)\n", path, options.output, static_cast<double>(bytes) / 1048576);
  };
  options.progress = [&](uint64_t done, uint64_t total) {
    bar.update(done, total);
    return !interrupted.load();
  };
  SWY_LET(const ConvertReport report, convert(Os::real(), options));
  for (const std::string& note : report.notes) say("note: {}\n", printable_line(note));
  return options.output;
}

Result<nlohmann::ordered_json> describe_gguf(const std::string& path, bool tensors) {
  SWY_LET(const GgufFile file, GgufFile::open(Os::real(), path));
  nlohmann::ordered_json out = {{"format", fmt::format("GGUF version {}", file.version())}, {"bytes", file.bytes()}};
  std::map<std::string, size_t> kinds;
  uint64_t parameters = 0;
  for (const GgufTensor& t : file.tensors()) {
    ++kinds[t.block->name];
    parameters += t.rows() * t.width();
  }
  out["parameters"] = parameters;
  out["tensors"] = file.tensors().size();
  out["tensor_types"] = kinds;
  for (const auto& [key, value] : file.metadata()) out["metadata"][printable(key)] = value.describe();
  if (!tensors) return out;
  for (const GgufTensor& t : file.tensors()) {
    out["tensor_list"].push_back(
        {{"name", printable(t.name)}, {"dtype", t.block->name}, {"dims", t.dims}, {"bytes", t.bytes.size()}});
  }
  return out;
}

}  // namespace switchyard::cli
