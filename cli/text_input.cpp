// SPDX-License-Identifier: Apache-2.0
#include "cli/text_input.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "cli/signals.h"
#include "core/base/output_file.h"

namespace switchyard::cli {
namespace {

Result<std::string> read_pipe(int fd, const std::string& name) {
  constexpr int kLookMilliseconds = 100;  // how often an interrupt is looked for
  std::array<char, 65536> part;
  std::string text;
  while (true) {
    pollfd ready{fd, POLLIN, 0};
    const int polled = ::poll(&ready, 1, kLookMilliseconds);
    if (interrupted.load()) return error(Code::cancelled, "interrupted while reading {}", name);
    if (polled == 0 || (polled < 0 && errno == EINTR)) continue;
    const ssize_t n = ::read(fd, part.data(), part.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) return io_error("read", name, errno);
    if (n == 0) return text;
    if (text.size() + static_cast<size_t>(n) > kMostPipeBytes) {
      return error(Code::invalid_data, "{} has more than {} MiB, the most that is read from it; name a file", name,
                   kMostPipeBytes >> 20);
    }
    text.append(part.data(), static_cast<size_t>(n));
  }
}

}  // namespace

Result<std::string> read_standard_input() { return read_pipe(STDIN_FILENO, "standard input"); }

Result<std::string> read_text(const std::string& path, uint64_t most_file_bytes) {
  if (path == "-") return read_standard_input();
  struct stat st {};
  const bool found = ::stat(path.c_str(), &st) == 0;
  if (found && S_ISDIR(st.st_mode)) return error(Code::usage, "{} is a folder; name a text file", path);
  if (!found || S_ISREG(st.st_mode)) return Os::real().read(path, most_file_bytes);
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (fd.get() < 0) return io_error("open", path, errno);
  return read_pipe(fd.get(), path);
}

}  // namespace switchyard::cli
