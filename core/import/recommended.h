// SPDX-License-Identifier: Apache-2.0
// The sampling settings that a model's makers recommend, as entries of a program's metadata ("sampling.temperature").
// core/sampling/recommended.h reads them.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/import/gguf.h"

namespace switchyard {

struct Recommended {
  std::vector<std::pair<std::string, std::string>> entries;
  std::vector<std::string> notes;  // values that are out of range, and left out
};

// Of generation_config.json, which may be "". Errors: invalid_data.
Result<Recommended> recommended_by(std::string_view generation_config);
// Of general.sampling.* in the metadata.
Recommended recommended_by(const GgufFile& file);

}  // namespace switchyard
