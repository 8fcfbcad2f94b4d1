// SPDX-License-Identifier: Apache-2.0
// Checks before a program file is written.
#pragma once

#include <string>

#include "core/base/os.h"

namespace switchyard {

// Prevents that a typing error replaces a checkpoint's weights, or anything else that is not a program. Errors: usage.
Status check_program_output(Os& os, const std::string& output);

// Errors: io, when the disk of `output` has less room than `bytes`.
Status check_space(Os& os, const std::string& output, uint64_t bytes);

}  // namespace switchyard
