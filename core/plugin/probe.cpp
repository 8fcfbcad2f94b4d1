// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/probe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "core/plugin/known_good.h"
#include "core/plugin/probe/protocol.h"

namespace switchyard {
namespace {

constexpr double kGrace = 5;  // beyond its own limit, for a probe to come to an end

// One running probe. Its process is waited for when this dies.
class Running {
 public:
  Running() = default;
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() {
    if (fd_ >= 0) ::close(fd_);
    if (pid_ <= 0) return;
    if (!ended_) ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {  // otherwise the host reaps children itself
    }
  }

  // Returns why it could not be started; "" when it was.
  std::string start(const ProbeOptions& options, const std::string& file) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return std::strerror(errno);
    fd_ = ends[0];
    std::string words[] = {options.program, fmt::format("{}", options.seconds), file};
    char* const argv[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
    posix_spawn_file_actions_t files;
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&files, ends[1], 1);
    ::posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    ::posix_spawn_file_actions_addclosefrom_np(&files, 3);
    posix_spawnattr_t attributes;
    ::posix_spawnattr_init(&attributes);
    sigset_t none, all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setsigdefault(&attributes, &all);
    ::posix_spawnattr_setpgroup(&attributes, 0);  // a Ctrl-C is the host's to answer
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    const int failed = ::posix_spawn(&pid_, argv[0], &files, &attributes, argv, environ);
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&files);
    ::close(ends[1]);
    if (failed == 0) return "";
    pid_ = 0;
    return std::strerror(failed);
  }

  bool open() const { return fd_ >= 0; }
  pollfd waited() const { return {fd_, POLLIN, 0}; }
  // After poll: takes what there is; at the end of it, closes.
  void take() {
    char buffer[1024];
    const ssize_t n = ::read(fd_, buffer, sizeof buffer);
    if (n > 0 && said_.size() < kProbeLine) said_.append(buffer, static_cast<size_t>(n));
    if (n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN))) return;
    ::close(std::exchange(fd_, -1));
    ended_ = true;
  }

  Verdict verdict(const std::string& program) const {
    const size_t end = said_.find('\n');
    if (end == std::string::npos || said_.compare(0, end, kProbeGreeting) != 0) {
      return {Verdict::Tried::no, fmt::format("{} does not run, or is of another version", program)};
    }
    std::string line = said_.substr(end + 1);
    if (line.empty() || line.back() != '\n') return {Verdict::Tried::now, "the trial process ended without a result"};
    line.pop_back();
    if (line == kProbeFit) return {Verdict::Tried::now, ""};
    return {Verdict::Tried::now, one_line(line)};
  }

 private:
  pid_t pid_ = 0;
  int fd_ = -1;
  bool ended_ = false;
  std::string said_;
};

void collect(Os& os, std::vector<Running>& all, double seconds) {
  const uint64_t end = os.now_ns() + static_cast<uint64_t>((seconds + kGrace) * 1e9);
  for (;;) {
    std::vector<pollfd> waited;
    std::vector<Running*> whose;
    for (Running& r : all) {
      if (!r.open()) continue;
      waited.push_back(r.waited());
      whose.push_back(&r);
    }
    const uint64_t now = os.now_ns();
    if (waited.empty() || now >= end) return;
    if (::poll(waited.data(), waited.size(), static_cast<int>((end - now) / 1'000'000 + 1)) < 0) continue;
    for (size_t i = 0; i < waited.size(); ++i) {
      if (waited[i].revents != 0) whose[i]->take();
    }
  }
}

}  // namespace

std::vector<Verdict> probe(Os& os, const ProbeOptions& options, const std::vector<std::string>& files) {
  std::vector<Verdict> verdicts(files.size());
  std::vector<std::string> identities(files.size());
  std::vector<Running> running(files.size());
  for (size_t i = 0; i < files.size(); ++i) {
    identities[i] =
        plugin_identity(files[i], options.program);  // taken before the trial: this is the identity that passes
    if (is_known_good(os, options.memory, files[i], identities[i])) {
      verdicts[i].tried = Verdict::Tried::earlier;
    } else if (const std::string failed = running[i].start(options, files[i]); !failed.empty()) {
      verdicts[i].reason = fmt::format("cannot start {}: {}", options.program, failed);
    } else {
      verdicts[i].tried = Verdict::Tried::now;
    }
  }
  collect(os, running, options.seconds);
  for (size_t i = 0; i < files.size(); ++i) {
    if (verdicts[i].tried != Verdict::Tried::now) continue;
    verdicts[i] = running[i].verdict(options.program);
    const bool fit = verdicts[i].tried == Verdict::Tried::now && verdicts[i].reason.empty();
    if (fit) remember_good(os, options.memory, files[i], identities[i]);
  }
  return verdicts;
}

std::string one_line(std::string text) {
  constexpr size_t kLongest = 400;
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "…";
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return text;
}

}  // namespace switchyard
