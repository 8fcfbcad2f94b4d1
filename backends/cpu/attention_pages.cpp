// SPDX-License-Identifier: Apache-2.0
// The layout of ATTENTION's pages, from and to the canonical one.
#include "attention.h"

namespace cpu {

uint32_t kv_layout(const swy_tensor& state) { return state.state == SWY_STATE_PAGED ? kTransposedKeys : 0; }

// Canonical: per token [2, kv_heads, head_dim].
void kv_to_canonical(const swy_tensor& state, uint32_t page, const void* unit, void* canonical) {
  const uint64_t heads = state.dims[1], hd = state.dims[2];
  const auto* from = static_cast<const float*>(unit);
  auto* to = static_cast<float*>(canonical);
  for (uint64_t t = 0; t < page; ++t) {
    for (uint64_t h = 0; h < heads; ++h) {
      for (uint64_t i = 0; i < hd; ++i) {
        to[(t * 2 * heads + h) * hd + i] = from[(h * hd + i) * page + t];
        to[(t * 2 * heads + heads + h) * hd + i] = from[((heads + h) * page + t) * hd + i];
      }
    }
  }
}

void kv_from_canonical(const swy_tensor& state, uint32_t page, const void* canonical, void* unit) {
  const uint64_t heads = state.dims[1], hd = state.dims[2];
  const auto* from = static_cast<const float*>(canonical);
  auto* to = static_cast<float*>(unit);
  for (uint64_t t = 0; t < page; ++t) {
    for (uint64_t h = 0; h < heads; ++h) {
      for (uint64_t i = 0; i < hd; ++i) {
        to[(h * hd + i) * page + t] = from[(t * 2 * heads + h) * hd + i];
        to[((heads + h) * page + t) * hd + i] = from[(t * 2 * heads + heads + h) * hd + i];
      }
    }
  }
}

}  // namespace cpu
