// SPDX-License-Identifier: Apache-2.0
// FileLock: one process at a time does a piece of work, by flock(2) on a file that nothing else uses.
#pragma once

#include <functional>
#include <string>

#include "core/base/cancel.h"
#include "core/base/output_file.h"

namespace switchyard {

class FileLock {
 public:
  // Waits until no other process or thread has the lock; `waits` is called once if there is one. The file and its
  // folder are created. Errors: io; cancelled.
  static Result<FileLock> acquire(const std::string& path, const CancelCheck& cancelled,
                                  const std::function<void()>& waits = {});

  // Deletes the file with the lock still held, so that no one waits for a file that is gone.
  void remove_file();

 private:
  FileLock(std::string path, Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  std::string path_;
  Fd fd_;  // closing it releases the lock
};

}  // namespace switchyard
