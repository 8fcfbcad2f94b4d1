// SPDX-License-Identifier: Apache-2.0
// The ELF note of a plugin that is loaded.
#pragma once

#include <optional>

#include "switchyard/plugin.h"

namespace switchyard::check {

// Nothing if the library that `negotiate` belongs to has no note of SWY_PLUGIN_NOTE.
std::optional<swy_note> note_of(swy_negotiate_fn negotiate);

}  // namespace switchyard::check
