// SPDX-License-Identifier: Apache-2.0
// ATTENTION of few rows, or of one row per sequence, for ranges: it writes the integers that the projection behind it
// multiplies, or leaves it parts of heads to join.
#pragma once

#include "common/half_rows.cuh"
#include "common/head_parts.cuh"
#include "host/kernels.h"

namespace gpu {

// What it supports, costs and needs, in a range as by itself.
inline const Kernel& attention_decode() { return attention_decode_kernels().front(); }
// `halves` gets the output, not of one row; without words y does.
swy_status record_attention_halves(const Recording& r, void* workspace, const HalfRows& halves);
// Whether attention of one row can leave parts of its heads to the kernel behind it.
bool attention_leaves_parts(const swy_device& device, const swy_op& op, const swy_bucket& bucket);
swy_status record_attention_parts(const Recording& r, const HeadParts& parts);

}  // namespace gpu
