// SPDX-License-Identifier: Apache-2.0
// Shared by the kernels of GATED_DELTA: operands, and the kernels before and after the rule of prompts.
#pragma once

#include "kernels.h"

namespace gpu {

struct Delta {
  Span qkv, z, b, a;  // [rows, channels], [rows, values], [rows, value_heads] twice
  Weight conv, a_log, dt_bias, norm;
  Span conv_state;     // [slots, channels, kernel - 1]
  Span rule_state;     // [slots, value_heads, value_dim, key_dim]
  Span pending;        // revision 2: [slots, pending_rows, channels + 2 * value_heads]
  Span y;              // [rows, values]
  uint32_t types = 0;  // of the weights, for gated_delta.glsl

  uint32_t channels = 0;
  uint32_t pending_rows = 0;
};
Delta delta_of(const Recording& r);

// Workspace of prompts that the rule reads: of the step's rows, then of each sequence's pending rows.
struct Mixed {
  Span rows;  // [rows, channels]: q, k and v after the convolution, q and k of unit length
  Span gate;  // [rows, value_heads, 2]
};
Mixed take_mixed(Arena& arena, const swy_op& op, const swy_bucket& bucket);
// Fills both (gated_delta_prepare.comp); `logarithms`: of the decays.
swy_status record_delta_mix(const Recording& r, const Delta& d, const Mixed& m, bool logarithms);
// Applies pending rows that stand (gated_delta.comp), before kernels that take the step's own.
swy_status record_stands(const Recording& r, const Delta& d, const Mixed& m);
// The gated norm after the rule, in place, and keeps rows that stay pending (gated_delta_gate.comp).
swy_status record_delta_gate(const Recording& r, const Delta& d);

}  // namespace gpu
