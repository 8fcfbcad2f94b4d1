// SPDX-License-Identifier: Apache-2.0
// Plugin files that passed their trial, remembered from run to run, so that an unchanged file is tried once.
//
// A file is identified by its path, device, inode, size, and times of modification and change; by the probe that tried
// it; and by the boot of the machine, since a plugin may depend on drivers. Any difference means that it is tried
// again.
#pragma once

#include <string>

#include "core/base/os.h"

namespace switchyard {

// $XDG_CACHE_HOME/switchyard/plugins, or the same under ~/.cache; "" when there is no absolute path to it.
std::string known_good_folder();

// The identity of `file` and the probe at this moment; "" if it cannot be determined.
std::string plugin_identity(const std::string& file, const std::string& probe);

bool is_known_good(Os& os, const std::string& folder, const std::string& file, const std::string& identity);
// A failure is none: the file is tried again next time.
void remember_good(Os& os, const std::string& folder, const std::string& file, const std::string& identity);

}  // namespace switchyard
