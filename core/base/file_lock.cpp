// SPDX-License-Identifier: Apache-2.0
#include "core/base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <thread>

namespace switchyard {
namespace {

// Whether the path still leads to the file that was locked: its last owner may have deleted it.
bool still_there(const std::string& path, int fd) {
  struct stat opened {
  }, now{};
  return ::fstat(fd, &opened) == 0 && ::stat(path.c_str(), &now) == 0 && opened.st_ino == now.st_ino &&
         opened.st_dev == now.st_dev;
}

}  // namespace

Result<FileLock> FileLock::acquire(const std::string& path, const CancelCheck& cancelled,
                                   const std::function<void()>& waits) {
  constexpr auto kLook = std::chrono::milliseconds(50);
  std::error_code ec;  // a folder that is missing is told of by open
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ec);
  bool told = false;
  while (true) {
    Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (fd.get() < 0) return io_error("lock", path, errno);
    while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) return io_error("lock", path, errno);
      SWY_TRY(check_cancelled(cancelled, "waiting for another process"));
      if (!told && waits) waits();
      told = true;
      std::this_thread::sleep_for(kLook);
    }
    if (still_there(path, fd.get())) return FileLock(path, std::move(fd));
  }
}

void FileLock::remove_file() { ::unlink(path_.c_str()); }

}  // namespace switchyard
