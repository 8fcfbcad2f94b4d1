// SPDX-License-Identifier: Apache-2.0
#include "cli/say.h"

#include <cstdio>

namespace switchyard::cli {

void say_text(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

}  // namespace switchyard::cli
