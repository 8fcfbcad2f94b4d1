// SPDX-License-Identifier: Apache-2.0
#include "core/hub/download.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <mutex>

#include "core/base/file_lock.h"
#include "core/base/printable.h"
#include "core/base/threads.h"
#include "core/hub/digest.h"

namespace switchyard::hub {
namespace {

constexpr long kWhole = 200;
constexpr size_t kFilesAtATime = 4;

// What the threads of one pull share.
struct Pull {
  const Http& http;
  const Cache& cache;
  const std::string& repo;
  const Listing& listing;
  const PullOptions& options;
  uint64_t total = 0;
  uint64_t done = 0;  // of `total`, under the mutex
  std::mutex mutex = {};
  std::atomic<bool> failed = false;

  bool stops() const { return failed.load() || (options.cancelled && options.cancelled()); }
  void arrived(uint64_t bytes) {
    const std::lock_guard lock(mutex);
    done += bytes;
    if (options.progress) options.progress(std::min(done, total), total);
  }
  void lost(uint64_t bytes) {  // they must be fetched again
    const std::lock_guard lock(mutex);
    total += bytes;
  }
  void note(const std::string& line) {
    const std::lock_guard lock(mutex);
    if (options.note) options.note(line);
  }
};

std::string incomplete(const Cache& cache, const std::string& repo, const RemoteFile& file) {
  return cache.blob(repo, file.digest) + ".incomplete";
}

uint64_t size_of(const std::string& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode) ? static_cast<uint64_t>(st.st_size) : 0;
}

bool is_there(const Cache& cache, const std::string& repo, const RemoteFile& file) {
  const std::string blob = cache.blob(repo, file.digest);
  return ::access(blob.c_str(), F_OK) == 0 && size_of(blob) == file.bytes;
}

// The part of a file that has arrived, and its hash so far.
class Partial {
 public:
  Partial(Pull& pull, const RemoteFile& file)
      : pull_(pull), file_(file), path_(incomplete(pull.cache, pull.repo, file)), digest_(file.digest, file.bytes) {}
  uint64_t size() const { return size_; }
  bool whole() const { return size_ == file_.bytes; }

  // Reads what an earlier command left.
  Status open() {
    fd_ = Fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
    struct stat st {};
    if (fd_.get() < 0 || ::fstat(fd_.get(), &st) != 0) return io_error("write", path_, errno);
    if (!S_ISREG(st.st_mode)) return io_error("write", path_, EINVAL);
    constexpr int64_t kMuch = int64_t{64} << 20;  // takes a moment to hash
    if (st.st_size > kMuch) {
      pull_.note(fmt::format("{}: {} of {} MiB are here; they are checked before the rest is fetched", file_.path,
                             st.st_size >> 20, file_.bytes >> 20));
    }
    if (static_cast<uint64_t>(st.st_size) > file_.bytes) {
      pull_.lost(file_.bytes);
      return empty();
    }
    std::vector<std::byte> part(size_t{1} << 20);
    while (true) {
      const ssize_t n = ::pread(fd_.get(), part.data(), part.size(), static_cast<off_t>(size_));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return io_error("read", path_, errno);
      if (n == 0) return {};
      digest_.add(std::span(part).first(static_cast<size_t>(n)));
      size_ += static_cast<uint64_t>(n);
      if (pull_.stops()) return error(Code::cancelled, "stopped; the same command continues");
    }
  }

  Status empty() {
    if (::ftruncate(fd_.get(), 0) != 0) return io_error("write", path_, errno);
    digest_ = Digest(file_.digest, file_.bytes);
    pull_.lost(std::exchange(size_, 0));
    return {};
  }

  Status append(std::span<const std::byte> bytes) {
    if (bytes.size() > file_.bytes - size_) {
      return error(Code::invalid_data, "the server sends more than the {} bytes that the list of files tells",
                   file_.bytes);
    }
    digest_.add(bytes);
    for (std::span<const std::byte> rest = bytes; !rest.empty();) {
      const ssize_t n = ::pwrite(fd_.get(), rest.data(), rest.size(), static_cast<off_t>(size_));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == ENOSPC) {
        return error(Code::io, "the disk of {} is full; free some space and run this again, which continues",
                     pull_.cache.folder());
      }
      if (n < 0) return io_error("write", path_, errno);
      rest = rest.subspan(static_cast<size_t>(n));
      size_ += static_cast<uint64_t>(n);
    }
    pull_.arrived(bytes.size());
    return {};
  }

  // Compares the hash, and gives the file its name. A wrong file is deleted.
  Status finish() {
    const std::string found = digest_.text();
    if (found != file_.digest) {
      ::unlink(path_.c_str());
      return error(Code::invalid_data, "its hash is {} and not {}, which the list of files tells; it was deleted",
                   found, file_.digest);
    }
    if (::fsync(fd_.get()) != 0 || !fd_.close()) return io_error("write", path_, errno);
    const std::string blob = pull_.cache.blob(pull_.repo, file_.digest);
    return ::rename(path_.c_str(), blob.c_str()) == 0 ? Status() : io_error("rename to", blob, errno);
  }

 private:
  Pull& pull_;
  const RemoteFile& file_;
  std::string path_;
  Fd fd_;
  uint64_t size_ = 0;
  Digest digest_;
};

// Whether an answer's content begins where the partial file ends, and ends where the file does.
Status check_range(const HttpHead& head, const RemoteFile& file, Partial& partial) {
  if (head.status == kWhole) {
    if (partial.size() > 0) SWY_TRY(partial.empty());  // this server cannot begin in the middle
    const std::string length = head.header("content-length");
    if (length.empty() || length == std::to_string(file.bytes)) return {};
    return error(Code::invalid_data, "the server announces {} bytes, and the list of files tells {}", printable(length),
                 file.bytes);
  }
  const std::string range = head.header("content-range");
  const std::string wanted = fmt::format("bytes {}-{}/{}", partial.size(), file.bytes - 1, file.bytes);
  if (range == wanted) return {};
  return error(Code::invalid_data, "the server sends '{}' where '{}' was asked for", printable(range), wanted);
}

// The hub names the file that it gives out.
Status check_etag(const HttpHead& head, const RemoteFile& file) {
  std::string etag = head.header("x-linked-etag");
  if (etag.empty()) etag = head.header("etag");
  if (etag.starts_with("W/")) etag.erase(0, 2);
  std::erase(etag, '"');
  const bool hash =
      etag.size() == file.digest.size() && etag.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!hash || etag == file.digest) return {};
  return error(Code::invalid_data, "the hub gives out a file with the hash {} and not {}, which its list tells", etag,
               file.digest);
}

HttpRequest request_for(Pull& pull, const RemoteFile& file, Partial& partial) {
  HttpRequest request;
  request.url = fmt::format("{}/{}/resolve/{}/{}", pull.http.settings().endpoint, url_path(pull.repo),
                            pull.listing.commit, url_path(file.path));
  request.what = pull.repo + ": " + file.path;
  request.from = partial.size();
  request.cancelled = [&pull] { return pull.stops(); };
  const std::string what = request.what;
  request.named = [&file, what](const HttpHead& head) { return check_etag(head, file).in(what); };
  request.begin = [&file, &partial, what](const HttpHead& h) { return check_range(h, file, partial).in(what); };
  request.body = [&partial, what](std::span<const std::byte> bytes) { return partial.append(bytes).in(what); };
  return request;
}

// Until the whole file has arrived. Attempts are counted anew where one has brought something.
Status receive(Pull& pull, const RemoteFile& file, Partial& partial) {
  constexpr uint64_t kSome = uint64_t{1} << 20;
  const auto note = [&](const std::string& line) { pull.note(line); };
  uint64_t counted = partial.size();
  for (uint32_t number = 1; !partial.whole();) {
    const HttpRequest request = request_for(pull, file, partial);
    HttpFault fault = pull.http.attempt(request);
    if (fault.status.ok() && !partial.whole()) {
      fault = {
          error(Code::io, "{}: the connection was cut after {} of {} bytes", request.what, partial.size(), file.bytes),
          true};
    }
    if (fault.status.ok()) break;
    if (pull.failed.load()) return error(Code::cancelled, "stopped");
    if (partial.size() >= counted + kSome) {
      counted = partial.size();
      number = 1;
    }
    SWY_TRY(pull.http.wait(
        fault, ++number, [&] { return pull.stops(); }, note));
  }
  return {};
}

Status fetch(Pull& pull, const RemoteFile& file) {
  const Cache& cache = pull.cache;
  if (is_there(cache, pull.repo, file)) return cache.link(pull.repo, pull.listing.commit, file.path, file.digest);
  SWY_LET(const FileLock lock,
          FileLock::acquire(
              cache.lock(pull.repo, file.digest), [&] { return pull.stops(); },
              [&] { pull.note(fmt::format("{}: another process is fetching it; waiting", file.path)); }));
  if (!is_there(cache, pull.repo, file)) {
    std::error_code ec;  // what cannot be made is missing when the file is written
    std::filesystem::create_directories(cache.repo_folder(pull.repo) + "/blobs", ec);
    Partial partial(pull, file);
    SWY_TRY(partial.open());
    const bool resumed = partial.size() > 0;
    SWY_TRY(receive(pull, file, partial));
    Status finished = partial.finish();
    if (finished.code() == Code::invalid_data && resumed) {  // it may be the older part that was wrong
      pull.note(fmt::format("{}: what was there of it is damaged; it is fetched anew", file.path));
      pull.lost(file.bytes);
      Partial anew(pull, file);
      SWY_TRY(anew.open());
      SWY_TRY(receive(pull, file, anew));
      finished = anew.finish();
    }
    SWY_TRY(finished.in(pull.repo + ": " + file.path));
  }
  return cache.link(pull.repo, pull.listing.commit, file.path, file.digest);
}

}  // namespace

uint64_t missing_bytes(const Cache& cache, const std::string& repo, const std::vector<RemoteFile>& files) {
  uint64_t all = 0;
  for (const RemoteFile& f : files) {
    if (!is_there(cache, repo, f)) all += f.bytes - std::min(f.bytes, size_of(incomplete(cache, repo, f)));
  }
  return all;
}

Status pull_files(const Http& http, const Cache& cache, const std::string& repo, const Listing& listing,
                  const std::vector<RemoteFile>& files, const PullOptions& options) {
  Pull pull{http, cache, repo, listing, options, missing_bytes(cache, repo, files)};
  std::atomic<size_t> next = 0;
  Status first;
  on_threads(std::min(kFilesAtATime, files.size()), [&] {
    for (size_t i = next++; i < files.size() && !pull.stops(); i = next++) {
      const Status fetched = within_memory([&] { return fetch(pull, files[i]); });
      if (fetched.ok()) continue;
      const std::lock_guard lock(pull.mutex);
      if (!pull.failed.exchange(true)) first = fetched;
    }
  });
  SWY_TRY(first);
  SWY_TRY(check_cancelled(options.cancelled, "fetching files; the same command continues"));
  return cache.set_main(repo, listing.commit);
}

}  // namespace switchyard::hub
