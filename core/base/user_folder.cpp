// SPDX-License-Identifier: Apache-2.0
#include "core/base/user_folder.h"

#include <cstdlib>

namespace switchyard {

std::string user_folder(const char* variable, const char* in_home) {
  const auto absolute = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr && *value == '/' ? value : "");
  };
  if (const std::string named = absolute(variable); !named.empty()) return named + "/switchyard";
  const std::string home = absolute("HOME");
  return home.empty() ? "" : home + "/" + in_home + "/switchyard";
}

std::string cache_folder() { return user_folder("XDG_CACHE_HOME", ".cache"); }

}  // namespace switchyard
