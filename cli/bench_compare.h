// SPDX-License-Identifier: Apache-2.0
// `switchyard bench compare`.
#pragma once

#include <CLI/CLI.hpp>

namespace switchyard::cli {

void add_bench_compare(CLI::App& bench, int& exit_code);

}  // namespace switchyard::cli
