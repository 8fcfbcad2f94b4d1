// Plugin files that proved fit, remembered from run to run, so that an unchanged file is tried once.
//
// A file is known by its path, device, inode, size, and times of modification and change; by the probe that tried it;
// and by the boot of the machine, for what a plugin depends on beyond its own file. Any difference, and any doubt,
// means that it is tried again.
#pragma once

#include <string>

#include "core/base/os.h"

namespace switchyard {

// $XDG_CACHE_HOME/switchyard/plugins, or the same under ~/.cache; "" when there is no absolute path to it.
std::string known_good_folder();

// What `file` and the probe are at this moment; "" when that cannot be told.
std::string plugin_identity(const std::string& file, const std::string& probe);

bool is_known_good(Os& os, const std::string& folder, const std::string& file, const std::string& identity);
// A failure is none: the file is tried again next time.
void remember_good(Os& os, const std::string& folder, const std::string& file, const std::string& identity);

}  // namespace switchyard
