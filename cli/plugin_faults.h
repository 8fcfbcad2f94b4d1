// SPDX-License-Identifier: Apache-2.0
// Faults of backends that end the process, each told of in one line that names the backend, the entry and the kernel.
#pragma once

namespace switchyard::cli {

// From now on an exception that nothing catches is told of, if a backend threw it.
void tell_of_exceptions();

// From now on a backend that calls exit, quick_exit or _exit ends the program with that line and exit code 1. Again
// after backends were loaded, so that what they do at exit comes later.
void tell_of_exits();
// The program ends by itself: the above no longer counts.
void main_returns();

// Async-signal-safe: says that this thread crashed in a backend, if it did.
void say_of_crash(int signal);

}  // namespace switchyard::cli
