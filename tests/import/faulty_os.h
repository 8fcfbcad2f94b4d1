// SPDX-License-Identifier: Apache-2.0
// The real system, counting every call that can fail, and failing one of them, or running out of disk.
#pragma once

#include <limits>

#include "core/base/os.h"

namespace switchyard::testing {

struct Faults {
  uint64_t fail_call = 0;                                      // this call fails, counted from 1; 0: none
  uint64_t disk_bytes = std::numeric_limits<uint64_t>::max();  // writes beyond this many bytes fail
  bool lie_about_space = true;                                 // claims that the disk has space

  uint64_t calls = 0, writes = 0;  // counted
  Status next(const char* what);
};

class FaultyOs : public Os {
 public:
  Faults faults;

  Result<std::unique_ptr<MappedFile>> map(const std::string& path) override;
  Result<std::string> read(const std::string& path, uint64_t max_bytes) override;
  Result<std::unique_ptr<OutputFile>> create(const std::string& path, WhenMapped when_mapped) override;
  bool exists(const std::string& path) override { return real().exists(path); }
  Result<std::vector<std::string>> list(const std::string& folder) override;
  Result<uint64_t> free_bytes(const std::string& folder) override;
  Result<void*> open_library(const std::string& path) override { return real().open_library(path); }
  Result<void*> symbol(void* library, const char* name) override { return real().symbol(library, name); }
  uint64_t now_ns() override { return real().now_ns(); }
};

}  // namespace switchyard::testing
