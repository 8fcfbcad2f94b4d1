// The requirements of ops.h on each operation: operand counts, shapes, dtypes and attribute ranges.
#pragma once

#include "core/program/program.h"

namespace switchyard {

// Checks one op of `function` whose id and revision are known and whose tensors and states have been verified. Checks
// its indices first. Errors: invalid_data, naming the op's kind and the operand.
Status check_op(const Program& program, const Function& function, const Op& op);

// Whether the op writes the states that it lists.
bool writes_states(swy_op_id id);

}  // namespace switchyard
