// SPDX-License-Identifier: Apache-2.0
// Texts that a command is given to read.
#pragma once

#include <string>

#include "core/base/status.h"

namespace switchyard::cli {

constexpr uint64_t kMostTextBytes = uint64_t{64} << 20;  // of a file
constexpr uint64_t kMostPipeBytes = uint64_t{16} << 20;  // of standard input, a pipe or a device

// A file, "-" for standard input, or a pipe. Ends early when the program is interrupted. Errors: those of Os::read;
// invalid_data, when it is larger than that; cancelled.
Result<std::string> read_text(const std::string& path, uint64_t most_file_bytes = kMostTextBytes);
Result<std::string> read_standard_input();

}  // namespace switchyard::cli
