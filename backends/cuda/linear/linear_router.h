// SPDX-License-Identifier: Apache-2.0
// The logits of the router behind a projection, by blocks of the projection's own launch.
//
// The router R reads the norm of x + O h, where x is the residual, O the projection, and h its input. A norm multiplies
// by its weights w and divides by the root of the mean square, which is one number for all logits of a row. So the
// logits are, but for that number,
//   R diag(w) x + (R diag(w) O) h
//
// The first product needs nothing of this layer's. The second is a projection of h, with a weight that is computed once
// for each layer. Its elements have 16 bits: four digits of base 16, each digit in a row of its own of a 4-bit weight
// with the projection's encoding.
#pragma once

#include "host/kernels.h"

namespace gpu {

constexpr uint32_t kDigits = 4;

struct RouterRows {
  Weight router, gate;  // [experts, hidden]; the shared expert's gate [1, hidden], or no data
  Weight norm;
  float bias;      // of the norm's weights
  Weight through;  // R diag(w) O: rows 4 e to 4 e + 3 are the digits of expert e (the gate: e = experts), lowest first
  const float* factors;   // [e]: of the sum over the digits
  float *logits, *gates;  // [rows, experts], [rows]

  __host__ __device__ uint32_t experts() const { return router.rows; }
  __host__ __device__ uint32_t rows() const { return router.rows + (gate.data != nullptr ? 1 : 0); }
};

// Blocks that such a router adds to a projection's launch.
uint32_t router_blocks(uint32_t rows);
// Fills `through` and `factors` from the other weights, for the lists that will be recorded. SWY_OUT_OF_DEVICE_MEMORY:
// there is no room for them.
swy_status derive_router(const Recording& r, const Weight& projection, RouterRows& rows);

}  // namespace gpu
