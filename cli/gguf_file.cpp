// SPDX-License-Identifier: Apache-2.0
#include "cli/gguf_file.h"

#include <map>
#include <nlohmann/json.hpp>

#include "core/base/printable.h"
#include "core/import/gguf.h"

namespace switchyard::cli {

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
