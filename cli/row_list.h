// Lists of row counts on the command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace switchyard::cli {

// "1,16,512", and with dots what goes on like the two before them: "1,2,4,...,4096". Ascending, each once. Errors:
// usage, naming the part that is wrong.
Result<std::vector<uint32_t>> parse_rows(const std::string& text);

}  // namespace switchyard::cli
