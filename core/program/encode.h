// SPDX-License-Identifier: Apache-2.0
// From a ProgramSpec to the FlatBuffer of a program file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/program/spec.h"

namespace switchyard {

// Builds the FlatBuffer and assigns the segments their places after it, in the order of the tensors, canonical form
// first; checksums are still 0. Equal specs give equal bytes. Checks only what it must compute with. Errors:
// invalid_data for a tensor whose size cannot be computed, or for more than FlatBuffers can hold.
Result<std::vector<std::byte>> encode_program(const ProgramSpec& spec);

// Enters the checksum of a segment; the size stays the same.
void set_checksum(std::span<std::byte> flatbuffer, size_t tensor, size_t segment, uint64_t checksum);

}  // namespace switchyard
