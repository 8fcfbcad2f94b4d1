// SPDX-License-Identifier: Apache-2.0
// A plan as JSON, for `switchyard plan --json`.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "core/plan/plan.h"

namespace switchyard {

nlohmann::ordered_json explain_json(const Plan& plan);

}  // namespace switchyard
