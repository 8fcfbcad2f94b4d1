// SPDX-License-Identifier: Apache-2.0
// Files that no host should trust, made from one correct library by the changes listed here.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/support/files.h"

namespace switchyard::testing {

struct Hostile {
  std::string name;
  std::string reason;  // part of the reason with which it is turned down; "": it is accepted, and does no harm
  // Makes the file, and returns its path.
  std::function<std::string(const TemporaryFolder&)> make;
};

// Those that use up their time.
std::vector<Hostile> hanging_files();
// All others.
std::vector<Hostile> hostile_files();

}  // namespace switchyard::testing
