// SPDX-License-Identifier: Apache-2.0
// From the FlatBuffer of a program file to the structs of program.h.
#pragma once

#include <cstddef>
#include <span>

#include "core/program/program.h"

namespace switchyard {

// Runs the FlatBuffers verifier and builds the structs, whose views point into `flatbuffer`; `file` is left empty. Does
// not check meaning; verify_program does. Refuses a program if the structs and verify_program's memory would take more
// than twice the FlatBuffer's size, as when tables are listed many times.
Result<Program> decode_program(std::span<const std::byte> flatbuffer);

}  // namespace switchyard
