// SPDX-License-Identifier: Apache-2.0
// ATTENTION of few rows, or of one row per sequence, for ranges: it writes the integers that the projection behind it
// multiplies.
#pragma once

#include "common/half_rows.cuh"
#include "host/kernels.h"

namespace gpu {

swy_status supports_attention_decode(const swy_device& device, const swy_op& op, const swy_bucket& bucket,
                                     swy_error* error);
double attention_decode_cost(const swy_device& device, const swy_op& op, const swy_bucket& bucket);
uint64_t attention_decode_workspace(const swy_device& device, const swy_op& op, const swy_bucket& bucket);
// `halves` gets the output; y nothing. Not of one row.
swy_status record_attention_halves(const Recording& r, void* workspace, const HalfRows& halves);

}  // namespace gpu
