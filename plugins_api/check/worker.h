// The process that runs the plugin. It reports every check to the judge before and after, a line of JSON each, on a
// pipe that the plugin does not know of:
//
//   {"plugin": {...}}                            what it is; from the worker that was asked for no suite
//   {"closed": "why", "wrong_machine": true}     it does not open
//   {"refused": "name", "why": ..., "facts": {}} before any check: what the plugin does not claim
//   {"tasks": n}
//   {"begin": i, "name": ..., "facts": {}}, then {"end": i, "verdict": "passed", "why": ""}
//   {"errors": {"kernel": [worst, mean]}}
//   {"done": true}                               all is closed again
#pragma once

#include "plugins_api/check/options.h"

namespace switchyard::check {

// Runs the tasks that the options name. Returns the exit code.
int work(const Options& options);

}  // namespace switchyard::check
