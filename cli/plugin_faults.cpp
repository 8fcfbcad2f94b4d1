// SPDX-License-Identifier: Apache-2.0
#include "cli/plugin_faults.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "core/base/call_site.h"
#include "core/base/output_file.h"

namespace switchyard::cli {
namespace {

constexpr char kAdvice[] = "; use another backend (--backend), and test this one with switchyard-plugin-check";

std::atomic<bool> main_is_done = false;
std::atomic<pid_t> own_pid = 0;  // not what a driver forks, which may exit as it likes
std::terminate_handler other_terminate = nullptr;

void write_line(const char* text) { (void)!::write(STDERR_FILENO, text, std::strlen(text)); }

bool is_the_program() { return ::getpid() == own_pid.load(); }

[[noreturn]] void on_terminate() {
  char did[256] = "threw an exception";
  try {
    if (std::current_exception() != nullptr) std::rethrow_exception(std::current_exception());
  } catch (const std::exception& e) {
    std::snprintf(did, sizeof did, "threw an exception, \"%s\"", e.what());
  } catch (...) {
  }
  if (say_of_this_call(did, kAdvice)) {
    forget_this_call();
    std::abort();
  }
  other_terminate();
  std::abort();
}

void on_exit() {
  if (main_is_done.load() || !is_the_program()) return;
  if (!say_of_this_call("ended the program by calling exit", kAdvice)) {
    write_line(
        "switchyard: a thread of a backend ended the program by calling exit; --backend selects another backend\n");
  }
  forget_this_call();
  std::fflush(stdout);
  remove_unfinished_files();
  ::_exit(1);
}

const char* name_of(int signal) {
  switch (signal) {
    case SIGSEGV:
      return "crashed with SIGSEGV, an access to memory that is not there";
    case SIGBUS:
      return "crashed with SIGBUS, an access to memory that is not there";
    case SIGFPE:
      return "crashed with SIGFPE, a division by zero or the like";
    case SIGILL:
      return "crashed with SIGILL, an instruction that this processor does not have";
    case SIGABRT:
      return "aborted the program (SIGABRT)";
    case SIGSYS:
      return "crashed with SIGSYS, a system call that is not allowed";
    default:
      return nullptr;
  }
}

}  // namespace

void tell_of_exceptions() { other_terminate = std::set_terminate(on_terminate); }

void tell_of_exits() {
  own_pid.store(::getpid());
  std::atexit(on_exit);
  std::at_quick_exit(on_exit);
}

void main_returns() { main_is_done.store(true); }

void say_of_crash(int signal) {
  if (const char* did = name_of(signal); did != nullptr && say_of_this_call(did, kAdvice)) forget_this_call();
}

}  // namespace switchyard::cli

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// The program's own, which backends find before the system's (CMakeLists.txt exports them): no handler sees _exit.
extern "C" {
[[noreturn, gnu::visibility("default"), gnu::used]] void _exit(int code) {
  using namespace switchyard;
  if (cli::is_the_program() && say_of_this_call("ended the program by calling _exit", cli::kAdvice)) code = 1;
  for (;;) ::syscall(SYS_exit_group, code);
}
[[noreturn, gnu::visibility("default"), gnu::used]] void _Exit(int code) noexcept { ::_exit(code); }
}
#endif
