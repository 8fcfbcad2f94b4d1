// Runs of operations that decoding steps take as one (swy.range/1).
#pragma once

#include "switchyard/extensions.h"

namespace gpu {

const swy_range& ranges();

}  // namespace gpu
