// SPDX-License-Identifier: Apache-2.0
// The standard output of switchyard-plugin-probe: the greeting, then one line: kProbeFit, or why the file is unfit.
#pragma once

#include <cstddef>

namespace switchyard {

inline constexpr char kProbeGreeting[] = "switchyard-plugin-probe 1";  // raised with any change of the two lines
inline constexpr char kProbeFit[] = "fit";
inline constexpr char kProbeHangs[] = "hangs ";  // what begins the reason of one that used up its time
inline constexpr size_t kProbeLine = 4096;       // the longest answer

}  // namespace switchyard
