// SPDX-License-Identifier: Apache-2.0
// Emit: turns a cover into the node sequence of a plan: casts, copies between devices, segments.
#pragma once

#include "core/plan/cover.h"
#include "core/plan/plan.h"

namespace switchyard {

// Fills plan.graph, nodes and segments. What refuses to be prepared is added to `refused`; the plan is then of no use.
// Errors: unsupported, when a cast is needed that no device offers; cancelled; those of `prepare`.
Status emit_nodes(Cover cover, const std::vector<PlanDevice>& devices, const Matcher& matcher, RangeCodes& codes,
                  const CancelCheck& cancelled, Plan& plan, std::vector<Refusal>& refused);

// Fills plan.placements, workspace_offset and arena_bytes: values that are not alive at the same time share memory.
// Errors: out_of_device_memory, when a device's buffers are too small for it.
Status place_values(const std::vector<PlanDevice>& devices, Plan& plan);

}  // namespace switchyard
