// SPDX-License-Identifier: Apache-2.0
// Os: every use of the operating system in core, behind one replaceable interface, so that tests can make any of it
// fail. All entries are thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace switchyard {

// A whole file, mapped read-only and private. Unmapped by the destructor.
class MappedFile {
 public:
  virtual ~MappedFile() = default;
  virtual std::span<const std::byte> bytes() const = 0;
  // Before a range is read. A real file has nothing to do; one that makes its content on demand makes it here, again
  // after a release.
  virtual void require(size_t offset, size_t size) const {
    (void)offset;
    (void)size;
  }
  // Tells the kernel that this range will not be read again soon, so that its pages stop counting as resident.
  virtual void release(size_t offset, size_t size) const = 0;
};

// A file being written. Destroying it without `commit` deletes the written data.
class OutputFile {
 public:
  virtual ~OutputFile() = default;
  virtual Status append(std::span<const std::byte> bytes) = 0;
  // Overwrites bytes already appended.
  virtual Status write_at(uint64_t offset, std::span<const std::byte> bytes) = 0;
  virtual uint64_t size() const = 0;
  // Only the owner may read or write the file (mode 0600), whatever the umask says. Before `commit`.
  virtual void keep_private() {}
  // Flushes to disk and replaces what is at the path, atomically; or copies to the pipe.
  virtual Status commit() = 0;
};

// What Os::create does with a file that is mapped now, and so probably read by the same command.
enum class WhenMapped { refuse, replace };

class Os {
 public:
  virtual ~Os() = default;

  // Errors: not_found; io with the system's reason.
  virtual Result<std::unique_ptr<MappedFile>> map(const std::string& path) = 0;
  virtual Result<std::string> read(const std::string& path, uint64_t max_bytes) = 0;
  // Nothing appears at `path` until it is committed: the file is written beside it under a temporary name. A new file
  // has the mode that the umask leaves, a replaced one keeps mode and owner. Symbolic links stay, and what they lead to
  // is replaced; maps of it stay valid. A device, pipe or terminal is written to. Errors: usage, when `path` is empty,
  // a folder, or a mapped file that may not be replaced; io.
  virtual Result<std::unique_ptr<OutputFile>> create(const std::string& path,
                                                     WhenMapped when_mapped = WhenMapped::refuse) = 0;
  virtual bool exists(const std::string& path) = 0;
  // Names (not paths) of the entries of a folder, sorted.
  virtual Result<std::vector<std::string>> list(const std::string& folder) = 0;
  virtual Result<uint64_t> free_bytes(const std::string& folder) = 0;

  // dlopen(RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE); a library is never unloaded.
  virtual Result<void*> open_library(const std::string& path) = 0;
  virtual Result<void*> symbol(void* library, const char* name) = 0;

  // Bytes of memory that this process may still take; 0: unknown.
  virtual uint64_t available_memory() { return 0; }

  virtual uint64_t now_ns() = 0;  // monotonic

  static Os& real();
};

// Processor time that the calling thread has used, in nanoseconds.
uint64_t thread_cpu_ns();

}  // namespace switchyard
