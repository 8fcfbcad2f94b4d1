// SPDX-License-Identifier: Apache-2.0
// What to do with a text that a model's context has no room for.
#pragma once

#include <string>

#include "core/engine/model.h"

namespace switchyard {

// "raise --ctx ..." only where that is possible.
std::string room_advice(const Model& model);

// Errors: usage, if a prompt of so many tokens does not fit after those that its session has seen.
Status check_room(const Model& model, uint64_t seen, uint64_t prompt);

}  // namespace switchyard
