// SPDX-License-Identifier: Apache-2.0
#include "bench/worker_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <new>
#include <nlohmann/json.hpp>

#include "core/base/os.h"

namespace switchyard::bench {
namespace {

// Between fork and exec: only what may be called there.
[[noreturn]] void become(const char* program, char* const* arguments, int fd, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // it went before the line above
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  ::signal(SIGINT, SIG_IGN);  // Ctrl-C is the benchmark's
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  if (fd == WorkerProcess::kChannel) {
    ::fcntl(fd, F_SETFD, 0);
  } else {
    ::dup2(fd, WorkerProcess::kChannel);
  }
  ::execv(program, arguments);
  ::_exit(127);
}

}  // namespace

State state_of(Code code) {
  switch (code) {
    case Code::unsupported:
      return State::unsupported;
    case Code::out_of_host_memory:
    case Code::out_of_device_memory:
      return State::out_of_memory;
    case Code::cancelled:
      return State::time_limit;
    default:
      return State::failed;
  }
}

Result<std::unique_ptr<WorkerProcess>> WorkerProcess::start(const std::string& program,
                                                            const std::vector<std::string>& arguments) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return error(Code::io, "no channel to a worker: {}", std::strerror(errno));
  }
  Channel ours(ends[0]), theirs(ends[1]);
  std::vector<std::string> words = arguments;
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return error(Code::io, "a worker cannot be started: {}", std::strerror(errno));
  if (pid == 0) become(program.c_str(), argv.data(), ends[1], parent);
  return std::unique_ptr<WorkerProcess>(new WorkerProcess(pid, std::move(ours)));
}

WorkerProcess::~WorkerProcess() {
  if (alive()) killed(State::interrupted, "");
}

Reply WorkerProcess::call(const nlohmann::json& request, double seconds, const std::string& what,
                          const std::function<bool()>& go_on) {
  if (!alive()) return end_;
  if (!channel_.send(request).ok()) return died(what);
  const uint64_t begin = Os::real().now_ns();
  bool stopped = false;
  const auto wait = [&] {
    stopped = !go_on();
    return !stopped && static_cast<double>(Os::real().now_ns() - begin) / 1e9 < seconds;
  };
  Result<nlohmann::json> answer = channel_.receive(wait);
  if (answer.status().code() == Code::cancelled) {
    return stopped ? killed(State::interrupted, "interrupted in " + what)
                   : killed(State::time_limit, fmt::format("no answer within {:.0f} s in {}; ended", seconds, what));
  }
  if (!answer.ok() && answer.status().code() != Code::invalid_data) return died(what);
  if (!answer.ok()) return killed(State::failed, what + ": " + answer.status().message());
  Reply reply;
  if (const auto e = answer->find("error"); e != answer->end()) {
    reply.state = state_of(static_cast<Code>(answer->value("code", 0)));
    reply.reason = e->is_string() ? e->get<std::string>() : "no reason given";
  }
  reply.value = std::move(*answer);
  return reply;
}

Reply WorkerProcess::killed(State state, std::string reason) {
  ::kill(pid_, SIGKILL);
  // A process that hangs in a driver may never end: it is left behind then.
  pid_t ended = 0;
  for (int i = 0; i < 500 && ended == 0; ++i) {
    ended = ::waitpid(pid_, nullptr, WNOHANG);
    if (ended == 0) ::usleep(10'000);
  }
  if (ended == 0) reason += fmt::format("; its process {} does not end", pid_);
  pid_ = -1;
  end_ = {state, std::move(reason), {}};
  return end_;
}

// A backend may also have closed the channel and live on: then it is ended, too.
Reply WorkerProcess::died(const std::string& what) {
  int how = 0;
  pid_t ended = 0;
  for (int i = 0; i < 100 && ended == 0; ++i) {
    ended = ::waitpid(pid_, &how, WNOHANG);
    if (ended == 0) ::usleep(10'000);
  }
  if (ended != pid_) return killed(State::crashed, "closed the channel to the benchmark in " + what);
  pid_ = -1;
  if (WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL) {
    end_ = {State::out_of_memory, "killed in " + what + ": the system was most likely out of memory", {}};
  } else if (WIFSIGNALED(how)) {
    end_ = {State::crashed, fmt::format("crashed in {}: {}", what, ::strsignal(WTERMSIG(how))), {}};
  } else {
    end_ = {State::crashed, fmt::format("ended the process in {} with exit code {}", what, WEXITSTATUS(how)), {}};
  }
  return end_;
}

int serve_requests(Channel channel, const std::function<Result<nlohmann::json>(const nlohmann::json&)>& serve) {
  for (;;) {
    const Result<nlohmann::json> request = channel.receive([] { return true; });
    if (!request.ok()) return request.status().code() == Code::not_found ? 0 : 1;
    Result<nlohmann::json> answer = error(Code::out_of_host_memory, "out of memory");
    try {
      answer = serve(*request);
    } catch (const std::bad_alloc&) {
      answer = error(Code::out_of_host_memory, "out of memory");
    } catch (const nlohmann::json::exception& e) {
      answer = error(Code::internal, "a request that is not one: {}", e.what());
    }
    if (!answer.ok()) {
      answer = nlohmann::json{{"error", answer.status().message()}, {"code", static_cast<int>(answer.status().code())}};
    }
    if (!channel.send(*answer).ok()) return 0;
  }
}

}  // namespace switchyard::bench
