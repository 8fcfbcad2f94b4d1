// SPDX-License-Identifier: Apache-2.0
// MOE of one row by boxes of its weights, with or without the norm before it.
#pragma once

#include "moe.cuh"

namespace gpu {

// The norm of MOE's input.
struct InputNorm {
  Weight weight;
  float eps, bias;
};

swy_status supports_moe_boxes(const swy_device& device, const swy_op& op, swy_error* error);
// y of `m`; with `norm`, m.x is the norm's input.
swy_status record_moe_boxes(const Recording& r, const Mixture& m, const InputNorm* norm);

}  // namespace gpu
