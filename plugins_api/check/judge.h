// SPDX-License-Identifier: Apache-2.0
// The judge: starts a process for each suite, listens, and starts another where one crashed or hung.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "plugins_api/check/options.h"

namespace switchyard::check {

struct Result {
  std::string suite, name;
  std::string verdict;  // "passed", "failed", "unsupported", "crashed", "hung"; "listed" with --list
  std::string why;      // one line
  double seconds = 0;
  std::map<std::string, std::string> facts;
};

struct Report {
  nlohmann::json plugin;                                    // as worker.h describes it; null when it does not open
  std::string closed;                                       // why it does not open
  bool wrong_machine = false;                               // because this machine lacks something that it needs
  std::vector<Result> results;                              // in the order of the suites
  std::map<std::string, double> seconds;                    // by suite
  std::map<std::string, std::pair<double, double>> errors;  // by kernel: worst row, mean
};

// Calls `heard` for each result that is not merely listed, as it comes in.
Report judge(const Options& options, void (*heard)(const Result& result));

// 0, 1, 2 or 77, as --help says.
int exit_code(const Report& report);

}  // namespace switchyard::check
