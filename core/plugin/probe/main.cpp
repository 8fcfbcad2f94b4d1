// SPDX-License-Identifier: Apache-2.0
// switchyard-plugin-probe SECONDS FILE: tries a plugin and reports whether it is fit (protocol.h).
//
// This process never runs the plugin's code; a child of it does. It limits the child's time, adopts the processes that
// the child leaves behind, kills all of them, and only then answers.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/base/os.h"
#include "core/plugin/probe/inspect.h"
#include "core/plugin/probe/protocol.h"

namespace switchyard {
namespace {

// The child's lines to its parent begin with one of these; the text follows.
constexpr char kStage = 's', kFit = 'f', kUnfit = 'u';
constexpr int kAnswers = 3;                    // the descriptor for them
constexpr int kMute = 113;                     // the child's exit code when that descriptor is gone
constexpr size_t kKept = 4096;                 // of the child's output
constexpr uint64_t kPatience = 2'000'000'000;  // ns, for killed processes to go

// ---- the child

pid_t tried = 0;  // the child itself

void answer(char kind, const std::string& text) {
  const bool copy = ::getpid() != tried;  // of the child, which the plugin made by a fork that it returned from
  std::string line =
      copy ? kUnfit + ("leaves a copy of its process running (fork) before the step " + text) : kind + text;
  std::replace(line.begin(), line.end(), '\n', ' ');
  line += '\n';
  if (::write(kAnswers, line.data(), line.size()) != static_cast<ssize_t>(line.size())) ::_exit(kMute);
  if (copy) ::_exit(0);
}

void limit(int resource, rlim_t most) {
  rlimit r{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &r) != 0) return;
  r.rlim_cur = std::min({r.rlim_cur, r.rlim_max, most});
  ::setrlimit(static_cast<__rlimit_resource>(resource), &r);
}

// Memory that is written to, beyond what this program (and a sanitizer in it) has: a quarter of the machine's, and at
// least 4 GiB. Drivers reserve far more address space, which does not count.
void limit_memory() {
  const auto pages = static_cast<rlim_t>(std::max(0l, ::sysconf(_SC_PHYS_PAGES)));
  const auto page = static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
  rlim_t now = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "re")) {
    unsigned long long data = 0;
    if (std::fscanf(file, "%*u %*u %*u %*u %*u %llu", &data) == 1) now = data * page;
    std::fclose(file);
  }
  limit(RLIMIT_DATA, now + std::max<rlim_t>(rlim_t{4} << 30, pages * page / 4));
}

[[noreturn]] void try_plugin(const std::string& path, int out, int err, int answers) {
  tried = ::getpid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::setpgid(0, 0);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  // The pipes first move out of the way of the descriptors that they are copied to.
  answers = ::fcntl(answers, F_DUPFD_CLOEXEC, kAnswers + 1);
  out = ::fcntl(out, F_DUPFD_CLOEXEC, kAnswers + 1);
  err = ::fcntl(err, F_DUPFD_CLOEXEC, kAnswers + 1);
  ::dup2(out, 1);
  ::dup2(err, 2);
  ::dup2(answers, kAnswers);
  ::fcntl(kAnswers, F_SETFD, FD_CLOEXEC);
  ::close_range(kAnswers + 1, ~0u, 0);
  limit(RLIMIT_CORE, 1);  // 1 rather than 0: no helper of the system is called for a core either
  limit(RLIMIT_STACK, rlim_t{64} << 20);
  limit_memory();
  spdlog::set_level(spdlog::level::off);
  const Status status = inspect_plugin(path, [](const char* stage) { answer(kStage, stage); });
  if (!status.ok()) {
    answer(kUnfit, status.message());
    ::_exit(0);
  }
  std::fflush(nullptr);
  answer(kStage, "at exit");
  answer(kFit, "");
  std::exit(0);  // exit handlers of the plugin are part of the trial
}

// ---- the parent

// Output of the child through a pipe: its first bytes, or its last.
struct Pipe {
  int ends[2] = {-1, -1};
  bool keep_last = false;
  std::string text;

  bool open() { return ::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0; }
  // Reads what is available; closes the pipe at its end.
  void take() {
    char buffer[4096];
    for (int i = 0; i < 64 && ends[0] >= 0; ++i) {  // a child that never stops writing does not keep us here
      const ssize_t n = ::read(ends[0], buffer, sizeof buffer);
      if (n < 0) return;
      if (n == 0) ::close(std::exchange(ends[0], -1));
      text.append(buffer, static_cast<size_t>(n));
      if (text.size() > kKept) text = keep_last ? text.substr(text.size() - kKept) : text.substr(0, kKept);
    }
  }
};

// The last line with something on it.
std::string last_line(std::string text) {
  const size_t end = text.find_last_not_of(" \n\r");
  if (end == std::string::npos) return "";
  text.resize(end + 1);
  return text.substr(text.find_last_of('\n') + 1);
}

class Trial {
 public:
  // Returns why the plugin is unfit; "" when it is fit.
  std::string run(const std::string& path, double seconds) {
    sigset_t chld;
    ::sigemptyset(&chld);
    ::sigaddset(&chld, SIGCHLD);
    ::sigprocmask(SIG_BLOCK, &chld, nullptr);
    signals_ = ::signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals_ < 0 || !answers_.open() || !out_.open() || !err_.open()) return std::strerror(errno);
    answers_.keep_last = err_.keep_last = true;
    // A write that cannot be completed blocks the child, as it would elsewhere.
    for (const Pipe* p : {&answers_, &out_, &err_}) ::fcntl(p->ends[1], F_SETFL, 0);
    child_ = ::fork();
    if (child_ < 0) return fmt::format("cannot be tried: {}", std::strerror(errno));
    if (child_ == 0) try_plugin(path, out_.ends[1], err_.ends[1], answers_.ends[1]);
    for (Pipe* p : {&answers_, &out_, &err_}) ::close(p->ends[1]);
    wait(seconds);
    const size_t left = end_all();
    for (Pipe* p : {&answers_, &out_, &err_}) p->take();
    return reason(seconds, left);
  }

 private:
  void wait(double seconds) {
    const uint64_t end = Os::real().now_ns() + static_cast<uint64_t>(seconds * 1e9);
    for (uint64_t now = 0; (now = Os::real().now_ns()) < end;) {
      pollfd waited[] = {{signals_, POLLIN, 0},
                         {answers_.ends[0], POLLIN, 0},
                         {out_.ends[0], POLLIN, 0},
                         {err_.ends[0], POLLIN, 0}};  // of a closed one, poll looks away
      ::poll(waited, std::size(waited), static_cast<int>((end - now) / 1'000'000 + 1));
      for (Pipe* p : {&answers_, &out_, &err_}) p->take();
      signalfd_siginfo info;
      while (::read(signals_, &info, sizeof info) > 0) {
      }
      if (::waitpid(child_, &status_, WNOHANG | WUNTRACED) == child_) {
        ended_ = true;
        return;
      }
    }
  }

  // Kills the child and the processes that it left behind, which were handed to this process when their parent died.
  // Returns how many were still running.
  size_t end_all() {
    if (!WIFEXITED(status_) && !WIFSIGNALED(status_)) ended_ = false;  // merely stopped
    if (!ended_) {
      ::kill(-child_, SIGKILL);
      ::kill(child_, SIGKILL);
      while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
    pid_t reaped = 0;
    while ((reaped = ::waitpid(-1, nullptr, WNOHANG)) > 0) {
    }
    const size_t left = reaped < 0 ? 0 : std::max<size_t>(1, children().size());
    if (left > 0) ::kill(-child_, SIGKILL);
    const uint64_t end = Os::real().now_ns() + kPatience;
    while ((reaped = ::waitpid(-1, nullptr, WNOHANG)) >= 0 && Os::real().now_ns() < end) {
      for (const pid_t pid : children()) ::kill(pid, SIGKILL);
      if (reaped == 0) ::usleep(500);
    }
    return left;
  }

  static std::vector<pid_t> children() {
    std::ifstream file(fmt::format("/proc/self/task/{}/children", ::getpid()));
    return {std::istream_iterator<pid_t>(file), {}};
  }

  std::string reason(double seconds, size_t left) const {
    std::string stage, unfit;
    bool fit = false;
    std::istringstream lines(answers_.text);
    for (std::string line; std::getline(lines, line);) {
      if (line.empty()) continue;
      if (line[0] == kStage) stage = line.substr(1);
      if (line[0] == kUnfit) unfit = line.substr(1);
      if (line[0] == kFit) fit = true;
    }
    if (!unfit.empty()) return unfit;
    const std::string said = last_line(err_.text), words = said.empty() ? "" : "; it said: " + said;
    if (WIFSTOPPED(status_)) {
      const int signal = WSTOPSIG(status_);
      return fmt::format("stops its process {}: signal {} ({})", stage, signal, ::strsignal(signal));
    }
    if (!ended_) return fmt::format("{}{}: no answer within {} s{}", kProbeHangs, stage, seconds, words);
    if (WIFSIGNALED(status_)) {
      const int signal = WTERMSIG(status_);
      return fmt::format("crashes {}: signal {} ({}){}", stage, signal, ::strsignal(signal), words);
    }
    const int code = WEXITSTATUS(status_);
    if (!fit && code == kMute) return "closes a file descriptor that it did not open";
    if (!fit || code != 0) return fmt::format("exits with code {} {}{}", code, stage, words);
    if (!out_.text.empty()) return fmt::format("writes to standard output: {}", last_line(out_.text));
    if (left > 0) return fmt::format("leaves processes running that it started ({})", left);
    return "";
  }

  pid_t child_ = -1;
  int signals_ = -1, status_ = 0;
  bool ended_ = false;
  Pipe answers_, out_, err_;
};

}  // namespace

int run_probe(int argc, char** argv) {
  char* end = nullptr;
  const double seconds = argc == 3 ? std::strtod(argv[1], &end) : 0;
  if (argc != 3 || *end != '\0' || !(seconds > 0 && seconds < 1e6)) {
    fmt::print(stderr,
               "usage: switchyard-plugin-probe SECONDS FILE\nTries a backend; Switchyard starts this itself.\n");
    return 2;
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // end with the host, since the answer has no other reader
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  fmt::print("{}\n", kProbeGreeting);
  std::fflush(stdout);
  const std::string reason = Trial().run(argv[2], seconds);
  fmt::print("{}\n", reason.empty() ? kProbeFit : reason.substr(0, kProbeLine / 2));
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace switchyard

int main(int argc, char** argv) { return switchyard::run_probe(argc, argv); }
