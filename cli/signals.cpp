// SPDX-License-Identifier: Apache-2.0
#include "cli/signals.h"

#include <unistd.h>

#include <csignal>

#include "cli/plugin_faults.h"
#include "core/base/call_site.h"
#include "core/base/lost_mapping.h"
#include "core/base/output_file.h"

namespace switchyard::cli {

std::atomic<bool> interrupted = false;

namespace {

std::atomic<int> last_signal = 0;
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

extern "C" void on_interrupt(int signal) {
  last_signal = signal;
  if (!interrupted.exchange(true)) return;
  forget_this_call();  // it is the user who ends the program
  remove_unfinished_files();
  ::_exit(128 + signal);
}

extern "C" void on_end(int signal) {
  say_of_crash(signal);
  remove_unfinished_files();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// Only where the default is to end: what was set up before (to ignore, by a sanitizer) stays.
void install(int signal, void (*handler)(int)) {
  struct sigaction old {};
  if (::sigaction(signal, nullptr, &old) != 0 || old.sa_handler != SIG_DFL) return;
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART | SA_ONSTACK;  // a stack that overflowed has no room for a handler
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

void catch_signals() {
  tell_of_exceptions();
  report_lost_mappings();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) install(signal, on_interrupt);
  for (const int signal : {SIGQUIT, SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS, SIGPIPE, SIGALRM, SIGUSR1,
                           SIGUSR2, SIGXCPU, SIGVTALRM, SIGPROF, SIGPOLL, SIGPWR, SIGSTKFLT}) {
    install(signal, on_end);
  }
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond the limit is then an error like any other
}

bool told_to_end() { return last_signal.load() == SIGTERM || last_signal.load() == SIGHUP; }

void end_as_told() {
  last_signal.store(0);
  interrupted.store(false);
}

int exit_code_after_signals(int code) { return interrupted.load() || told_to_end() ? 128 + last_signal.load() : code; }

}  // namespace switchyard::cli
