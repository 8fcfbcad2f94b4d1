// SPDX-License-Identifier: Apache-2.0
// C++ SDK: reporting errors through the ABI.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <exception>
#include <new>

#include "switchyard/plugin.h"

// Hidden, so that two plugins with this code share none of it.
namespace swy __attribute__((visibility("hidden"))) {

  // Writes a line into the caller's buffer and returns `status`.
  [[gnu::format(printf, 4, 5)]] inline swy_status fail(swy_error * error, swy_status status, swy_reason reason,
                                                       const char* format, ...) {
    if (error == nullptr) return status;
    error->reason = reason;
    if (error->message == nullptr || error->capacity == 0) return status;
    va_list args;
    va_start(args, format);
    std::vsnprintf(error->message, error->capacity, format, args);
    va_end(args);
    return status;
  }

  // Runs `body` and turns exceptions into a status: no exception crosses the boundary.
  template <class Body>
  swy_status guard(swy_error * error, Body && body) noexcept {
    try {
      return body();
    } catch (const std::bad_alloc&) {
      return fail(error, SWY_OUT_OF_HOST_MEMORY, SWY_REASON_NONE, "out of host memory");
    } catch (const std::exception& e) {
      return fail(error, SWY_INTERNAL, SWY_REASON_NONE, "%s", e.what());
    } catch (...) {
      return fail(error, SWY_INTERNAL, SWY_REASON_NONE, "an unknown exception");
    }
  }

}  // namespace )
