// SPDX-License-Identifier: Apache-2.0
// The command line of switchyard-plugin-check.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plugins_api/check/plugin.h"

namespace switchyard::check {

struct Options {
  std::string plugin;                // path of the .so
  std::string oracle;                // path of the reference backend's .so; "": the naive implementations
  std::vector<Setting> settings;     // the plugin's options
  std::vector<std::string> suites;   // in the order of all_suites()
  std::string filter;                // only checks whose "suite/name" contains this
  std::string json, claims;          // where to write: a path, "-" for standard output, "" for nowhere
  std::vector<std::string> support;  // write the page of these claims, and do nothing else
  uint64_t seed = 0;
  uint32_t threads = 2;  // of the host's team
  double limit_s = 60;   // for one check
  uint64_t one_in = 1;   // of the suite ops one case in so many
  bool slow = false, errors = false, list = false, help = false;

  // Of a process that runs the plugin: where it reports to, and which tasks of one suite it is to run.
  int worker_fd = -1;
  uint64_t first = 0, count = UINT64_MAX;
};

// "" or the fault of the arguments, in one line.
std::string parse(int argc, char** argv, Options* out);

// What --help prints.
std::string help();

// The arguments that give a worker these options.
std::vector<std::string> arguments(const Options& options);

}  // namespace switchyard::check
