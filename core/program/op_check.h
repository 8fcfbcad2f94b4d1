// SPDX-License-Identifier: Apache-2.0
// The requirements of ops.h on each operation: operand counts, shapes, dtypes and attribute ranges.
#pragma once

#include "core/program/program.h"

namespace switchyard {

// Whether a program may have this op, which is known: all but those that sample, which the runtime adds by itself.
bool belongs_in_files(swy_op_id id);

// Checks one op of `function` that belongs in files, whose revision is known, and whose tensors and states have been
// verified. Checks its indices first. `makers`: by value, the op that makes it; NULL for those of the caller, and of
// ops not yet seen. Errors: invalid_data, naming the op's kind and the operand.
Status check_op(const Program& program, const Function& function, const Op& op, std::span<const Op* const> makers);

// Whether the op writes the states that it lists.
bool writes_states(swy_op_id id);

}  // namespace switchyard
