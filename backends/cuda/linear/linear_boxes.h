// SPDX-License-Identifier: Apache-2.0
// Projections of up to four rows by boxes of their weights, also of integers that the kernel in front writes: the delta
// rule's output before its norm, or attention's.
#pragma once

#include "common/half_rows.cuh"
#include "common/head_parts.cuh"
#include "gated_delta/gated_delta_step.h"
#include "host/kernels.h"

namespace gpu {

// The norm of GATED_DELTA's output over each head of `dim` elements. The input, integers, has been multiplied by the
// norm's weights and by the gate; what is left is to divide each head by the root of the mean of `squares`.
struct HeadNorm {
  HalfRows x;
  // [rows, heads, head_parts(dim)]: their sum is that of a head's squares before the gate. Or null, of three or four
  // rows: there is nothing to divide by.
  const float* squares = nullptr;
  uint32_t dim = kHeadPart;  // 32, 64, 128 or 256
  float eps = 0;
};

struct Projection;
struct RouterRows;

// Whether an operation's weights from `first_weight` on can be recorded with record_boxes, beside `others` blocks of
// something else.
swy_status supports_boxes(const swy_device& device, const swy_op& op, uint32_t first_weight, swy_error* error,
                          uint32_t others = 0);
// y = weights times x, normed as `p` says or, with `heads`, per head. With `router`, one weight and a residual, also
// the logits of the router behind it; then one row may come in parts of heads.
swy_status record_boxes(const Recording& r, const Projection& p, const HeadNorm* heads,
                        const RouterRows* router = nullptr, const HeadParts* parts = nullptr);

}  // namespace gpu
