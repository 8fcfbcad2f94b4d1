// LINEAR_ADD whose input is what the delta rule gives, before its norm and gate: for ranges.
#pragma once

#include "kernels.h"

namespace gpu {

// The norm over each head of `dim` elements, and the gate z [values], of GATED_DELTA's output.
struct HeadNorm {
  const float* z;
  Weight weight;
  uint32_t dim;  // 32, 64, 128 or 256
  float eps;
};

struct Projection;

// Whether a projection of one row can be recorded with record_boxes: `plain` counts rows of f32 or bf16 weights.
swy_status supports_boxes(const swy_device& device, const swy_op& op, uint32_t first_weight, swy_error* error);
// y = weights times x, normed as `p` says or, with `heads`, by heads.
swy_status record_boxes(const Recording& r, const Projection& p, const HeadNorm* heads);

}  // namespace gpu
