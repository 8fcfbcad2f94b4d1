// SPDX-License-Identifier: Apache-2.0
// CancelCheck: how a caller stops long work that it has begun.
#pragma once

#include <functional>

#include "core/base/status.h"

namespace switchyard {

// True: stop. Asked often and possibly from several threads, so it must be cheap: an atomic flag, say. Empty: never.
using CancelCheck = std::function<bool()>;

// Errors: cancelled, "stopped while WHAT".
inline Status check_cancelled(const CancelCheck& cancelled, const char* what) {
  return cancelled && cancelled() ? error(Code::cancelled, "stopped while {}", what) : Status();
}

}  // namespace switchyard
