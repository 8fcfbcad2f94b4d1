// SPDX-License-Identifier: Apache-2.0
// C++ SDK: a team of one, for work that other members do not share.
#pragma once

#include "switchyard/plugin.h"

namespace swy __attribute__((visibility("hidden"))) {

  inline constexpr swy_team kAlone{sizeof(swy_team), 1, 0, 0, nullptr, [](const swy_team*) {}};

}  // namespace )
