// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "plugins_api/check/naive/rms_norm.h"
#include "switchyard/ops.h"

namespace switchyard::check::naive {

// act(gate, up) of ops.h, by attributes that have an activation.
template <class Attrs>
double act(const Attrs& a, double gate, double up) {
  if (a.activation == SWY_ACT_SILU) return silu(gate) * up;
  const double limit = a.act_limit, g = std::min(gate, limit), u = std::clamp(up, -limit, limit);
  return g * sigmoid(a.act_alpha * g) * (u + 1);
}

}  // namespace switchyard::check::naive
