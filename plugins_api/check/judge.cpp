// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/judge.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include "plugins_api/check/kit.h"
#include "plugins_api/check/suite.h"

namespace switchyard::check {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

// Seconds to open a plugin, to list a suite, to close: not less, however short a check may take.
constexpr double kOpening = 60;

// Seconds to end a process that has closed everything: not less, for sanitizers have work left then.
constexpr double kEnding = 5;

// No line of a worker is longer: a plugin that writes on and on to the pipe is not listened to for ever.
constexpr size_t kLongestLine = size_t{4} << 20;

constexpr const char* kForged = "wrote to the judge's pipe";

double since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

// A process that works on one suite, and the lines that it sends.
class Process {
 public:
  explicit Process(Options options) {
    int ends[2];
    if (::pipe(ends) != 0) throw Failure("no pipe for a process: " + std::string(std::strerror(errno)));
    options.worker_fd = ends[1];
    std::vector<std::string> words = arguments(options);
    words.insert(words.begin(), "switchyard-plugin-check");
    std::vector<char*> argv;
    for (std::string& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(ends[0]);
      ::execv("/proc/self/exe", argv.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    fd_ = ends[0];
    if (pid_ < 0) throw Failure("no process for a suite: " + std::string(std::strerror(errno)));
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    ::close(fd_);
    if (!waited_) stop();
  }

  enum class Got { kLine, kEnd, kNothing };
  // The next line (cut off at kLongestLine), or that there will be none, or that none came in `seconds`.
  Got next(std::string* line, double seconds) {
    while (true) {
      if (const size_t end = buffer_.find('\n'); end != std::string::npos) {
        *line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        return Got::kLine;
      }
      if (buffer_.size() > kLongestLine) {
        *line = std::exchange(buffer_, "");
        return Got::kLine;
      }
      pollfd p{fd_, POLLIN, 0};
      const int ready = ::poll(&p, 1, static_cast<int>(seconds * 1000));
      if (ready < 0 && errno == EINTR) continue;
      if (ready <= 0) return Got::kNothing;
      char bytes[65536];
      const ssize_t n = ::read(fd_, bytes, sizeof bytes);
      if (n <= 0) return Got::kEnd;
      buffer_.append(bytes, static_cast<size_t>(n));
    }
  }

  void stop() {
    ::kill(pid_, SIGKILL);
    int status = 0;
    reap(&status, 0);
  }

  struct Ending {
    std::string verdict, how;  // "" and "" when it returned 0
  };
  // How it ended. It is killed when it has not after `seconds`.
  Ending wait(double seconds) {
    int status = 0;
    const auto begin = Clock::now();
    while (!reap(&status, WNOHANG)) {
      if (since(begin) > seconds) {
        stop();
        return {"hung", text("the process did not end within ", seconds, " s")};
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (WIFSIGNALED(status))
      return {"crashed", text("killed by signal ", WTERMSIG(status), " (", ::strsignal(WTERMSIG(status)), ")")};
    if (WEXITSTATUS(status) == 0) return {};
    return {"crashed", text("it ended the process with exit code ", WEXITSTATUS(status))};
  }

 private:
  // Whether the process has ended, and its status.
  bool reap(int* status, int flags) {
    pid_t ended = -1;
    do {
      ended = ::waitpid(pid_, status, flags);
    } while (ended < 0 && errno == EINTR);
    if (ended != 0) waited_ = true;
    return waited_;
  }

  pid_t pid_ = -1;
  int fd_ = -1;
  bool waited_ = false;
  std::string buffer_;
};

// How far it is, on a terminal, once it takes long.
class Progress {
 public:
  void show(const std::string& what, uint64_t done, uint64_t of) {
    if (!terminal_ || since(begin_) < 2 || since(shown_) < 0.1) return;
    shown_ = Clock::now();
    std::fprintf(stderr, "\r\033[K[%llu/%llu] %.100s", static_cast<unsigned long long>(done),
                 static_cast<unsigned long long>(of), what.c_str());
    visible_ = true;
  }
  void clear() {
    if (visible_) std::fputs("\r\033[K", stderr);
    visible_ = false;
  }

 private:
  const bool terminal_ = ::isatty(2) != 0;
  bool visible_ = false;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point shown_ = begin_ - std::chrono::seconds(1);
};

// One suite with one width of the team.
class Hearing {
 public:
  Hearing(const Options& options, const Suite& suite, uint32_t width, Progress& progress, Report& report,
          void (*heard)(const Result&))
      : options_(options), suite_(suite), progress_(progress), report_(report), heard_(heard) {
    options_.suites = {suite.name};
    options_.threads = width;
    if (!suite.widths.empty()) prefix_ = text("team", width, ".");
  }

  void run() {
    do {
      one_process();
    } while (!over_);
  }

 private:
  void one_process() {
    options_.first = first_;
    options_.count = suite_.own_process ? 1 : UINT64_MAX;
    running_ = done_ = false;
    listing_ = true;
    closed_.clear();
    Process process(options_);
    std::string line;
    for (begun_ = Clock::now(); !done_;) {
      const double limit = running_ ? options_.limit_s : std::max(options_.limit_s, kOpening);
      const double left = limit - since(begun_);
      const Process::Got got = left <= 0 ? Process::Got::kNothing : process.next(&line, std::min(left, 0.5));
      if (got == Process::Got::kNothing && left > 0.5) {
        progress_.show(text(suite_.name, " ", current_.name), first_, tasks_);
        continue;
      }
      if (got == Process::Got::kNothing) {
        process.stop();
        return broken("hung", text("took more than ", limit, " s"));
      }
      if (got == Process::Got::kEnd) return ended(process.wait(ending()));
      if (!hear(line)) {
        process.stop();
        return broken("crashed", kForged);
      }
    }
    if (const Process::Ending end = process.wait(ending()); !end.verdict.empty()) {
      finish(end.verdict, text("at the end of the process: ", end.how), "exit");
      over_ = true;
    }
    if (first_ >= tasks_) over_ = true;
  }

  // Takes a line of the process; false when that is none of a worker's.
  bool hear(const std::string& line) {
    const json m = json::parse(line, nullptr, false);
    if (!m.is_object()) return false;
    try {
      take(m);
    } catch (const json::exception&) {  // an object, with other things in it
      return false;
    }
    return true;
  }

  void take(const json& m) {
    if (m.contains("refused")) {
      Result r{suite_.name, prefix_ + m.at("refused").get<std::string>(), "unsupported", m.at("why"), 0, m.at("facts")};
      if (first_ == 0) report_.results.push_back(std::move(r));
    } else if (m.contains("tasks")) {
      tasks_ = m.at("tasks");
      listing_ = false;
    } else if (m.contains("begin")) {
      first_ = m.at("begin");
      current_ = {suite_.name, prefix_ + m.at("name").get<std::string>(), "", "", 0, m.at("facts")};
      running_ = true;
      progress_.show(text(suite_.name, " ", current_.name), first_, tasks_);
    } else if (m.contains("end")) {
      const uint64_t ended = m.at("end");
      finish(m.at("verdict"), m.at("why"), "");
      first_ = ended + 1;
    } else if (m.contains("errors")) {
      for (const auto& [kernel, e] : m.at("errors").items()) {
        auto& [worst, mean] = report_.errors[kernel];
        worst = std::max(worst, e.at(0).get<double>());
        mean = std::max(mean, e.at(1).get<double>());
      }
    } else if (m.contains("closed")) {
      closed_ = m.at("closed");
    } else if (m.contains("done")) {
      done_ = true;
      first_ = std::max(first_, m.at("done").get<uint64_t>());
    }
    begun_ = m.contains("refused") ? begun_ : Clock::now();
  }

  double ending() const { return std::max(options_.limit_s, kEnding); }

  // The pipe was closed before the process was done.
  void ended(const Process::Ending& end) {
    if (!closed_.empty()) return broken("failed", closed_);
    if (end.verdict.empty()) return broken("crashed", "it ended the process with exit code 0");
    broken(end.verdict, end.how);
  }

  // The process ended, or had to be ended, before it was done.
  void broken(const std::string& verdict, const std::string& how) {
    if (running_) {
      finish(verdict, how, "");
      ++first_;
      over_ = first_ >= tasks_;
    } else {
      finish(verdict, how, listing_ ? "list" : "close");
      over_ = true;
    }
  }

  void finish(const std::string& verdict, const std::string& why, const char* instead_of_task) {
    Result r = std::move(current_);
    if (*instead_of_task != '\0') r = {suite_.name, prefix_ + instead_of_task, "", "", 0, {}};
    r.verdict = verdict;
    r.why = why;
    r.seconds = since(begun_);
    running_ = false;
    progress_.clear();
    if (heard_ != nullptr) heard_(r);
    report_.results.push_back(std::move(r));
  }

  Options options_;
  const Suite& suite_;
  Progress& progress_;
  Report& report_;
  void (*heard_)(const Result&);
  std::string prefix_;
  std::string closed_;  // why the process gave up
  Result current_;
  Clock::time_point begun_;
  uint64_t first_ = 0, tasks_ = 0;
  bool running_ = false, listing_ = false, done_ = false, over_ = false;
};

// Takes a line about the plugin; false when that is none of a worker's.
bool describes(const std::string& line, Report& report) {
  const json m = json::parse(line, nullptr, false);
  if (!m.is_object()) return false;
  try {
    if (m.contains("plugin")) report.plugin = m.at("plugin");
    if (m.contains("closed")) {
      report.closed = m.at("closed");
      report.wrong_machine = m.at("wrong_machine");
    }
  } catch (const json::exception&) {
    return false;
  }
  return true;
}

// Asks a process for the plugin's description.
void describe(Options options, Report& report) {
  options.count = 0;
  Process process(options);
  std::string line;
  bool said = false;
  const auto begun = Clock::now();
  const double limit = std::max(options.limit_s, kOpening);
  while (true) {
    const double left = limit - since(begun);
    const Process::Got got = left <= 0 ? Process::Got::kNothing : process.next(&line, left);
    if (got == Process::Got::kEnd) break;
    if (got == Process::Got::kNothing) {
      process.stop();
      report.closed = text(options.plugin, " hung while it was opened: more than ", limit, " s");
      return;
    }
    said = true;
    if (describes(line, report)) continue;
    process.stop();
    report.plugin = nullptr;
    report.closed = text(options.plugin, " ", kForged, " while it was opened");
    return;
  }
  const Process::Ending end = process.wait(std::max(options.limit_s, kEnding));
  if (said) return;  // and if it did not end well, the processes of the suites will not either, and are judged
  report.closed = text(options.plugin, end.verdict == "hung" ? " hung" : " crashed",
                       " while it was opened: ", end.how.empty() ? "it ended the process" : end.how);
}

}  // namespace

Report judge(const Options& options, void (*heard)(const Result&)) {
  Report report;
  Progress progress;
  describe(options, report);
  if (report.plugin.is_null()) return report;
  for (const std::string& name : options.suites) {
    const Suite& suite = *suite_named(name);
    if (suite.needs_device && !report.closed.empty()) continue;
    const auto begun = Clock::now();
    const std::vector<uint32_t> widths =
        suite.widths.empty() || options.list ? std::vector<uint32_t>{options.threads} : suite.widths;
    for (const uint32_t width : widths) Hearing(options, suite, width, progress, report, heard).run();
    report.seconds[name] = since(begun);
  }
  progress.clear();
  return report;
}

int exit_code(const Report& report) {
  const bool bad = std::any_of(report.results.begin(), report.results.end(), [](const Result& r) {
    return r.verdict == "failed" || r.verdict == "crashed" || r.verdict == "hung";
  });
  if (bad) return 1;
  if (!report.closed.empty()) return report.wrong_machine ? kExitWrongMachine : 2;
  const bool any = std::any_of(report.results.begin(), report.results.end(),
                               [](const Result& r) { return r.verdict == "passed" || r.verdict == "listed"; });
  return any ? 0 : 1;
}

}  // namespace switchyard::check
