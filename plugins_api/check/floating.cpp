// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/floating.h"

#include <atomic>
#include <cfenv>
#include <cfloat>

namespace switchyard::check {
namespace {

std::atomic<const char*> noted{nullptr};

// volatile: these must be computed now.
bool flushes_subnormals() {
  volatile float subnormal = 1e-40f, smallest = FLT_MIN;
  volatile const float operand = subnormal + 0.0f, result = smallest * 0.5f;
  return operand == 0 || result == 0;
}

const char* unusual() {
  switch (std::fegetround()) {
    case FE_TONEAREST:
      break;
    case FE_UPWARD:
      return "left the rounding mode at upward";
    case FE_DOWNWARD:
      return "left the rounding mode at downward";
    default:
      return "left the rounding mode at toward zero";
  }
  if (flushes_subnormals()) return "left subnormal numbers flushed to zero";
#if defined(__GLIBC__)
  if (fegetexcept() != 0) return "left floating-point exceptions switched on";
#endif
  return nullptr;
}

}  // namespace

void note_floating() {
  const char* what = unusual();
  if (what == nullptr) return;
  std::fesetenv(FE_DFL_ENV);
  noted = what;
}

std::string floating_misuse() {
  note_floating();
  const char* what = noted.exchange(nullptr);
  return what == nullptr ? "" : what;
}

}  // namespace switchyard::check
