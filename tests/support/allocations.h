// SPDX-License-Identifier: Apache-2.0
// Counts every call of malloc and its kin in this process, those of plugins, too. For programs that link
// allocations.cpp, which replaces them.
#pragma once

#include <cstdint>

namespace switchyard {

uint64_t allocations_so_far();

}  // namespace switchyard
