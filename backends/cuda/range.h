// SPDX-License-Identifier: Apache-2.0
// Consecutive operations that decoding steps run as one (swy.range/1).
#pragma once

#include "switchyard/extensions.h"

namespace gpu {

const swy_range& ranges();

}  // namespace gpu
