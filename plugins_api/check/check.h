// The op test kit: holds every kernel of a plugin to the table of cases.
//
//   Kit kit(request);                          loads the plugin, and the reference backend as its oracle
//   for (const Check& c : kit.checks())        kernel x case x activation types
//     kit.run(c)                               "" or one line: kernel, case, what differs where and by how much, seed
//
// A kernel is run on steps that are smaller than its bucket, with NaNs wherever it may not read, and compared with the
// oracle row by row. Then its flags are taken at their word: a second submission must give the same bits
// (DETERMINISTIC); every sequence alone must give the bits that it gave in company, and a prompt in chunks of 64 the
// bits of the whole (BATCH_INVARIANT); output 0 may lie on input 0 (IN_PLACE). A sequence alone is submitted to the
// list of the whole step: every kernel must bear other steps than it was recorded with (CAPTURE_SAFE).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plugins_api/check/cases.h"
#include "plugins_api/check/compare.h"
#include "plugins_api/check/execution.h"

namespace switchyard::check {

// The exit code of the programs that run a kit on the wrong machine: nothing was checked, and nothing found wrong.
inline constexpr int kExitWrongMachine = 77;

struct Request {
  std::string plugin;             // path of the .so
  std::vector<Setting> settings;  // its options
  std::string reference;          // path of the oracle's .so; "": the naive implementations, for reference itself
  bool slow = false;              // the slow cases too
  uint64_t seed = 0;
};

// SWITCHYARD_CHECK_SEED, or a new one.
uint64_t seed_of_environment();

struct Check {
  const swy_kernel* kernel = nullptr;
  const CaseSpec* spec = nullptr;
  Types types;
  std::string name() const;  // "linear.plain/linear.i4.g32.rows65", with the types when not fp32
};

// Not thread-safe.
class Kit {
 public:
  // On failure the kit is empty, and error() says why in one line.
  explicit Kit(const Request& request);
  const std::string& error() const { return error_; }
  // Whether it is empty because this machine's processor or device cannot do what the settings ask for.
  bool wrong_machine() const { return wrong_machine_; }

  const Plugin& plugin() const { return *plugin_; }
  // What the plugin's kernels take of the table. `refusals` gets a line for each kernel that takes nothing.
  std::vector<Check> checks(std::vector<std::string>* refusals = nullptr);
  // "" or what is wrong. *errors gets the largest relative errors seen.
  std::string run(const Check& check, Errors* errors = nullptr);

 private:
  Case build(const Check& check) const;
  const Outcome& expected(const Check& check, const Case& c);
  Outcome drawn_from_own_logits(const Check& check, const Case& c) const;
  std::string verify(const Check& check, Errors* errors);

  Request request_;
  std::string error_;
  bool wrong_machine_ = false;
  std::unique_ptr<Plugin> plugin_, reference_;
  std::map<std::string, Outcome> expected_;  // by case and input type
};

}  // namespace switchyard::check
