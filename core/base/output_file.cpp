// SPDX-License-Identifier: Apache-2.0
#include "core/base/output_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <filesystem>

namespace switchyard {
namespace {

namespace fs = std::filesystem;

// Names of temporary files, where a signal's handler finds them. A file that finds no place is not deleted by a signal.
struct Unfinished {
  enum State : int { unused, changing, listed };
  std::atomic<int> state = unused;
  pid_t owner = 0;  // a forked child deletes nothing of its parent
  std::array<char, PATH_MAX> path;
};
static_assert(std::atomic<int>::is_always_lock_free);
std::array<Unfinished, 16> unfinished;

Unfinished* list_unfinished(const std::string& path) {
  if (path.size() >= PATH_MAX) return nullptr;
  for (Unfinished& u : unfinished) {
    int expected = Unfinished::unused;
    if (!u.state.compare_exchange_strong(expected, Unfinished::changing)) continue;
    std::copy_n(path.c_str(), path.size() + 1, u.path.begin());
    u.owner = ::getpid();
    u.state.store(Unfinished::listed);
    return &u;
  }
  return nullptr;
}

void forget_unfinished(Unfinished* u) {
  if (u != nullptr) u->state.store(Unfinished::unused);
}

enum class Writes {
  beside,    // to a temporary file beside the target, which replaces it when all is written
  straight,  // to a device that has positions
  late       // to an anonymous file, which is copied to a pipe or terminal when all is written
};

class RealOutputFile final : public OutputFile {
 public:
  RealOutputFile(std::string path, Writes writes, Fd fd, Fd pipe = Fd())
      : path_(std::move(path)), writes_(writes), fd_(std::move(fd)), pipe_(std::move(pipe)) {}
  RealOutputFile(std::string path, Fd fd, std::string temporary, std::string target)
      : path_(std::move(path)),
        writes_(Writes::beside),
        fd_(std::move(fd)),
        temporary_(std::move(temporary)),
        target_(std::move(target)),
        listed_(list_unfinished(temporary_)) {}
  RealOutputFile(const RealOutputFile&) = delete;
  RealOutputFile& operator=(const RealOutputFile&) = delete;
  ~RealOutputFile() override {
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
    forget_unfinished(listed_);
  }

  Status append(std::span<const std::byte> bytes) override {
    SWY_TRY(write_all(size_, bytes));
    size_ += bytes.size();
    return {};
  }
  Status write_at(uint64_t offset, std::span<const std::byte> bytes) override {
    if (offset + bytes.size() > size_) {
      return error(Code::internal, "{}: write_at {}+{} is beyond {}", path_, offset, bytes.size(), size_);
    }
    return write_all(offset, bytes);
  }
  uint64_t size() const override { return size_; }
  void keep_private() override {
    if (writes_ == Writes::beside) ::fchmod(fd_.get(), S_IRUSR | S_IWUSR);
  }
  Status commit() override {
    if (writes_ == Writes::late) {
      SWY_TRY(copy_to_pipe());
      return pipe_.close() ? Status() : io_error("write", path_, errno);
    }
    if (writes_ == Writes::beside && ::fsync(fd_.get()) != 0) return io_error("write", path_, errno);
    if (!fd_.close()) return io_error("write", path_, errno);
    if (writes_ == Writes::straight) return {};
    if (::rename(temporary_.c_str(), target_.c_str()) != 0) return io_error("rename to", path_, errno);
    temporary_.clear();
    return {};
  }

 private:
  Status failed(int err, uint64_t done) const {
    if (err != ENOSPC) return io_error("write", path_, err);
    return error(Code::io, "cannot write {}: the disk is full after {} bytes; free some space and run this again",
                 path_, done);
  }
  Status write_all(uint64_t offset, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return failed(errno, offset);
      offset += static_cast<uint64_t>(n);
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
    return {};
  }
  Status copy_to_pipe() {
    std::array<char, 65536> part;
    for (uint64_t at = 0; at < size_;) {
      const ssize_t n = ::pread(fd_.get(), part.data(), part.size(), static_cast<off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return io_error("read back what is written to", path_, n < 0 ? errno : EIO);
      for (ssize_t done = 0; done < n;) {
        const ssize_t m = ::write(pipe_.get(), part.data() + done, static_cast<size_t>(n - done));
        if (m < 0 && errno == EINTR) continue;
        if (m < 0) return failed(errno, at + static_cast<uint64_t>(done));
        done += m;
      }
      at += static_cast<uint64_t>(n);
    }
    return {};
  }

  std::string path_;  // as it was given
  Writes writes_;
  Fd fd_, pipe_;
  std::string temporary_, target_;  // "": there is none
  Unfinished* listed_ = nullptr;
  uint64_t size_ = 0;
};

// The target of a path through symbolic links, which need not exist, and whether one of them was the kernel's name for
// an open file (/proc/self/fd): those are written in place, as the shell's `>` does.
struct Target {
  std::string path;
  bool open_file = false;
};

Target follow(const std::string& path) {
  constexpr int kMostLinks = 40;
  fs::path at = path;
  std::error_code ec;
  for (int i = 0; i < kMostLinks && fs::is_symlink(at, ec); ++i) {
    const fs::path folder = at.has_parent_path() ? at.parent_path() : ".";
    struct statfs file_system {};
    if (::statfs(folder.c_str(), &file_system) == 0 && file_system.f_type == PROC_SUPER_MAGIC) return {at, true};
    const fs::path to = fs::read_symlink(at, ec);
    if (ec) break;
    at = to.is_absolute() ? to : folder / to;
  }
  return {at, false};
}

// Of /proc/self/fd/N a duplicate, which shares its position; anything else is opened anew.
Fd open_existing(const Target& target) {
  const fs::path path = target.path;
  std::error_code ec;
  const std::string name = path.filename();
  int number = -1;
  const auto [end, fault] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (target.open_file && fault == std::errc() && end == name.data() + name.size() &&
      fs::canonical(path.parent_path(), ec) == fs::path("/proc") / std::to_string(::getpid()) / "fd") {
    return Fd(::fcntl(number, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  }
  return Fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY | (target.open_file ? O_APPEND : 0)));
}

Result<Fd> anonymous_file() {
  std::error_code ec;
  std::string name = (fs::temp_directory_path(ec) / "switchyard-XXXXXX").string();
  Fd fd(::mkostemp(name.data(), O_CLOEXEC));
  if (fd.get() < 0) return io_error("create", name, errno);
  ::unlink(name.c_str());
  return fd;
}

// Creates a file beside `path`, by the umask or with the owner and mode of what it will replace.
Result<Fd> create_beside(const std::string& path, const struct stat* old, std::string& temporary) {
  constexpr size_t kLongestName = NAME_MAX - 16;
  constexpr int kTries = 100;
  static std::atomic<uint32_t> count = 0;
  const fs::path target = path;
  for (int i = 0; i < kTries; ++i) {
    const std::string name = target.filename().string().substr(0, kLongestName);
    const uint32_t unique =
        static_cast<uint32_t>(::getpid()) * 40503u + count++ * 2654435761u + static_cast<uint32_t>(Os::real().now_ns());
    temporary = (target.parent_path() / fmt::format("{}.part-{:08x}", name, unique)).string();
    Fd fd(::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (fd.get() < 0 && errno == EEXIST) continue;
    if (fd.get() < 0) return io_error("create", path, errno);
    if (old != nullptr) {
      const bool same_owner = ::fchown(fd.get(), old->st_uid, old->st_gid) == 0;
      ::fchmod(fd.get(), old->st_mode & (same_owner ? 0777 : 0707));
    }
    return fd;
  }
  return io_error("create", path, EEXIST);
}

}  // namespace

Status io_error(const char* verb, const std::string& path, int err) {
  const Code code = err == ENOENT || err == ENOTDIR ? Code::not_found : Code::io;
  return error(code, "cannot {} {}: {}", verb, path, std::strerror(err));
}

Fd::Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
Fd& Fd::operator=(Fd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}
Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}
bool Fd::close() { return fd_ < 0 || ::close(std::exchange(fd_, -1)) == 0; }

void remove_unfinished_files() {
  const pid_t self = ::getpid();
  for (Unfinished& u : unfinished) {
    if (u.state.load() == Unfinished::listed && u.owner == self) ::unlink(u.path.data());
  }
}

Result<std::unique_ptr<OutputFile>> create_output_file(const std::string& path) {
  if (path.empty()) return error(Code::usage, "the name of the file to write is empty");
  const Target target = follow(path);
  struct stat old {};
  const bool exists = ::stat(target.path.c_str(), &old) == 0;
  if (exists && S_ISDIR(old.st_mode)) return error(Code::usage, "{} is a folder; name a file to write", path);
  if (exists && (!S_ISREG(old.st_mode) || target.open_file)) {
    Fd fd = open_existing(target);
    if (fd.get() < 0) return io_error("write", path, errno);
    if (!S_ISREG(old.st_mode) && ::lseek(fd.get(), 0, SEEK_CUR) >= 0) {
      return std::unique_ptr<OutputFile>(std::make_unique<RealOutputFile>(path, Writes::straight, std::move(fd)));
    }
    SWY_LET(Fd kept, anonymous_file());
    return std::unique_ptr<OutputFile>(
        std::make_unique<RealOutputFile>(path, Writes::late, std::move(kept), std::move(fd)));
  }
  if (exists && ::faccessat(AT_FDCWD, target.path.c_str(), W_OK, AT_EACCESS) != 0)
    return io_error("write", path, errno);
  std::string temporary;
  SWY_LET(Fd fd, create_beside(target.path, exists ? &old : nullptr, temporary));
  return std::unique_ptr<OutputFile>(std::make_unique<RealOutputFile>(path, std::move(fd), temporary, target.path));
}

}  // namespace switchyard
