// SPDX-License-Identifier: Apache-2.0
#include "core/import/model_folder.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "core/base/user_folder.h"
#include "core/program/checksum.h"

namespace switchyard {

std::string default_model_folder() {
  if (const char* named = std::getenv("SWITCHYARD_MODELS"); named != nullptr && *named == '/') return named;
  const std::string folder = cache_folder();
  return folder.empty() ? "" : folder + "/models";
}

std::string program_name(const std::string& path, const GgufFile& file) {
  constexpr size_t kSample = 4096;  // bytes of each tensor
  Checksum sum;
  const auto add = [&](std::string_view text) { sum.add(std::as_bytes(std::span(text))); };
  for (const auto& [key, value] : file.metadata()) {
    add(key);
    sum.add(value.data);
  }
  for (const GgufTensor& t : file.tensors()) {
    add(fmt::format("\n{} {} {}", t.name, t.block->name, fmt::join(t.dims, ",")));
    sum.add(t.bytes.first(std::min(kSample, t.bytes.size())));
  }
  return fmt::format("{}-{:016x}.swy", std::filesystem::path(path).stem().string(), sum.value());
}

}  // namespace switchyard
