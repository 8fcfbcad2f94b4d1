// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal_input.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "cli/signals.h"

namespace switchyard::cli {

int TerminalInput::fill() {
  // A signal may be taken by a thread of the backends, which ends no wait of ours: look again from time to time.
  constexpr int kWaitMs = 100;
  if (interrupted.load()) return interrupt;
  pollfd input{STDIN_FILENO, POLLIN, 0};
  const int ready = ::poll(&input, 1, kWaitMs);
  if (ready < 0 && errno != EINTR) return end;
  if (ready <= 0) return interrupted.load() ? interrupt : 0;
  std::array<char, 4096> bytes;
  const ssize_t n = ::read(STDIN_FILENO, bytes.data(), bytes.size());
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return 0;
  if (n <= 0) return end;
  held_.assign(bytes.data(), static_cast<size_t>(n));
  at_ = 0;
  return 1;
}

int TerminalInput::line(std::string& to, size_t max_bytes) {
  to.clear();
  for (bool begun = false;; begun = true) {
    const int byte = next([] {});
    if (byte == interrupt || (byte == end && !begun)) return byte;
    if (byte == end || byte == '\n') break;
    if (to.size() == max_bytes) return too_long;
    to += static_cast<char>(byte);
  }
  if (to.ends_with('\r')) to.pop_back();
  return 0;
}

}  // namespace switchyard::cli
