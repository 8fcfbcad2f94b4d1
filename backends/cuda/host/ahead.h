// SPDX-License-Identifier: Apache-2.0
// Lists of several steps (swy.ahead/1).
#pragma once

#include "switchyard/extensions_ahead.h"

namespace gpu {

extern const swy_ahead kAhead;

}  // namespace gpu
