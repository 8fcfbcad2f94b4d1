// SPDX-License-Identifier: Apache-2.0
// The real system, for tests that replace some of it.
#pragma once

#include "core/base/os.h"

namespace switchyard {

class ForwardingOs : public Os {
 public:
  Result<std::unique_ptr<MappedFile>> map(const std::string& path) override { return real().map(path); }
  Result<std::string> read(const std::string& path, uint64_t most) override { return real().read(path, most); }
  Result<std::unique_ptr<OutputFile>> create(const std::string& path, WhenMapped when_mapped) override {
    return real().create(path, when_mapped);
  }
  bool exists(const std::string& path) override { return real().exists(path); }
  Result<std::vector<std::string>> list(const std::string& folder) override { return real().list(folder); }
  Result<uint64_t> free_bytes(const std::string& folder) override { return real().free_bytes(folder); }
  Result<void*> open_library(const std::string& path) override { return real().open_library(path); }
  Result<void*> symbol(void* library, const char* name) override { return real().symbol(library, name); }
  uint64_t available_memory() override { return real().available_memory(); }
  uint64_t now_ns() override { return real().now_ns(); }
};

}  // namespace switchyard
