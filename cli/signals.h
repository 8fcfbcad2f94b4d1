// SPDX-License-Identifier: Apache-2.0
// What signals do to a command.
#pragma once

#include <atomic>

namespace switchyard::cli {

// Set by Ctrl-C, and when the program is told to end (SIGTERM, SIGHUP). A second signal before the command has ended
// ends the program at once. Whoever clears it has dealt with the signal.
extern std::atomic<bool> interrupted;

// Whether the signal was one that asks the program to end, rather than Ctrl-C.
bool told_to_end();

// Installs the handlers. Signals that the program was started to ignore stay ignored (nohup). Every other signal that
// ends the program first deletes what it was writing.
void catch_signals();

// For a command that ends well because it was told to: the program's exit code is then its own.
void end_as_told();

// 128 + the signal that interrupted, as a shell reports it; `code` where none did.
int exit_code_after_signals(int code);

}  // namespace switchyard::cli
