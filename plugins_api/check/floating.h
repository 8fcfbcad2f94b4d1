// SPDX-License-Identifier: Apache-2.0
// The floating-point environment of threads: a plugin leaves it as it found it.
#pragma once

#include <string>

namespace switchyard::check {

// To be called by a thread of the team that comes back from the plugin: notes what is not as usual, and puts it back.
void note_floating();

// What the plugin left in the calling thread, or in one of the team since the last call, such as "left the rounding
// mode at upward"; "" if nothing. Puts it back.
std::string floating_misuse();

}  // namespace switchyard::check
