// What a user may set, besides swy::kKvBf16.
#pragma once

#include "switchyard/sdk/device_backend.hpp"

namespace gpu {

inline constexpr swy_option kCooperative = {sizeof(swy_option), SWY_OPTION_BOOL, "cooperative", "1",
                                            "multiply prompts with matrix instructions where the device has them"};
inline constexpr swy_option kDot8 = {sizeof(swy_option), SWY_OPTION_BOOL, "dot8", "1",
                                     "multiply few rows by products of bytes where the device has them"};
inline constexpr swy_option kReversed = {
    sizeof(swy_option), SWY_OPTION_BOOL, "reversed", "0",
    "run launches that do not wait for each other last to first: a test of the barriers"};

}  // namespace gpu
