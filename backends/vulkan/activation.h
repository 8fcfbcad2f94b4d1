// SPDX-License-Identifier: Apache-2.0
// act(gate, up) of ops.h, as shaders take it (activation.glsl).
#pragma once

#include "kernels.h"

namespace gpu {

struct Activation {
  bool clamped = false;
  float alpha = 0, limit = 0;
};
// Of the attributes of an operation that has one.
template <class Attrs>
Activation activation_of(const Attrs& a) {
  return {a.activation == SWY_ACT_CLAMPED, a.act_alpha, a.act_limit};
}

// Records y = act(gate, up), each [rows, width] of `domain`; y may be one of the two.
swy_status record_activation(const Recording& r, const Activation& act, Span gate, Span up, Span y, uint32_t rows,
                             uint32_t width, swy_rows domain);

}  // namespace gpu
