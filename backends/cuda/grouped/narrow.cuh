// SPDX-License-Identifier: Apache-2.0
// Products of many rows with weights of few rows, such as routers and gates, nearly in fp32: bf16 weights times
// activations in two bf16 terms, on tensor cores.
#pragma once

#include "host/kernels.h"

namespace gpu {

// The choice of the largest results of a token, with their weights (common/warp_choice.cuh).
struct NarrowChoice {
  int32_t* ids;    // [tokens, top_k], or null
  float* weights;  // likewise
  uint32_t top_k;
};
constexpr uint32_t kMostNarrowChoices = 256;  // rows that may be chosen from

// y_i [tokens, rows of w_i] = x * w_i^T + bias_i, with x normed by norm and inverse, or roots, if these are given.
struct Narrow {
  const float* x;        // [tokens, width]
  const float* inverse;  // [tokens]: factors of the results, or null
  float* y[SWY_LINEAR_MAX_WEIGHTS];
  Weight w[SWY_LINEAR_MAX_WEIGHTS];
  Bias biases[SWY_LINEAR_MAX_WEIGHTS];
  uint32_t first[SWY_LINEAR_MAX_WEIGHTS + 1];  // row of all, as record_narrow numbers them
  Weight norm;                                 // the elements of x are multiplied by this plus bias
  bool normed;
  float bias;
  uint32_t count, width;
  swy_rows domain;
  uint32_t parts;       // of the width
  bool roots;           // the results' factors are the inverse roots of the mean squares of x's rows
  float eps;            // added to these
  NarrowChoice choice;  // of the only weight's rows
};

// Whether a weight can be multiplied this way.
inline bool narrow(const swy_tensor& t) {
  return t.dtype == SWY_BF16 && t.rank == 2 && t.dims[0] <= 512 && t.dims[1] % 32 == 0;
}
// About how many blocks such a product has. They leave no room beside them on a multiprocessor.
uint32_t narrow_blocks(uint32_t rows, uint32_t width, uint32_t tokens);
// Records the product of up to `tokens` rows; fills `first` and `parts`.
swy_status record_narrow(const Recording& r, Narrow& p, uint32_t tokens);

}  // namespace gpu
