// SPDX-License-Identifier: Apache-2.0
// Lists of row counts on the command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace switchyard::cli {

// "1,16,512". Dots continue the series of the two numbers before them: "1,2,4,...,4096". Ascending, without duplicates.
// Errors: usage, naming the part that is wrong.
Result<std::vector<uint32_t>> parse_rows(const std::string& text);

}  // namespace switchyard::cli
