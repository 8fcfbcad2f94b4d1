// SPDX-License-Identifier: Apache-2.0
// Where a user's files are, as the XDG base directory specification has it.
#pragma once

#include <string>

namespace switchyard {

// "$variable/switchyard", or "$HOME/in_home/switchyard"; "" when there is no absolute path to it.
std::string user_folder(const char* variable, const char* in_home);

// The same of what may be deleted at any time: $XDG_CACHE_HOME, or ~/.cache.
std::string cache_folder();

}  // namespace switchyard
