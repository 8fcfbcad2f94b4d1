// SPDX-License-Identifier: Apache-2.0
// Runs a benchmark: starts the workers, lets them take turns, and puts together the report.
#pragma once

#include "bench/report.h"
#include "cli/bench_options.h"

namespace switchyard::cli {

// A backend's failure costs only its own rows. `interrupted` ends the run with the measurements so far. Errors, before
// anything is measured: usage, for a backend that does not exist or an option that it does not have; those of the
// model.
Result<bench::Report> run_bench(const BenchOptions& options, const BenchPlan& plan);

}  // namespace switchyard::cli
