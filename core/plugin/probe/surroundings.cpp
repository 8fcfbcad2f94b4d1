// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/probe/surroundings.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstdlib>
#include <cstring>
#include "core/base/float_controls.h"

namespace switchyard {
namespace {

// The numbers that a folder of /proc names.
std::set<int> numbers(const char* folder) {
  std::set<int> out;
  DIR* dir = ::opendir(folder);
  if (dir == nullptr) return out;
  while (const dirent* entry = ::readdir(dir)) {
    const int n = std::atoi(entry->d_name);
    if (entry->d_name[0] != '.' && n != ::dirfd(dir)) out.insert(n);
  }
  ::closedir(dir);
  return out;
}

bool timer_runs() {
  for (const auto which : {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF}) {
    itimerval timer{};
    ::getitimer(which, &timer);
    if (timer.it_value.tv_sec != 0 || timer.it_value.tv_usec != 0) return true;
  }
  return false;
}

bool same(const struct sigaction& a, const struct sigaction& b) {
  const bool info = (a.sa_flags & SA_SIGINFO) != 0;
  if (info != ((b.sa_flags & SA_SIGINFO) != 0)) return false;
  return info ? a.sa_sigaction == b.sa_sigaction : a.sa_handler == b.sa_handler;
}

}  // namespace

// One that was waited for has left its use of memory behind.
bool has_started_processes() {
  siginfo_t info{};
  if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0) return true;
  rusage children{};
  return ::getrusage(RUSAGE_CHILDREN, &children) == 0 && (children.ru_minflt != 0 || children.ru_maxrss != 0);
}

Surroundings Surroundings::now() {
  Surroundings s;
  s.files = numbers("/proc/self/fd");
  char folder[4096];
  if (::getcwd(folder, sizeof folder) != nullptr) s.folder = folder;
  s.locale = std::setlocale(LC_ALL, nullptr);
  s.mask = ::umask(0);
  ::umask(s.mask);
  s.rounding = float_controls();
  s.threads = numbers("/proc/self/task").size();
  s.alarm = timer_runs();
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, nullptr, &s.actions[static_cast<size_t>(signal)]);
  return s;
}

std::string Surroundings::broken_by(const Surroundings& later) const {
  if (!std::includes(later.files.begin(), later.files.end(), files.begin(), files.end())) {
    return "closes a file descriptor that it did not open";
  }
  for (int signal = 1; signal < NSIG; ++signal) {
    const auto i = static_cast<size_t>(signal);
    if (!same(actions[i], later.actions[i])) {
      return fmt::format("takes over signal {} ({})", signal, ::strsignal(signal));
    }
  }
  if (later.alarm) return "starts a timer of the process (alarm)";
  if (later.folder != folder) return "changes the working directory";
  if (later.locale != locale) return "changes the locale";
  if (later.mask != mask) return "changes the mask of new files' rights (umask)";
  if (later.rounding != rounding) {
    return "changes how floating point rounds or flushes to zero (was it linked with -ffast-math?)";
  }
  return "";
}

}  // namespace switchyard
