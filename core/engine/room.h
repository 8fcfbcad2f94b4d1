// SPDX-License-Identifier: Apache-2.0
// What to do with a text that a model's context has no room for.
#pragma once

#include <string>

#include "core/engine/model.h"

namespace switchyard {

// "raise --ctx ..." only where that is possible.
std::string room_advice(const Model& model);

}  // namespace switchyard
