// Everything that the host asks of a plugin before it runs anything on it, asked of one that may be unfit.
#pragma once

#include <functional>
#include <string>

#include "core/base/status.h"

namespace switchyard {

// Opens the plugin, negotiates, and reads all of its tables with every rule checked (validate.h); opens its first
// device and lists its kernels. `stage` is told where it is before each step that runs the plugin's code: "in
// negotiate". A device that cannot be opened is none of the errors: the host hears the reason itself.
//
// Runs foreign code, which may do anything: for a process of its own.
Status inspect_plugin(const std::string& path, const std::function<void(const char*)>& stage);

}  // namespace switchyard
