// SPDX-License-Identifier: Apache-2.0
// The backends that were found, for `switchyard backends`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/plugin/registry.h"

namespace switchyard {

// A line per backend. With `details` also its kernels and options, with `explain` a line per candidate file.
std::string describe_text(const Registry& registry, bool details, bool explain);
nlohmann::ordered_json describe_json(const Registry& registry);

}  // namespace switchyard
