// SPDX-License-Identifier: Apache-2.0
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
#include <fstream>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>

#include "core/base/available_memory.h"
#include "core/base/lost_mapping.h"
#include "core/base/output_file.h"

namespace switchyard {
namespace {

Result<Fd> open_regular(const std::string& path, struct stat& st) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a FIFO must not block us
  if (fd.get() < 0 || ::fstat(fd.get(), &st) != 0) return io_error("open", path, errno);
  if (!S_ISREG(st.st_mode)) return error(Code::invalid_data, "{} is not a regular file; name a file", path);
  return fd;
}

// The files that are mapped now: they must not be replaced by a file that is made from them.
class MappedNow {
 public:
  static MappedNow& all() {
    static auto* files = new MappedNow;  // outlives maps that static objects hold
    return *files;
  }
  void add(const struct stat& st) {
    const std::lock_guard lock(mutex_);
    files_.insert({st.st_dev, st.st_ino});
  }
  void remove(const std::pair<dev_t, ino_t>& file) {
    const std::lock_guard lock(mutex_);
    files_.erase(files_.find(file));
  }
  bool contains(const struct stat& st) {
    const std::lock_guard lock(mutex_);
    return files_.contains({st.st_dev, st.st_ino});
  }

 private:
  std::mutex mutex_;
  std::multiset<std::pair<dev_t, ino_t>> files_;
};

class RealMappedFile final : public MappedFile {
 public:
  RealMappedFile(void* data, size_t size, const struct stat& st, const std::string& path)
      : data_(data), size_(size), file_(st.st_dev, st.st_ino), listed_(std::in_place, data, size, path) {
    MappedNow::all().add(st);
  }
  ~RealMappedFile() override {
    MappedNow::all().remove(file_);
    listed_.reset();
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
  std::pair<dev_t, ino_t> file_;
  std::optional<ListedMapping> listed_;
};

class RealOs final : public Os {
 public:
  Result<std::unique_ptr<MappedFile>> map(const std::string& path) override {
    struct stat st {};
    SWY_LET(const Fd fd, open_regular(path, st));
    const auto size = static_cast<size_t>(st.st_size);
    void* data = nullptr;
    if (size != 0) {
      data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
      if (data == MAP_FAILED) return io_error("map", path, errno);
    }
    return std::unique_ptr<MappedFile>(std::make_unique<RealMappedFile>(data, size, st, path));
  }

  Result<std::string> read(const std::string& path, uint64_t max_bytes) override {
    struct stat st {};
    SWY_LET(const Fd fd, open_regular(path, st));
    const auto size = static_cast<uint64_t>(st.st_size);
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

  Result<std::unique_ptr<OutputFile>> create(const std::string& path, WhenMapped when_mapped) override {
    struct stat st {};
    if (when_mapped == WhenMapped::refuse && ::stat(path.c_str(), &st) == 0 && MappedNow::all().contains(st)) {
      return error(Code::usage, "{} is read by this command, too; name another file to write", path);
    }
    return create_output_file(path);
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

  uint64_t available_memory() override {
    return switchyard::available_memory([](const std::string& path) {  // these files do not tell their size
      std::ostringstream text;
      text << std::ifstream(path).rdbuf();
      return text.str();
    });
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
