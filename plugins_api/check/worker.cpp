// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/worker.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <limits>

#include <nlohmann/json.hpp>

#include "plugins_api/check/describe.h"
#include "plugins_api/check/floating.h"
#include "plugins_api/check/host.h"
#include "plugins_api/check/kit.h"
#include "plugins_api/check/suite.h"
#include "plugins_api/check/team.h"

namespace switchyard::check {
namespace {

using nlohmann::json;

class Channel {
 public:
  explicit Channel(int fd) : fd_(fd) {}
  void send(const json& message) const {
    std::string line = message.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
    for (size_t at = 0; at < line.size();) {
      const ssize_t n = ::write(fd_, line.data() + at, line.size() - at);
      if (n <= 0) ::_exit(3);  // the judge has gone
      at += static_cast<size_t>(n);
    }
  }

 private:
  int fd_;
};

// Standard output, while a plugin runs: it may write nothing there.
class Silence {
 public:
  Silence() : fd_(::memfd_create("output", MFD_CLOEXEC)) {
    if (fd_ >= 0) ::dup2(fd_, 1);
  }
  // The text written since the last call, in one line.
  std::string heard() {
    std::fflush(stdout);
    struct stat s {};
    if (fd_ < 0 || ::fstat(fd_, &s) != 0 || s.st_size <= seen_) return "";
    std::string all(std::min<size_t>(static_cast<size_t>(s.st_size - seen_), 80), '\0');
    if (::pread(fd_, all.data(), all.size(), seen_) < 0) all.clear();
    seen_ = s.st_size;
    for (char& c : all) c = c == '\n' ? ' ' : c;
    return all;
  }

 private:
  int fd_;
  off_t seen_ = 0;
};

json run(const Task& task, Silence& silence) {
  std::string verdict = "passed", why;
  try {
    why = task.run();
    if (!why.empty()) verdict = "failed";
  } catch (const Unsupported& e) {
    verdict = "unsupported";
    why = e.what();
  } catch (const std::exception& e) {
    verdict = "failed";
    why = e.what();
  } catch (...) {
    verdict = "failed";
    why = "an exception of an unknown type crossed the boundary";
  }
  if (const std::string printed = silence.heard(); verdict != "failed" && !printed.empty()) {
    verdict = "failed";
    why = text("the plugin wrote to standard output: '", printed, "'");
  } else if (std::string left = floating_misuse(); verdict != "failed" && !left.empty()) {
    verdict = "failed";
    why = "the plugin " + left;
  } else if (std::string misuse = host_misuse(); verdict != "failed" && !misuse.empty()) {
    verdict = "failed";
    why = misuse;
  }
  return {{"verdict", verdict}, {"why", why}};
}

bool wanted(const Options& o, const std::string& name) {
  return o.filter.empty() || (o.suites[0] + "/" + name).find(o.filter) != std::string::npos;
}

std::vector<Task> list(const Options& options, Session& session, const Channel& channel) {
  std::vector<Refusal> refusals;
  std::vector<Task> tasks;
  for (Task& t : suite_named(options.suites[0])->list(session, &refusals)) {
    if (wanted(options, t.name)) tasks.push_back(std::move(t));
  }
  for (const Refusal& r : refusals) {
    if (options.first == 0 && wanted(options, r.name)) {
      channel.send({{"refused", r.name}, {"why", r.why}, {"facts", r.facts}});
    }
  }
  channel.send({{"tasks", tasks.size()}});
  return tasks;
}

void run_suite(const Options& options, const Channel& channel) {
  Silence silence;
  uint64_t i = options.first;
  {
    Session session(options);
    const std::vector<Task> tasks = list(options, session, channel);
    for (; i < tasks.size() && i - options.first < options.count; ++i) {
      channel.send({{"begin", i}, {"name", tasks[i].name}, {"facts", tasks[i].facts}});
      json end = options.list ? json{{"verdict", "listed"}, {"why", ""}} : run(tasks[i], silence);
      end["end"] = i;
      channel.send(end);
    }
    json errors = json::object();
    // JSON has neither infinities nor NaN.
    const auto number = [](double x) { return std::isfinite(x) ? x : std::numeric_limits<double>::max(); };
    for (const auto& [kernel, e] : session.errors) errors[kernel] = {number(e.worst), number(e.mean)};
    channel.send({{"errors", errors}});
  }
  channel.send({{"done", i}});
}

void describe_plugin(const Options& options, const Channel& channel) {
  Silence silence;
  const Library library(options.plugin);
  json about = describe(library);
  try {
    const Plugin plugin(library, options.settings);
    describe_device(plugin, about);
    if (!options.oracle.empty()) Plugin(Library(options.oracle), {});
  } catch (const WrongMachine& e) {
    channel.send({{"closed", e.what()}, {"wrong_machine", true}});
  } catch (const std::exception& e) {
    channel.send({{"closed", e.what()}, {"wrong_machine", false}});
  }
  channel.send({{"plugin", about}});
}

}  // namespace

int work(const Options& options) {
  const Channel channel(options.worker_fd);
  set_team_width(options.threads);
  try {
    if (options.count == 0) {
      describe_plugin(options, channel);
    } else {
      run_suite(options, channel);
    }
  } catch (const std::exception& e) {
    channel.send({{"closed", e.what()}, {"wrong_machine", false}});
    return 2;
  }
  return 0;
}

}  // namespace switchyard::check
