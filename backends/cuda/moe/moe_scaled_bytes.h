// SPDX-License-Identifier: Apache-2.0
// What moe_bytes.cu uses for few rows an expert.
#pragma once

#include "grouped/bytes.h"
#include "moe.cuh"
#include "moe_boxes.h"

namespace gpu {

// norm: of x, or null; next: as record_combine. `arena`: what is left of the workspace behind m's.
swy_status record_scaled_bytes(const Recording& r, const Mixture& m, Arena arena, const InputNorm* norm,
                               const NormedBytes* next);
uint64_t scaled_bytes_workspace(const swy_op& op);  // all of it
// Whether a block's memory has room for an operation's scales.
bool scaled_bytes_fit(const swy_device& device, const swy_op& op);

}  // namespace gpu
