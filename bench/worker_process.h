// SPDX-License-Identifier: Apache-2.0
// A worker: a process of the same program that loads one model on one choice of backends, and measures on request.
// Whatever a backend does to it, the benchmark continues and knows what happened.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/channel.h"
#include "bench/report.h"

namespace switchyard::bench {

// How a request went.
struct Reply {
  State state = State::measured;
  std::string reason;  // of every other state
  nlohmann::json value;
  bool ok() const { return state == State::measured; }
};

class WorkerProcess {
 public:
  // The descriptor at which a worker finds its end of the channel.
  static constexpr int kChannel = 3;

  // Starts `program` with `arguments`. Its standard output is our standard error. Errors: io.
  static Result<std::unique_ptr<WorkerProcess>> start(const std::string& program,
                                                      const std::vector<std::string>& arguments);
  // Kills what still runs.
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  // Sends a request and waits for its answer, at most so many seconds, and while `go_on` returns true. `what` names the
  // request in reasons. A worker that takes longer is killed (time limit; interrupted if `go_on` returned false). If it
  // ended, the reason has its signal or exit code; every later call returns the same.
  Reply call(const nlohmann::json& request, double seconds, const std::string& what,
             const std::function<bool()>& go_on);

  bool alive() const { return pid_ > 0; }
  pid_t pid() const { return pid_; }

 private:
  WorkerProcess(pid_t pid, Channel channel) : pid_(pid), channel_(std::move(channel)) {}
  Reply died(const std::string& what);
  Reply killed(State state, std::string reason);

  pid_t pid_ = -1;
  Channel channel_;
  Reply end_;  // what every call returns once the process has ended
};

// A worker's side: answers requests until the other end closes. `serve` returns the answer or an error; running out of
// memory in it becomes an error answer, too. Returns the exit code.
int serve_requests(Channel channel, const std::function<Result<nlohmann::json>(const nlohmann::json& request)>& serve);

// Of a worker's error: `unsupported`, `out of memory`, `time limit` (Code::cancelled), or `failed`.
State state_of(Code code);

}  // namespace switchyard::bench
