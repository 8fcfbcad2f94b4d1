// SPDX-License-Identifier: Apache-2.0
// The rules of a program that the FlatBuffers verifier cannot check.
#pragma once

#include <cstdint>

#include "core/program/program.h"

namespace switchyard {

// Checks, in this order: required features and op revisions (unsupported: a newer program); names, shapes, dtypes,
// every segment's place and size; every index; each value defined once and before use; each op's operands and
// attributes (op_check.h); that a state has one writer; that the main function yields logits. `file_bytes` is the size
// of the whole file, whose segments begin after the FlatBuffer. Never reads a weight. Errors name the function, op,
// value or tensor.
Status verify_program(const Program& program, uint64_t file_bytes);

}  // namespace switchyard
