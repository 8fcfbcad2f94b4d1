// SPDX-License-Identifier: Apache-2.0
// GGUF files where a model is named.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/settings.h"
#include "core/base/status.h"

namespace switchyard::cli {

// The program file of a GGUF file: made now, with progress, unless an earlier command has made it. Errors: those of
// `convert`; usage, where no folder for it is known.
Result<std::string> converted(const std::string& path, const Settings& settings);

// What a GGUF file says of itself: metadata and types of tensors, with `tensors` each of them.
Result<nlohmann::ordered_json> describe_gguf(const std::string& path, bool tensors);

}  // namespace switchyard::cli
