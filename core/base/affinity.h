// SPDX-License-Identifier: Apache-2.0
// Which processors threads run on.
#pragma once

#include <cstdint>
#include <vector>

namespace switchyard {

// The processors that this process was allowed to use when first asked: one per core, then their siblings
// (hyperthreads).
const std::vector<uint32_t>& allowed_processors();

// Keeps the calling thread, and threads that it starts later, on one processor. False where the system refuses.
bool pin_this_thread(uint32_t processor);
// Lets it run on all allowed ones again.
void unpin_this_thread();
// Where the calling thread runs now.
uint32_t this_processor();

}  // namespace switchyard
