// SPDX-License-Identifier: Apache-2.0
// MOE of up to four rows by boxes of its weights, with or without the norm before it.
#pragma once

#include "moe.cuh"

namespace gpu {

// The norm of MOE's input.
struct InputNorm {
  Weight weight;
  float eps, bias;
};

// Whether a weight is not quantized.
inline bool is_plain(const swy_tensor& t) { return t.dtype == SWY_F32 || t.dtype == SWY_BF16; }

swy_status supports_moe_boxes(const swy_device& device, const swy_op& op, swy_error* error);
// Microseconds of an H200, with or without the norm.
double moe_boxes_cost(const swy_device& device, const swy_op& op);
uint64_t moe_boxes_workspace(const swy_op& op);
// y of `m`; with `norm`, m.x is the norm's input. `arena`: after mixture_of. `routed`: m.logits and the shared expert's
// gate in m.shared_p are there already, both before the norm's factor 1 / rms and the gate before its sigmoid; with the
// copy engine.
swy_status record_moe_boxes(const Recording& r, const Mixture& m, Arena& arena, const InputNorm* norm,
                            bool routed = false);

}  // namespace gpu
