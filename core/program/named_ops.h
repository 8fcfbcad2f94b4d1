// SPDX-License-Identifier: Apache-2.0
// Operations that have a name, and the functions that do the same: what the verifier asks of them.
#pragma once

#include "core/program/program.h"

namespace switchyard {

// Of all functions together, and of the main function with each operation that has a name replaced by those of its
// function, over and over: planning takes time and memory for each.
inline constexpr size_t kMaxOps = size_t{1} << 16;

// The name, the revision and the attributes of an op of id SWY_OP_NAMED. Errors: invalid_data.
Status check_name(const Op& op);

// The numbers and indices of its operands. The program's tensors and states have been verified.
Status check_operands(const Program& program, const Function& function, const Op& op);

// Once every function has been verified by itself: that each op with a name fits the function that does the same, that
// functions do not lead back to themselves, and that what they amount to can be planned.
Status check_calls(const Program& program);

}  // namespace switchyard
