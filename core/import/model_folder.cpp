// SPDX-License-Identifier: Apache-2.0
#include "core/import/model_folder.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "core/base/file_lock.h"
#include "core/base/user_folder.h"
#include "core/program/checksum.h"
#include "core/program/program.h"

namespace switchyard {
namespace {

// Part of every name. Counted up where a conversion makes something else of the same model, so that it is made anew.
constexpr std::string_view kRules = "2\n";

void add_text(Checksum& sum, std::string_view text) { sum.add(std::as_bytes(std::span(text))); }

}  // namespace

std::string default_model_folder() {
  if (const char* named = std::getenv("SWITCHYARD_MODELS"); named != nullptr && *named == '/') return named;
  const std::string folder = cache_folder();
  return folder.empty() ? "" : folder + "/models";
}

std::string program_name(const std::string& path, const GgufFile& file) {
  constexpr size_t kSample = 4096;  // bytes of each tensor
  Checksum sum;
  add_text(sum, kRules);
  for (const auto& [key, value] : file.metadata()) {
    add_text(sum, key);
    sum.add(value.data);
  }
  for (const GgufTensor& t : file.tensors()) {
    add_text(sum, fmt::format("\n{} {} {}", t.name, t.block->name, fmt::join(t.dims, ",")));
    sum.add(t.bytes.first(std::min(kSample, t.bytes.size())));
  }
  return fmt::format("{}-{:016x}.swy", std::filesystem::path(path).stem().string(), sum.value());
}

std::string program_name(const std::string& name, const std::string& key) {
  Checksum sum;
  add_text(sum, kRules);
  add_text(sum, key);
  return fmt::format("{}-{:016x}.swy", name, sum.value());
}

Result<ConvertReport> convert_once(Os& os, const ConvertOptions& options, const CancelCheck& cancelled,
                                   const std::function<void()>& waits) {
  if (os.exists(options.output)) return ConvertReport{};
  SWY_LET(FileLock lock, FileLock::acquire(options.output + ".lock", cancelled, waits));
  Result<ConvertReport> report = ConvertReport{};
  if (!os.exists(options.output)) report = convert(os, options);
  lock.remove_file();
  return report;
}

std::vector<KeptProgram> kept_programs(Os& os, const std::string& folder) {
  std::vector<KeptProgram> all;
  const auto names = os.list(folder);
  if (!names.ok()) return all;
  for (const std::string& name : *names) {
    if (!name.ends_with(".swy")) continue;
    const std::string path = fmt::format("{}/{}", folder, name);
    const auto program = Program::load(os, path);
    if (!program.ok()) continue;
    KeptProgram kept{path, "", program->file->bytes().size()};
    for (const auto& [key, value] : program->metadata) {
      if (key == kOriginKey) kept.origin = value;
    }
    all.push_back(std::move(kept));
  }
  return all;
}

}  // namespace switchyard
