// SPDX-License-Identifier: Apache-2.0
#include "cli/version.h"

#include "switchyard_commit.h"

namespace switchyard::cli {

const char* commit() { return SWITCHYARD_COMMIT; }

std::string version_text() {
  const std::string version = "switchyard " SWITCHYARD_VERSION, at = commit();
  return at.empty() ? version : version + " (commit " + at + ")";
}

}  // namespace switchyard::cli
