// SPDX-License-Identifier: Apache-2.0
// The suites that the files of suites/ define.
#pragma once

#include "plugins_api/check/suite.h"

namespace switchyard::check {

extern const Suite kNegotiationSuite;
extern const Suite kAbiSuite;
extern const Suite kDeviceSuite;
extern const Suite kOpsSuite;
extern const Suite kReplaySuite;
extern const Suite kNumbersSuite;
extern const Suite kRacesSuite;
extern const Suite kCopiesSuite;
extern const Suite kTimelinesSuite;
extern const Suite kGuardsSuite;
extern const Suite kSizesSuite;
extern const Suite kThreadsSuite;
extern const Suite kErrorsSuite;
extern const Suite kStatesSuite;
extern const Suite kMemorySuite;
extern const Suite kSamplingSuite;
extern const Suite kRangeSuite;
extern const Suite kProfileSuite;
extern const Suite kAheadSuite;

}  // namespace switchyard::check
