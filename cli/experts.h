// SPDX-License-Identifier: Apache-2.0
// How a text spreads over a model's experts, as text and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "core/engine/routing.h"

namespace switchyard::cli {

nlohmann::ordered_json experts_json(const std::vector<ExpertCounts>& layers, size_t tokens);
// A line per layer.
std::string experts_text(const std::vector<ExpertCounts>& layers, size_t tokens);

}  // namespace switchyard::cli
