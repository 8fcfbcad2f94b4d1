// SPDX-License-Identifier: Apache-2.0
#include "stored_pipelines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace gpu {
namespace {

constexpr char kMagic[8] = {'S', 'W', 'Y', 'V', 'K', 'P', 'C', '1'};
constexpr uint64_t kMost = uint64_t{1} << 28;  // bytes that are believed

uint64_t hash_of(const void* data, size_t bytes) {
  uint64_t hash = 14695981039346656037u;
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 1099511628211u;
  return hash;
}

std::string absolute(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value == '/' ? value : "";
}

// Closes itself.
class File {
 public:
  explicit File(int handle) : handle_(handle) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { close(); }
  bool is_open() const { return handle_ >= 0; }
  // Reads everything or fails: a short read is a failure.
  bool read(void* to, size_t bytes) const {
    return whole(bytes, [&](size_t at) { return ::read(handle_, static_cast<char*>(to) + at, bytes - at); });
  }
  bool write(const void* from, size_t bytes) const {
    return whole(bytes, [&](size_t at) { return ::write(handle_, static_cast<const char*>(from) + at, bytes - at); });
  }
  uint64_t bytes() const {
    struct stat s {};
    return ::fstat(handle_, &s) == 0 && S_ISREG(s.st_mode) ? static_cast<uint64_t>(s.st_size) : 0;
  }
  bool close() {
    const int handle = handle_;
    handle_ = -1;
    return handle < 0 || ::close(handle) == 0;
  }

 private:
  template <class Step>
  static bool whole(size_t bytes, const Step& step) {
    for (size_t at = 0; at < bytes;) {
      const ssize_t n = step(at);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      at += static_cast<size_t>(n);
    }
    return true;
  }
  int handle_;
};

// Creates the folder and its parents, for the user alone. Failures show when a file is created.
void make_folders(const std::string& folder) noexcept {
  char path[PATH_MAX];
  if (folder.size() >= sizeof path) return;
  std::memcpy(path, folder.c_str(), folder.size() + 1);
  for (char* at = path + 1; *at != '\0'; ++at) {
    if (*at != '/') continue;
    *at = '\0';
    ::mkdir(path, 0700);
    *at = '/';
  }
  ::mkdir(path, 0700);
}

}  // namespace

void StoredPipelines::open(const PhysicalDevice& device, const char* plugin_version) {
  std::memcpy(expected_.magic, kMagic, sizeof kMagic);
  std::snprintf(expected_.plugin_version, sizeof expected_.plugin_version, "%s", plugin_version);
  expected_.driver = device.driver;
  std::string caches = absolute("XDG_CACHE_HOME");
  if (caches.empty() && !absolute("HOME").empty()) caches = absolute("HOME") + "/.cache";
  if (caches.empty()) return;
  char name[32];
  std::snprintf(name, sizeof name, "/pipelines-%016llx",
                static_cast<unsigned long long>(hash_of(&expected_, sizeof expected_)));
  folder_ = caches + "/switchyard/vulkan";
  file_ = folder_ + name;
}

std::vector<char> StoredPipelines::load() {
  if (file_.empty()) return {};
  const File file(::open(file_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  Header found{};
  const uint64_t bytes = file.is_open() ? file.bytes() : 0;
  if (bytes < sizeof found || !file.read(&found, sizeof found)) return {};
  expected_.bytes = found.bytes;
  expected_.hash = found.hash;
  if (std::memcmp(&found, &expected_, sizeof found) != 0) return {};
  if (found.bytes > kMost || bytes != sizeof found + found.bytes) return {};
  std::vector<char> data(found.bytes);
  if (!file.read(data.data(), data.size()) || hash_of(data.data(), data.size()) != found.hash) return {};
  loaded_bytes_ = found.bytes;
  loaded_hash_ = found.hash;
  return data;
}

void StoredPipelines::store(const void* data, size_t bytes) noexcept {
  if (file_.empty() || bytes == 0 || bytes > kMost) return;
  Header header = expected_;
  header.bytes = bytes;
  header.hash = hash_of(data, bytes);
  if (header.bytes == loaded_bytes_ && header.hash == loaded_hash_) return;
  make_folders(folder_);
  // Written under another name first: other processes find the old file or the new one, whole.
  char fresh[PATH_MAX];
  const int length = std::snprintf(fresh, sizeof fresh, "%s.XXXXXX", file_.c_str());
  if (length < 0 || static_cast<size_t>(length) >= sizeof fresh) return;
  File file(::mkostemp(fresh, O_CLOEXEC));
  if (!file.is_open()) return;
  const bool written = file.write(&header, sizeof header) && file.write(data, bytes);
  if (!file.close() || !written || ::rename(fresh, file_.c_str()) != 0) ::unlink(fresh);
}

}  // namespace gpu
