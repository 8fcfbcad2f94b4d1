// SPDX-License-Identifier: Apache-2.0
// MOE for several rows on Hopper, including the norm before it.
#pragma once

#include "common/few_rows.cuh"
#include "moe_boxes.h"

namespace gpu {

// Whether the norm before `op`, a MOE, can be part of its router's kernel.
swy_status supports_normed_grouped(const swy_device& device, const swy_op& op, const swy_bucket& bucket,
                                   swy_error* error);
uint64_t moe_grouped_workspace(const swy_op& op);
double moe_grouped_cost(const swy_device& device, const swy_op& op);
// The norm of the results as the next projection reads it; words null: there is none.
struct NextRows {
  FewRows rows;
  InputNorm norm;
};
// The mixture of the norm of x, plus residual. `workspace`: of the bytes above.
swy_status record_normed_grouped(const Recording& r, void* workspace, const float* x, const InputNorm& norm,
                                 const float* residual, float* y, const NextRows& next);

// Whether the operation's router is a weight of few rows (grouped/narrow.cuh).
bool router_is_narrow(const swy_op& op);
// Fills ids and p with the router's choice, if the operation has a router: for x, or with `norm`, which only a narrow
// router takes, for the norm of x.
swy_status record_routes(const Recording& r, const Mixture& m, const InputNorm* norm);

}  // namespace gpu
