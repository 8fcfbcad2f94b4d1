// SPDX-License-Identifier: Apache-2.0
#include "cli/signals.h"

#include <unistd.h>

#include <csignal>

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
  remove_unfinished_files();
  ::_exit(128 + signal);
}

extern "C" void on_end(int signal) {
  remove_unfinished_files();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// Only where the default is to end: what was set up before (to ignore, by a sanitizer) stays.
void install(int signal, void (*handler)(int)) {
  struct sigaction old {};
  if (::sigaction(signal, nullptr, &old) == 0 && old.sa_handler == SIG_DFL) std::signal(signal, handler);
}

}  // namespace

void catch_signals() {
  report_lost_mappings();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) install(signal, on_interrupt);
  for (const int signal : {SIGQUIT, SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS, SIGPIPE, SIGALRM, SIGUSR1,
                           SIGUSR2, SIGXCPU, SIGVTALRM, SIGPROF, SIGPOLL, SIGPWR, SIGSTKFLT}) {
    install(signal, on_end);
  }
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond the limit is then an error like any other
}

int exit_code_after_signals(int code) { return interrupted.load() ? 128 + last_signal.load() : code; }

}  // namespace switchyard::cli
