// SPDX-License-Identifier: Apache-2.0
// Which weights of MOE, MOE_ADD and EXPERTS belong to experts.
#pragma once

#include "host/kernels.h"

namespace gpu {

// The matrices of all experts; those of the shared one only where there is one.
inline constexpr swy::OperandName kExpertWeights[] = {"gate_up", "down", "shared_gate_proj", "shared_up_proj",
                                                      "shared_down_proj"};
// Whether the shared expert's gate and up, if there is one, have the same encoding.
bool shared_of_one_type(const swy_op& op);

}  // namespace gpu
