// SPDX-License-Identifier: Apache-2.0
// Rows that are looked at once: greedy, or with nothing truncated.
#include <algorithm>
#include <array>

#include "row_groups.h"
#include "switchyard/sdk/row_sampler.hpp"

namespace swy {

bool row_scans(const swy_sample_params& p, uint32_t vocab) {
  if (p.inv_temperature == 0.0f) return true;
  const bool top_k = p.top_k > 0 && static_cast<uint32_t>(p.top_k) < vocab;
  return !top_k && p.top_p_q15 >= SWY_TOP_P_OFF && p.min_p_q30 == 0;
}

bool scale_groups(const RowKernels& kernels, const swy_sample_params& p, const swy_sample_row_in& in, uint32_t first,
                  uint32_t n, const float* logits, float* z, float* group_max) {
  if (!kernels.scale(p, in, first, n, logits, z, group_max)) return false;
  const uint32_t begin = first * kGroup, end = std::min(in.vocab, (first + n) * kGroup);
  const swy_logit_bias* const last = in.biases + in.bias_count;
  const auto* b = std::lower_bound(in.biases, last, begin, [](const auto& x, uint32_t id) { return x.id < id; });
  for (; b != last && b->id < end; ++b) {
    const uint32_t at = b->id - begin, group = at / kGroup;
    if (z[at] == kDead) continue;
    z[at] = swy_row_value(&p, &in, b->id, logits[at]);
    group_max[group] = *std::max_element(z + group * kGroup, z + (group + 1) * kGroup);
  }
  return true;
}

void draw_group(const RowKernels& kernels, const swy_sample_params& p, uint64_t position, const uint32_t* ids,
                const float* z, uint64_t& best) {
  std::array<float, kGroup> bounds;
  const auto reaches = [&](float bound) { return swy_float_key(bound) >= best >> 32; };
  if (!reaches(kernels.noise_bounds(p.seed, position, ids, z, bounds.data()))) return;
  for (uint32_t j = 0; j < kGroup; ++j) {
    if (z[j] != kDead && reaches(bounds[j])) best = std::max(best, noisy_key(p, position, ids[j], z[j]));
  }
}

void scan_groups(const RowKernels& kernels, const swy_sample_params& p, const swy_sample_row_in& in, uint32_t first,
                 uint32_t n, const float* logits, RowBest& best) {
  constexpr uint32_t kAtOnce = 16;  // groups whose z stay in the first-level cache
  const bool greedy = p.inv_temperature == 0.0f;
  std::array<float, kAtOnce * kGroup> z;
  std::array<float, kAtOnce> group_max;
  for (uint32_t at = 0; at < n; at += kAtOnce) {
    const uint32_t count = std::min(n - at, kAtOnce);
    if (!scale_groups(kernels, p, in, first + at, count, logits + size_t{at} * kGroup, z.data(), group_max.data())) {
      best.bad = true;
      return;
    }
    for (uint32_t g = 0; g < count; ++g) {
      const float reach = greedy ? group_max[g] : swy_add(group_max[g], SWY_GUMBEL_MAX);
      if (group_max[g] == kDead || swy_float_key(reach) < best.key >> 32) continue;
      const float* x = z.data() + g * kGroup;
      const uint32_t id = (first + at + g) * kGroup;
      if (greedy) {
        const auto place = static_cast<uint32_t>(std::find(x, x + kGroup, group_max[g]) - x);
        best.key = std::max(best.key, swy_order_key(swy_float_key(group_max[g]), id + place));
        continue;
      }
      std::array<uint32_t, kGroup> ids;
      for (uint32_t j = 0; j < kGroup; ++j) ids[j] = id + j;
      draw_group(kernels, p, in.position, ids.data(), x, best.key);
    }
  }
}

}  // namespace swy
