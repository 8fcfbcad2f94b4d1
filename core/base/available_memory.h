// SPDX-License-Identifier: Apache-2.0
// How much memory this process may still take, as Linux tells it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace switchyard {

// The content of a file; "" where there is none.
using ReadText = std::function<std::string(const std::string& path)>;

// Bytes: what the machine has available, and what each control group of this process (version 1 or 2, up to the root)
// leaves of its limit, whichever is least. Pages of files count as available, since they can be read again. 0: unknown.
uint64_t available_memory(const ReadText& read);

}  // namespace switchyard
