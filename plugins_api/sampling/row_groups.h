// SPDX-License-Identifier: Apache-2.0
// Groups of a row, for the scan and for truncated sampling.
#pragma once

#include "switchyard/sdk/row_kernels.hpp"

namespace swy {

inline constexpr float kDead = -__builtin_inff();

// RowKernels::scale with the biases.
bool scale_groups(const RowKernels& kernels, const swy_sample_params& p, const swy_sample_row_in& in, uint32_t first,
                  uint32_t n, const float* logits, float* z, float* group_max);

inline uint64_t noisy_key(const swy_sample_params& p, uint64_t position, uint32_t id, float z) {
  return swy_order_key(swy_float_key(swy_add(z, swy_gumbel(p.seed, position, id))), id);
}

// Takes kGroup ids with their z, some of which may be -inf, into the best noisy key.
void draw_group(const RowKernels& kernels, const swy_sample_params& p, uint64_t position, const uint32_t* ids,
                const float* z, uint64_t& best);

}  // namespace swy
