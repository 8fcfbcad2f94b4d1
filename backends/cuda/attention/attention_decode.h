// SPDX-License-Identifier: Apache-2.0
// ATTENTION of few rows, or of one row per sequence, for ranges: it writes the integers that the projection behind it
// multiplies.
#pragma once

#include "common/half_rows.cuh"
#include "host/kernels.h"

namespace gpu {

// What it supports, costs and needs, in a range as by itself.
inline const Kernel& attention_decode() { return attention_decode_kernels().front(); }
// `halves` gets the output; y nothing. Not of one row.
swy_status record_attention_halves(const Recording& r, void* workspace, const HalfRows& halves);

}  // namespace gpu
