// SPDX-License-Identifier: Apache-2.0
// What this program is a build of. A file of its own, since a new commit compiles it anew.
#pragma once

#include <string>

namespace switchyard::cli {

const char* commit();        // "" where the source was no repository; ends in -dirty where it was changed
std::string version_text();  // "switchyard 0.1.0 (commit ...)"

}  // namespace switchyard::cli
