// SPDX-License-Identifier: Apache-2.0
// The backends that were found, for `switchyard backends`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/plugin/registry.h"

namespace switchyard {

// With `explain`, one line per candidate file as well.
std::string describe_text(const Registry& registry, bool explain);
nlohmann::ordered_json describe_json(const Registry& registry);

}  // namespace switchyard
