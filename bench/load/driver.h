// SPDX-License-Identifier: Apache-2.0
// Puts a load on a server over HTTP, and measures what comes back.
#pragma once

#include <functional>

#include "bench/load/load.h"

namespace switchyard::bench {

// Asks the server for its model's name if the load has none, and for the tokens of two short texts, and then runs the
// load on the calling thread. `keep_going` is asked ten times a second; when it returns false, the load ends with the
// requests that have ended. Errors: usage, for a load without an end or an address that does not resolve; io, if the
// server cannot be reached or refuses the first requests.
Result<LoadResult> run_load(Load load, const std::function<bool()>& keep_going);

}  // namespace switchyard::bench
