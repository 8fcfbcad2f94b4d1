// SPDX-License-Identifier: Apache-2.0
// A small report with every kind of row, for the tests of readers and renderers.
#pragma once

#include "bench/report.h"

namespace switchyard::bench {

Report sample_report();

}  // namespace switchyard::bench
