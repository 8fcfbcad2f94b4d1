// From the FlatBuffer of a program file to the structs of program.h.
#pragma once

#include <cstddef>
#include <span>

#include "core/program/program.h"

namespace switchyard {

// Runs the FlatBuffers verifier and builds the structs, whose views point into `flatbuffer`; `file` is left empty. Says
// nothing about meaning: verify_program does. The structs and what verify_program needs take at most twice
// the FlatBuffer's size, or the program is refused; tables that are listed again and again cannot blow them up.
Result<Program> decode_program(std::span<const std::byte> flatbuffer);

}  // namespace switchyard
