// SPDX-License-Identifier: Apache-2.0
// A suite: checks of one kind. Each file of suites/ defines one.
//
// A suite lists its checks as tasks, in an order that depends on the plugin, the options and the seed alone, so that a
// new process can go on where a crashed one stopped.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plugins_api/check/compare.h"
#include "plugins_api/check/options.h"

namespace switchyard::check {

class Kit;

struct Task {
  std::string name;                          // unique in the suite
  std::function<std::string()> run;          // "" or the first fault, in one line; may throw Failure or Unsupported
  std::map<std::string, std::string> facts;  // for reports: "op", "kernel", "encoding", ...
};

// A refusal of the plugin before anything could be checked.
struct Refusal {
  std::string name, why;
  std::map<std::string, std::string> facts;
};

// Data that the tasks of one process share.
class Session {
 public:
  explicit Session(const Options& options);
  ~Session();
  const Options& options() const { return options_; }
  // The plugin with device 0 open, and the oracle. Throws Failure or WrongMachine if that does not succeed.
  Kit& kit();
  std::map<std::string, Errors> errors;  // the largest seen, by kernel

 private:
  const Options& options_;
  std::unique_ptr<Kit> kit_;
};

struct Suite {
  const char* name;
  const char* what;                   // for --help
  bool needs_device = true;           // otherwise it also runs on machines without one
  bool own_process = false;           // each of its tasks gets a separate process
  std::vector<uint32_t> widths = {};  // of the host's team: once with each; empty: as the options say
  std::vector<Task> (*list)(Session& session, std::vector<Refusal>* refusals) = nullptr;
};

const std::vector<Suite>& all_suites();
// NULL if there is no such suite.
const Suite* suite_named(const std::string& name);

}  // namespace switchyard::check
