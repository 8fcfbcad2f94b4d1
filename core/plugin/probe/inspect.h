// SPDX-License-Identifier: Apache-2.0
// Asks a plugin that may be unfit everything that the host asks before it runs a kernel.
#pragma once

#include <functional>
#include <string>

#include "core/base/status.h"

namespace switchyard {

// Opens the plugin, negotiates, and reads all of its tables with every rule checked (validate.h); opens its first
// device and lists its kernels. Before each step that runs the plugin's code, `stage` gets its name, such as "in
// negotiate". A device that cannot be opened is not an error here: the host gets the reason itself.
//
// Runs foreign code, which may do anything: only for a separate process.
Status inspect_plugin(const std::string& path, const std::function<void(const char*)>& stage);

}  // namespace switchyard
