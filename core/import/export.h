// SPDX-License-Identifier: Apache-2.0
// Export of a program's weights as fp32, for checking against other implementations.
#pragma once

#include <string>

#include "core/base/os.h"
#include "core/program/program.h"

namespace switchyard {

// Writes every weight, dequantized, to a safetensors file under its checkpoint name. Nothing is left behind on failure.
Status export_dequantized(Os& os, const Program& program, const std::string& path);

}  // namespace switchyard
