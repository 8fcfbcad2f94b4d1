#include "core/base/os.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>

namespace switchyard {
namespace {

Status io_error(const char* verb, const std::string& path, int err) {
  const Code code = err == ENOENT || err == ENOTDIR ? Code::not_found : Code::io;
  return error(code, "cannot {} {}: {}", verb, path, std::strerror(err));
}

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&&) = delete;
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

Result<Fd> open_regular(const std::string& path, uint64_t& size) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a FIFO must not block us
  struct stat st {};
  if (fd.get() < 0 || ::fstat(fd.get(), &st) != 0) return io_error("open", path, errno);
  if (!S_ISREG(st.st_mode)) return error(Code::invalid_data, "{} is not a regular file; name a file", path);
  size = static_cast<uint64_t>(st.st_size);
  return fd;
}

class RealMappedFile final : public MappedFile {
 public:
  RealMappedFile(void* data, size_t size) : data_(data), size_(size) {}
  ~RealMappedFile() override {
    if (data_ != nullptr) ::munmap(data_, size_);
  }
  std::span<const std::byte> bytes() const override { return {static_cast<const std::byte*>(data_), size_}; }
  void release(size_t offset, size_t size) const override {
    const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    const size_t begin = (offset + page - 1) / page * page;
    const size_t end = std::min(offset + size, size_) / page * page;
    if (begin < end) ::madvise(static_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
  }

 private:
  void* data_;
  size_t size_;
};

class RealOutputFile final : public OutputFile {
 public:
  RealOutputFile(int fd, std::string temporary, std::string path)
      : fd_(fd), temporary_(std::move(temporary)), path_(std::move(path)) {}
  ~RealOutputFile() override {
    if (fd_ >= 0) ::close(fd_);
    if (!committed_) ::unlink(temporary_.c_str());
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
  Status commit() override {
    if (::fsync(fd_) != 0) return io_error("write", path_, errno);
    const int fd = std::exchange(fd_, -1);
    if (::close(fd) != 0) return io_error("write", path_, errno);
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) return io_error("rename to", path_, errno);
    committed_ = true;
    return {};
  }

 private:
  Status write_all(uint64_t offset, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == ENOSPC) {
        return error(Code::io, "cannot write {}: the disk is full after {} bytes; free some space and run this again",
                     path_, offset);
      }
      if (n < 0) return io_error("write", path_, errno);
      offset += static_cast<uint64_t>(n);
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
    return {};
  }

  int fd_;
  std::string temporary_;
  std::string path_;
  uint64_t size_ = 0;
  bool committed_ = false;
};

class RealOs final : public Os {
 public:
  Result<std::unique_ptr<MappedFile>> map(const std::string& path) override {
    uint64_t size = 0;
    SWY_LET(Fd fd, open_regular(path, size));
    void* data = nullptr;
    if (size != 0) {
      data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
      if (data == MAP_FAILED) return io_error("map", path, errno);
    }
    return std::unique_ptr<MappedFile>(std::make_unique<RealMappedFile>(data, size));
  }

  Result<std::string> read(const std::string& path, uint64_t max_bytes) override {
    uint64_t size = 0;
    SWY_LET(Fd fd, open_regular(path, size));
    if (size > max_bytes) {
      return error(Code::invalid_data, "{} has {} bytes, and at most {} are read here", path, size, max_bytes);
    }
    std::string text(size, '\0');
    uint64_t done = 0;
    while (done < size) {
      const ssize_t n = ::pread(fd.get(), text.data() + done, size - done, static_cast<off_t>(done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return io_error("read", path, errno);
      if (n == 0) break;
      done += static_cast<uint64_t>(n);
    }
    text.resize(done);
    return text;
  }

  Result<std::unique_ptr<OutputFile>> create(const std::string& path) override {
    struct stat st {};
    if (path.empty()) return error(Code::usage, "the name of the file to write is empty");
    if (::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode)) {
      return error(Code::usage, "{} is a folder; name a file to write", path);
    }
    std::string temporary = path + ".part-XXXXXX";
    const int fd = ::mkostemp(temporary.data(), O_CLOEXEC);
    if (fd < 0) return io_error("create", path, errno);
    ::fchmod(fd, 0644);
    return std::unique_ptr<OutputFile>(std::make_unique<RealOutputFile>(fd, temporary, path));
  }

  bool exists(const std::string& path) override { return ::access(path.c_str(), F_OK) == 0; }

  Result<std::vector<std::string>> list(const std::string& folder) override {
    std::vector<std::string> names;
    std::error_code ec;
    for (auto it = std::filesystem::directory_iterator(folder, ec); !ec && it != std::filesystem::directory_iterator();
         it.increment(ec)) {
      names.push_back(it->path().filename().string());
    }
    if (ec) return io_error("list", folder, ec.value());
    std::sort(names.begin(), names.end());
    return names;
  }

  Result<uint64_t> free_bytes(const std::string& folder) override {
    struct statvfs st {};
    if (::statvfs(folder.c_str(), &st) != 0) return io_error("inspect", folder, errno);
    return static_cast<uint64_t>(st.f_bavail) * st.f_frsize;
  }

  Result<void*> open_library(const std::string& path) override {
    if (void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) return library;
    const char* reason = ::dlerror();
    return error(Code::invalid_data, "{}", reason != nullptr ? reason : "dlopen failed without a reason");
  }

  Result<void*> symbol(void* library, const char* name) override {
    if (void* address = ::dlsym(library, name)) return address;
    return error(Code::invalid_data, "no symbol {}", name);
  }

  uint64_t now_ns() override {
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count());
  }
};

}  // namespace

Os& Os::real() {
  static RealOs os;
  return os;
}

uint64_t thread_cpu_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

}  // namespace switchyard
