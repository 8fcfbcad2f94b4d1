// What the files of suites/ define.
#pragma once

#include "plugins_api/check/suite.h"

namespace switchyard::check {

extern const Suite kNegotiationSuite;
extern const Suite kAbiSuite;
extern const Suite kDeviceSuite;
extern const Suite kOpsSuite;

}  // namespace switchyard::check
