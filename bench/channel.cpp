// SPDX-License-Identifier: Apache-2.0
#include "bench/channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/json.h"

namespace switchyard::bench {
namespace {

constexpr int kPollMs = 100;

}  // namespace

Channel::Channel(Channel&& other) noexcept : fd_(std::exchange(other.fd_, -1)), buffer_(std::move(other.buffer_)) {}

Channel& Channel::operator=(Channel&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(buffer_, other.buffer_);
  return *this;
}

Channel::~Channel() {
  if (fd_ >= 0) ::close(fd_);
}

Status Channel::send(const nlohmann::json& message) {
  const std::string line = message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  for (size_t done = 0; done < line.size();) {
    const ssize_t n = ::send(fd_, line.data() + done, line.size() - done, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return error(Code::io, "writing to the other process: {}", std::strerror(errno));
    done += static_cast<size_t>(n);
  }
  return {};
}

Status Channel::read_some(const std::function<bool()>& go_on) {
  for (;;) {
    if (!go_on()) return error(Code::cancelled, "the wait was ended");
    pollfd p{fd_, POLLIN, 0};
    if (const int ready = ::poll(&p, 1, kPollMs); ready <= 0) continue;  // nothing yet, or a signal
    char bytes[65536];
    const ssize_t n = ::recv(fd_, bytes, sizeof bytes, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return error(Code::not_found, "the other process has gone");
    buffer_.append(bytes, static_cast<size_t>(n));
    return {};
  }
}

Result<nlohmann::json> Channel::receive(const std::function<bool()>& go_on) {
  size_t end = buffer_.find('\n');
  while (end == std::string::npos) {
    const size_t before = buffer_.size();
    SWY_TRY(read_some(go_on));
    end = buffer_.find('\n', before);
  }
  Result<nlohmann::json> message = read_json({buffer_.data(), end}, "what the other process wrote");
  buffer_.erase(0, end + 1);
  return message;
}

}  // namespace switchyard::bench
