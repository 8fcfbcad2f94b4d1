// SPDX-License-Identifier: Apache-2.0
// GGUF files where a model is named.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/base/status.h"

namespace switchyard::cli {

// What a GGUF file says of itself: metadata and types of tensors, with `tensors` each of them.
Result<nlohmann::ordered_json> describe_gguf(const std::string& path, bool tensors);

}  // namespace switchyard::cli
