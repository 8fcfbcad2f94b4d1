// SPDX-License-Identifier: Apache-2.0
// act(gate, up) between the products of other operations.
#pragma once

#include "host/kernels.h"

namespace gpu {

// Records y = act(gate, up), each [rows, width] of `domain`; y may be one of the two.
swy_status record_activation(const Recording& r, const Activation& act, const float* gate, const float* up, float* y,
                             uint32_t rows, uint32_t width, swy_rows domain);

}  // namespace gpu
