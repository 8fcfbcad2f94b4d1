// SPDX-License-Identifier: Apache-2.0
// Lines of JSON between a benchmark and its workers, over a socket that nothing else writes to.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/base/status.h"

namespace switchyard::bench {

// One end. Owns its file descriptor. Not thread-safe.
class Channel {
 public:
  explicit Channel(int fd = -1) : fd_(fd) {}
  Channel(Channel&& other) noexcept;
  Channel& operator=(Channel&& other) noexcept;
  ~Channel();

  // Errors: io, when the other end is gone.
  Status send(const nlohmann::json& message);

  // Blocks without using the processor. Calls `go_on` at least ten times a second; if it returns false, the wait ends
  // with Code::cancelled. Errors: not_found, if the other end has gone; invalid_data, for a line that is not JSON.
  Result<nlohmann::json> receive(const std::function<bool()>& go_on);

 private:
  Status read_some(const std::function<bool()>& go_on);

  int fd_ = -1;
  std::string buffer_;
};

}  // namespace switchyard::bench
