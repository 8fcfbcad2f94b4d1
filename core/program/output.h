// What is checked before a program file is written somewhere.
#pragma once

#include <string>

#include "core/base/os.h"

namespace switchyard {

// A slip of the hand must not replace a checkpoint's weights, or anything else that is no program. Errors: usage.
Status check_program_output(Os& os, const std::string& output);

// Errors: io, when the disk of `output` has less room than `bytes`.
Status check_space(Os& os, const std::string& output, uint64_t bytes);

}  // namespace switchyard
