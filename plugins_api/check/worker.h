// SPDX-License-Identifier: Apache-2.0
// The process that runs the plugin. It reports every check to the judge before and after, with one line of JSON each,
// on a pipe that the plugin does not know of:
//
//   {"plugin": {...}}                            its description; from a worker that was started without a suite
//   {"closed": "why", "wrong_machine": true}     the plugin cannot be opened
//   {"refused": "name", "why": ..., "facts": {}} before any check: a feature that the plugin does not claim
//   {"tasks": n}
//   {"begin": i, "name": ..., "facts": {}}, then {"end": i, "verdict": "passed", "why": ""}
//   {"errors": {"kernel": [worst, mean]}}
//   {"done": true}                               everything is closed again
#pragma once

#include "plugins_api/check/options.h"

namespace switchyard::check {

// Runs the tasks that the options name. Returns the exit code.
int work(const Options& options);

}  // namespace switchyard::check
