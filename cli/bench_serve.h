// SPDX-License-Identifier: Apache-2.0
// switchyard bench --serve URL: a load on a server that speaks the OpenAI protocol.
#pragma once

#include <string>

#include "bench/load/figures.h"
#include "core/base/status.h"

namespace CLI {
class App;
}

namespace switchyard::cli {

struct BenchServeFlags {
  std::string url;  // "": no load
  std::string prompt = "128", answer = "64", extra_file;
  bool completions = false;
  double first_token_ms = 0, per_token_ms = 0;  // limits; 0: none
  bench::Load load;
};

// The options of the load, in a group of their own.
void add_bench_serve(CLI::App& bench, BenchServeFlags& flags);

// Runs the load. `command`: `bench`, of whose other options none may be given but those for the report. Errors: usage;
// those of the load; io, if no request ended well.
Status bench_serve(const CLI::App& command, const BenchServeFlags& flags, double temperature, bool as_json,
                   const std::string& output);

}  // namespace switchyard::cli
