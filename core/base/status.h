// SPDX-License-Identifier: Apache-2.0
// Core's side of Status and Result (switchyard/status.h): making an error, and handing one on.
#pragma once

#include <fmt/format.h>

#include "switchyard/status.h"

namespace switchyard {

template <class... Args>
Status error(Code code, fmt::format_string<Args...> format, Args&&... args) {
  return Status(code, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace switchyard

#define SWY_CONCAT_(a, b) a##b
#define SWY_CONCAT(a, b) SWY_CONCAT_(a, b)

// SWY_TRY(status_expression): returns the failure to the caller.
#define SWY_TRY(expr)                                       \
  do {                                                      \
    if (::switchyard::Status swy_s = (expr); !swy_s.ok()) { \
      return swy_s;                                         \
    }                                                       \
  } while (false)

// SWY_LET(auto x, result_expression): binds the value, or returns the failure to the caller.
#define SWY_LET(decl, expr) SWY_LET_(decl, expr, SWY_CONCAT(swy_r_, __LINE__))
#define SWY_LET_(decl, expr, tmp) \
  auto tmp = (expr);              \
  if (!tmp.ok()) {                \
    return tmp.status();          \
  }                               \
  decl = *std::move(tmp)
