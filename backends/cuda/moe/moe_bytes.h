// SPDX-License-Identifier: Apache-2.0
// MOE for many rows on Hopper with activations as bytes, including the norm before it: for ranges.
#pragma once

#include "grouped/bytes.h"
#include "host/kernels.h"
#include "moe_boxes.h"

namespace gpu {

constexpr uint32_t kLeastBytesOfMixture = 65;  // rows of a bucket; fewer have kernels of their own

swy_status supports_normed_bytes(const swy_device& device, const swy_op& op, const swy_bucket& bucket,
                                 swy_error* error);
double moe_bytes_cost(const swy_device& device, const swy_op& op, const swy_bucket& bucket);
uint64_t moe_bytes_workspace(const swy_op& op);
// Whether the kernel that adds up the experts can also make bytes of the norm of its results.
bool makes_next_bytes(const swy_op& op);
// The mixture of the norm of x, plus residual; with `next`, which may be null, also the norm of that. `workspace`: of
// the bytes above.
swy_status record_normed_bytes(const Recording& r, void* workspace, const float* x, const InputNorm& norm,
                               const float* residual, float* y, const NormedBytes* next);

}  // namespace gpu
