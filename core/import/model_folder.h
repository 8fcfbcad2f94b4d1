// SPDX-License-Identifier: Apache-2.0
// Program files that were made of models in other formats, kept so that each is converted once.
#pragma once

#include <string>

#include "core/import/gguf.h"

namespace switchyard {

// $SWITCHYARD_MODELS, or $XDG_CACHE_HOME/switchyard/models, or the same under ~/.cache; "" when there is no absolute
// path to it.
std::string default_model_folder();

// The name of the program file for a GGUF file: its own, and a hash of its description and of the beginning of every
// tensor, so that a file that changes gets another.
std::string program_name(const std::string& path, const GgufFile& file);

}  // namespace switchyard
