// SPDX-License-Identifier: Apache-2.0
// Options of this backend besides swy::kKvBf16.
#pragma once

#include "switchyard/plugin.h"

namespace gpu {

inline constexpr swy_option kBytes = {sizeof(swy_option), SWY_OPTION_BOOL, "bytes", "1",
                                      "read prompts with activations in 8 bits (0: in bf16, slower and a "
                                      "little more exact)"};
inline constexpr swy_option kKvI8 = {sizeof(swy_option), SWY_OPTION_BOOL, "kv_i8", "0",
                                     "keep keys and values in 8 bits, with a scale per row of a head: half the memory "
                                     "of bf16, and a little less exact"};
inline constexpr swy_option kDeltaI16 = {sizeof(swy_option), SWY_OPTION_BOOL, "delta_i16", "1",
                                         "keep the delta rule's states in 16 bits, with a scale per column (0: in "
                                         "fp32, twice the memory)"};
inline constexpr swy_option kCard = {sizeof(swy_option), SWY_OPTION_STRING, "card", "auto",
                                     "for developers: use only what a card of compute capability 8.0, 8.6, 8.9, 9.0, "
                                     "10.0 or 12.0 has"};

}  // namespace gpu
