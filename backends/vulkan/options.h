// SPDX-License-Identifier: Apache-2.0
// Options of this backend besides swy::kKvBf16.
#pragma once

#include "switchyard/sdk/device_backend.hpp"

namespace gpu {

inline constexpr swy_option kCooperative = {sizeof(swy_option), SWY_OPTION_BOOL, "cooperative", "1",
                                            "multiply prompts with matrix instructions where the device has them"};
inline constexpr swy_option kDot8 = {sizeof(swy_option), SWY_OPTION_BOOL, "dot8", "1",
                                     "multiply few rows by products of bytes where the device has them"};
inline constexpr swy_option kImport = {
    sizeof(swy_option), SWY_OPTION_BOOL, "import", "1",
    "read weights where the file is mapped, on devices that share the host's memory"};
inline constexpr swy_option kKhrMatrices = {
    sizeof(swy_option), SWY_OPTION_BOOL, "khr_matrices", "1",
    "take matrix instructions of the KHR extension where the device has it, not of NVIDIA's"};
inline constexpr swy_option kPipelineCache = {sizeof(swy_option), SWY_OPTION_BOOL, "pipeline_cache", "1",
                                              "keep compiled pipelines in the user's folder for caches"};
inline constexpr swy_option kResident = {sizeof(swy_option), SWY_OPTION_INT, "resident", "-1",
                                         "workgroups of a launch that wait for each other; 0: none do; -1: one for "
                                         "each processor, where their number is known"};
inline constexpr swy_option kReversed = {
    sizeof(swy_option), SWY_OPTION_BOOL, "reversed", "0",
    "run launches that do not wait for each other last to first: a test of the barriers"};

}  // namespace gpu
