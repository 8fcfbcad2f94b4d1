// SPDX-License-Identifier: Apache-2.0
// The range GATED_DELTA, LINEAR, ADD of prompts: the last kernel of the delta rule makes bytes of its output, which the
// projection reads.
#pragma once

#include "host/kernels.h"

namespace gpu {

// Whether a step has so many rows; ops: the range's.
bool many_rows_of_prompts(const swy_op* const* ops, const swy_bucket& bucket);
swy_status supports_prompts(const swy_device& device, const swy_op* const* ops, const swy_bucket& bucket,
                            swy_error* error);
double cost_of_prompts(const swy_device& device, const swy_op* const* ops, const swy_bucket& bucket);
uint64_t workspace_of_prompts(const swy_op* const* ops, const swy_bucket& bucket);
// y = residual + the projection of the delta rule's output. The values in between are not written.
swy_status record_prompts(const Recording& delta, const Recording& linear, const float* residual, float* y,
                          char* workspace);

}  // namespace gpu
