// SPDX-License-Identifier: Apache-2.0
// AMX tiles: their configuration, the same for all products.
#pragma once

#include <cstdint>

namespace cpu {

inline constexpr uint32_t kTileRows = 16;
inline constexpr uint64_t kTileScratch = 48 << 10;

}  // namespace cpu
