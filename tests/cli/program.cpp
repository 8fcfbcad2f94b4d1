// SPDX-License-Identifier: Apache-2.0
#include "tests/cli/program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string_view>

namespace switchyard::testing {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);

std::vector<std::string> environment_of(const Conditions& conditions) {
  std::vector<std::string> all;
  for (char** e = environ; *e != nullptr; ++e) {
    if (!std::string(*e).starts_with("SWITCHYARD_")) all.emplace_back(*e);
  }
  // The expected results were recorded with reference, so it is chosen whatever other backends exist.
  if (!conditions.environment.contains("SWITCHYARD_BACKEND")) all.emplace_back("SWITCHYARD_BACKEND=reference");
  for (const auto& [name, value] : conditions.environment) all.push_back(fmt::format("{}={}", name, value));
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& t : texts) out.push_back(t.data());
  out.push_back(nullptr);
  return out;
}

// The two ends of a new terminal: ours, and the program's.
std::pair<int, int> open_terminal() {
  const int ours = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  EXPECT_EQ(::grantpt(ours), 0);
  EXPECT_EQ(::unlockpt(ours), 0);
  const int theirs = ::open(::ptsname(ours), O_RDWR | O_NOCTTY | O_CLOEXEC);
  const winsize size{24, 80, 0, 0};
  EXPECT_EQ(::ioctl(theirs, TIOCSWINSZ, &size), 0);
  return {ours, theirs};
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

}  // namespace

Child::Child(const Arguments& arguments, const Conditions& conditions) {
  std::vector<std::string> words = {SWITCHYARD_BINARY}, environment = environment_of(conditions);
  words.insert(words.end(), arguments.begin(), arguments.end());
  const std::vector<char*> argv = pointers(words), envp = pointers(environment);
  int input[2], output[2], errors[2];
  for (int* pipe : {input, output, errors}) EXPECT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  if (conditions.terminal) {
    const auto [ours, theirs] = open_terminal();
    for (const auto& [end, other] : {std::pair(&input[0], theirs),
                                     {&input[1], ours},
                                     {&output[0], ours},
                                     {&output[1], theirs},
                                     {&errors[1], theirs}}) {
      ::dup3(other, *end, O_CLOEXEC);
    }
    ::close(ours);
    ::close(theirs);
  }
  std::signal(SIGPIPE, SIG_IGN);  // a child that does not read its input is no reason to die
  pid_ = ::fork();
  if (pid_ == 0) {  // only calls that are safe after a fork
    ::signal(SIGPIPE, SIG_DFL);
    if (conditions.terminal) {
      ::setsid();
      ::ioctl(input[0], TIOCSCTTY, 0);
    }
    if (!conditions.out.empty()) output[1] = ::open(conditions.out.c_str(), O_WRONLY | O_CLOEXEC);
    ::dup2(input[0], 0);
    ::dup2(output[1], 1);
    ::dup2(errors[1], 2);
    const rlimit limit{conditions.file_limit, conditions.file_limit};
    if (conditions.file_limit != 0) ::setrlimit(RLIMIT_FSIZE, &limit);
    ::execve(argv[0], argv.data(), envp.data());
    ::_exit(127);
  }
  for (const int fd : {input[0], output[1], errors[1]}) ::close(fd);
  in_ = input[1];
  streams_[0] = output[0];
  streams_[1] = errors[0];
}

Child::~Child() {
  for (const int fd : {in_, streams_[0], streams_[1]}) {
    if (fd >= 0) ::close(fd);
  }
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Child::write(const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(in_, text.data() + done, text.size() - done);
    if (n <= 0) return;  // it reads no more
    done += static_cast<size_t>(n);
  }
}

void Child::close_input() {
  if (in_ >= 0) ::close(std::exchange(in_, -1));
}

void Child::signal(int number) const { ::kill(pid_, number); }

bool Child::read_some() {
  pollfd fds[2] = {{streams_[0], POLLIN, 0}, {streams_[1], POLLIN, 0}};  // poll passes over a negative one
  if (streams_[0] < 0 && streams_[1] < 0) return false;
  if (::poll(fds, 2, 1000) <= 0) return true;
  std::string* texts[2] = {&out, &err};
  for (int i = 0; i < 2; ++i) {
    if (fds[i].revents == 0) continue;
    char buffer[65536];
    const ssize_t n = ::read(streams_[i], buffer, sizeof buffer);
    if (n > 0) {
      texts[i]->append(buffer, static_cast<size_t>(n));
    } else {
      ::close(std::exchange(streams_[i], -1));
    }
  }
  return true;
}

bool Child::wait_for(int stream, const std::string& text, size_t times) {
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  while (count(stream == 1 ? out : err, text) < times) {
    if (std::chrono::steady_clock::now() > give_up || !read_some()) return false;
  }
  return true;
}

bool Child::wait_for_bytes(size_t bytes) {
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  while (out.size() < bytes) {
    if (std::chrono::steady_clock::now() > give_up || !read_some()) return false;
  }
  return true;
}

bool Child::wait_until_it_catches(int number) const {
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < give_up) {
    std::ifstream status(fmt::format("/proc/{}/status", pid_));
    for (std::string line; std::getline(status, line);) {
      constexpr std::string_view kCaught = "SigCgt:";
      if (!line.starts_with(kCaught)) continue;
      if ((std::stoull(line.substr(kCaught.size()), nullptr, 16) >> (number - 1) & 1) != 0) return true;
    }
    ::usleep(1000);
  }
  return false;
}

int Child::finish() {
  close_input();
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  while (read_some()) {
    if (std::chrono::steady_clock::now() < give_up) continue;
    ADD_FAILURE() << "the program did not end";
    ::kill(pid_, SIGKILL);
    break;
  }
  int status = 0;
  ::waitpid(std::exchange(pid_, -1), &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

Ran run_program(const Arguments& arguments, const std::string& input, const Conditions& conditions) {
  Child child(arguments, conditions);
  child.write(input);
  const int exit = child.finish();
  return {exit, child.out, child.err};
}

nlohmann::json run_json(const Arguments& arguments, const Conditions& conditions) {
  const Ran ran = run_program(arguments, "", conditions);
  EXPECT_EQ(ran.exit, 0) << ran.err;
  nlohmann::json parsed = nlohmann::json::parse(ran.out, nullptr, false);
  EXPECT_FALSE(parsed.is_discarded()) << ran.out;
  return parsed;
}

}  // namespace switchyard::testing
