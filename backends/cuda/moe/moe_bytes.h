// SPDX-License-Identifier: Apache-2.0
// MOE for many rows on Hopper with activations as bytes, including the norm before it: for ranges.
#pragma once

#include "host/kernels.h"
#include "moe_boxes.h"

namespace gpu {

constexpr uint32_t kLeastBytesOfMixture = 65;  // rows of a bucket; fewer have kernels of their own

swy_status supports_normed_bytes(const swy_device& device, const swy_op& op, const swy_bucket& bucket,
                                 swy_error* error);
double moe_bytes_cost(const swy_device& device, const swy_op& op, const swy_bucket& bucket);
uint64_t moe_bytes_workspace(const swy_op& op);
// The mixture of the norm of x, plus residual. `workspace`: of the bytes above.
swy_status record_normed_bytes(const Recording& r, void* workspace, const float* x, const InputNorm& norm,
                               const float* residual, float* y);

}  // namespace gpu
