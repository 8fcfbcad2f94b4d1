// SPDX-License-Identifier: Apache-2.0
// What the op table (switchyard/op_table.h) asks of an operation: operand counts, shapes, types and attribute ranges.
#pragma once

#include "core/program/program.h"
#include "switchyard/op_table.h"

namespace switchyard {

// Checks one op of `function` against the entry of its id and revision. The program's tensors and states have been
// verified. Checks its indices first. `makers`: by value, the op that makes it; NULL for those of the caller, and of
// ops not yet seen. Errors: invalid_data, naming the operand.
Status check_op(const Program& program, const Function& function, const Op& op, const swy_op_spec& spec,
                std::span<const Op* const> makers);

// Whether the op writes the states that it lists. One with a name does.
bool writes_states(const Op& op);

}  // namespace switchyard
