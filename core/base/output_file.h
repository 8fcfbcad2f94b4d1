// SPDX-License-Identifier: Apache-2.0
// The files that this process writes.
#pragma once

#include <memory>
#include <string>

#include "core/base/os.h"

namespace switchyard {

// Implements Os::create for the real system.
Result<std::unique_ptr<OutputFile>> create_output_file(const std::string& path);

// Deletes the temporary files of outputs that were not committed. Async-signal-safe: for handlers of signals that end
// the process.
void remove_unfinished_files();

// "cannot VERB PATH: reason" for an errno; not_found where a file or folder is missing.
Status io_error(const char* verb, const std::string& path, int err);

// A file descriptor, closed with its object.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept;
  Fd& operator=(Fd&& other) noexcept;
  ~Fd();
  int get() const { return fd_; }
  // Closes it, which may be when a write fails. False, with errno, where it does.
  bool close();

 private:
  int fd_;
};

}  // namespace switchyard
