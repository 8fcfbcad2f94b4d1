// A small report with every kind of row: what the tests of readers and renderers work on.
#pragma once

#include "bench/report.h"

namespace switchyard::bench {

Report sample_report();

}  // namespace switchyard::bench
