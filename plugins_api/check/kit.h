// SPDX-License-Identifier: Apache-2.0
// The op test kit: holds every kernel of a plugin to the table of cases.
//
//   Kit kit(request);                          loads the plugin, and the reference backend as its oracle
//   for (const Check& c : kit.claims().checks) kernel x case x activation types
//     kit.run(c)                               "" or one line: kernel, case, what differs where and by how much, seed
//
// A kernel is run on steps that are smaller than its bucket, with NaNs wherever it may not read, and compared with the
// oracle row by row. Then its flags are taken at their word: a second submission must give the same bits
// (DETERMINISTIC); every sequence alone must give the bits that it gave in company, and a prompt in chunks of 64 the
// bits of the whole, and rows that were pending those of rows that were not (BATCH_INVARIANT); output 0 may lie on
// input 0 (IN_PLACE). A sequence alone is submitted to the list of the whole step: every kernel must bear other steps
// than it was recorded with (CAPTURE_SAFE).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plugins_api/check/cases.h"
#include "plugins_api/check/compare.h"
#include "plugins_api/check/execution.h"

namespace switchyard::check {

// The exit code on the wrong machine: nothing was found wrong, and not all could be checked.
inline constexpr int kExitWrongMachine = 77;

struct Request {
  std::string plugin;             // path of the .so
  std::vector<Setting> settings;  // its options
  std::string reference;          // path of the oracle's .so; "": the naive implementations, for reference itself
  bool slow = false;              // the slow cases too
  uint64_t seed = 0;
  uint64_t one_in = 1;  // of the suite ops one case in so many
};

struct Check {
  const swy_kernel* kernel = nullptr;
  const CaseSpec* spec = nullptr;
  Types types;
  std::string name() const;  // "linear.plain/linear.i4.g32.rows65", with the types when not fp32
};

// Which cases of the table a plugin's kernels accept, and which they refuse.
struct Claims {
  std::vector<Check> checks;
  struct Refused {
    Check check;
    std::string why;
    bool by_machine = false;  // SWY_REASON_ARCH, or the plugin's settings: others would take it
  };
  std::vector<Refused> refused;
};

// Of every kernel one check for each range of bucket rows, chosen by the seed. Kernels that take none are left out.
std::vector<Check> sample_of(const Claims& claims, uint64_t seed,
                             const std::vector<std::pair<uint32_t, uint32_t>>& rows);

// The type to which the kernel's products round activations with these types.
swy_dtype activations_of(const swy_kernel& k, const Types& types);

// Not thread-safe.
class Kit {
 public:
  // On failure the kit is empty, and error() says why in one line.
  explicit Kit(const Request& request);
  const std::string& error() const { return error_; }
  // Whether it is empty because this machine's processor or device lacks something that the settings need.
  bool wrong_machine() const { return wrong_machine_; }

  const Plugin& plugin() const { return *plugin_; }
  const Plugin* oracle() const { return reference_.get(); }  // NULL: the naive implementations
  const Request& request() const { return request_; }
  // By kernels, in the plugin's order, and cases.
  Claims claims() const;
  // "" or the first fault. *errors gets the largest relative errors seen.
  std::string run(const Check& check, Errors* errors = nullptr);

  // The case of a check, with contents of the seed; `variant` gives others.
  Case build(const Check& check, uint64_t variant = 0) const;
  // The expected results, computed again. Throws Failure.
  Outcome expected(const Check& check, const Case& c) const;
  // "backend B, operation O, ...: problem [--seed N]".
  std::string line(const Check& check, const std::string& problem) const;

 private:
  const Outcome& known(const Check& check, const Case& c);
  Outcome drawn_from_own_logits(const Check& check, const Case& c) const;
  std::string verify(const Check& check, Errors* errors);

  Request request_;
  std::string error_;
  bool wrong_machine_ = false;
  std::unique_ptr<Plugin> plugin_, reference_;
  std::vector<CaseSpec> random_cases_;
  std::map<std::string, Outcome> expected_;  // by case and input type
};

}  // namespace switchyard::check
