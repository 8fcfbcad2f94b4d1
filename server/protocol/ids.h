// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace switchyard::server {

// A new id: the prefix and 24 random letters and digits. Thread-safe.
std::string random_id(const char* prefix);

}  // namespace switchyard::server
