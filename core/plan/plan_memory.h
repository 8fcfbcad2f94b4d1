// SPDX-License-Identifier: Apache-2.0
// PlanMemory: what planning has learned about the devices, for later plans. The planners of a model share one.
#pragma once

#include <string>
#include <utility>

#include "core/plan/range_codes.h"
#include "core/plan/refusals.h"

namespace switchyard {

struct PlanMemory {
  PlanMemory() = default;
  explicit PlanMemory(CodeStore store) : codes(std::move(store)) {}

  Refusals refusals;
  RangeCodes codes;
};

}  // namespace switchyard
