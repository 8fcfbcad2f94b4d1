// SPDX-License-Identifier: Apache-2.0
// What moe_bytes.cu uses for few rows an expert.
#pragma once

#include "host/kernels.h"

namespace gpu {

swy_status record_scaled_bytes(const Recording& r);
uint64_t scaled_bytes_workspace(const swy_op& op);
// Whether a block's memory has room for an operation's scales.
bool scaled_bytes_fit(const swy_device& device, const swy_op& op);

}  // namespace gpu
