// What the kernels of GATED_DELTA share: operands.
#pragma once

#include "kernels.h"

namespace gpu {

struct Delta {
  Span qkv, z, b, a;  // [rows, channels], [rows, values], [rows, value_heads] twice
  Weight conv, a_log, dt_bias, norm;
  Span conv_state;     // [slots, channels, kernel - 1]
  Span rule_state;     // [slots, value_heads, value_dim, key_dim]
  Span y;              // [rows, values]
  uint32_t types = 0;  // of the weights, as gated_delta.glsl takes them

  uint32_t channels = 0;
};
Delta delta_of(const Recording& r);

}  // namespace gpu
