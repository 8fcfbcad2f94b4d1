// SPDX-License-Identifier: Apache-2.0
// RowKernels: the passes over a row that the fast sampler needs. One source (plugins_api/sampling/row_kernels.cpp) is
// compiled once per instruction set; it is plain loops over the functions of sampling_math.h, so that every build gives
// the same bits.
#pragma once

#include <cstdint>
#include <span>

#include "switchyard/sampling_row.h"

namespace swy {

inline constexpr uint32_t kGroup = 64;  // ids per group, the unit in which rows are skipped: two words of a mask

struct RowKernels {
  const char* name;       // "avx512", "avx2", "portable"
  uint32_t vector_bytes;  // of the instruction set that it was compiled for

  // Steps 0 to 3 of the chain without the biases, for groups [first, first + n) of the row, given their logits
  // (`in.logits` is not read). z [n * kGroup]: -inf for ids that are not live and for those beyond the vocabulary;
  // group_max [n]: the highest z of each group. Returns false if a logit is bad.
  bool (*scale)(const swy_sample_params& p, const swy_sample_row_in& in, uint32_t first, uint32_t n,
                const float* logits, float* z, float* group_max);

  // Sum of swy_weight(z - max) over all groups.
  uint64_t (*total_weight)(const float* z, const float* group_max, uint32_t groups, float max);

  // How many z of n groups are live.
  uint32_t (*live)(const float* z, uint32_t groups);

  // out[i] = swy_weight(z[i] - max) for i < n.
  void (*weights)(const float* z, uint32_t n, float max, uint32_t* out);

  // For kGroup ids: bounds[i] is z[i] + swy_gumbel(seed, position, ids[i]) or a little more. Returns the highest.
  float (*noise_bounds)(uint64_t seed, uint64_t position, const uint32_t* ids, const float* z, float* bounds);

  // Highest clamped logit; and the sum of swy_logprob_weight, as swy_row_logprob_total has them.
  float (*highest)(const float* logits, uint32_t n);
  uint64_t (*logprob_total)(const float* logits, uint32_t n, float max);
};

// Those that this processor can run, the fastest first. Never empty.
std::span<const RowKernels* const> row_kernels();

// The fastest of them whose vectors have at most so many bytes, or otherwise the last one.
const RowKernels& row_kernels_within(uint32_t vector_bytes);

}  // namespace swy
