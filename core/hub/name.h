// SPDX-License-Identifier: Apache-2.0
// Names of models on the hub, and which of a repository's files a name means.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace switchyard::hub {

// OWNER/NAME[:SELECTOR]. The selector is a quantization ("Q4_K_M"), a file of the repository, or, for a repository of
// safetensors, the encoding to convert to.
struct ModelName {
  std::string repo;      // "OWNER/NAME"
  std::string selector;  // "" for the default
  std::string text() const { return selector.empty() ? repo : repo + ":" + selector; }
};

// Nothing for what is no such name: a path, say, or the name of a model file.
std::optional<ModelName> parse_name(const std::string& text);

// A file of a repository: its path there, and its size.
struct NamedFile {
  std::string path;
  uint64_t bytes = 0;
};

// What a name means in a repository.
struct Choice {
  bool gguf = false;               // else a checkpoint of safetensors
  std::string label;               // "Q4_K_M"; the name of the file where it has none; "" of a checkpoint
  std::vector<std::string> files;  // all that are needed; of a GGUF model, the first is the one to open
  uint64_t bytes = 0;
};

// "UD-Q4_K_XL" of ".../Qwen3.5-35B-A3B-UD-Q4_K_XL-00001-of-00002.gguf"; "" where the name has no quantization.
std::string quantization_of(const std::string& path);

// The models of a repository that are whole, each with all its parts: GGUF models in the order of preference, then a
// checkpoint. Files for images, drafting and importance matrices are no models.
std::vector<Choice> models_of(const std::vector<NamedFile>& files);

// The model that is meant. Errors: not_found, listing what there is.
Result<Choice> choose(const ModelName& name, const std::vector<NamedFile>& files);

// Whether a checkpoint is converted to this: "bf16", "i8", "i4", "i4a".
bool is_encoding(const std::string& selector);

}  // namespace switchyard::hub
