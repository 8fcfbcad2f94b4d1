// SPDX-License-Identifier: Apache-2.0
// The clock that every measurement reads.
#pragma once

#include "core/base/os.h"

namespace switchyard::bench {

// Seconds since some moment; only differences mean something. Any thread.
inline double now() { return static_cast<double>(Os::real().now_ns()) / 1e9; }

}  // namespace switchyard::bench
