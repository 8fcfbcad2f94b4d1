// SPDX-License-Identifier: Apache-2.0
// Shared by the plugin tests: fixture files, an operating system that fails on demand.
#pragma once

#include <string>
#include <vector>

#include "core/base/os.h"
#include "core/plugin/registry.h"
#include "tests/support/files.h"

namespace switchyard::testing {

// The file of a fixture plugin, e.g. "good".
std::string fixture(const std::string& name);

// Discovers with these --backend-lib files alone.
Registry discover(const std::vector<std::string>& libraries, Os& os = Os::real());
// The reason with which the only candidate was turned down; "" when it was accepted.
std::string reason_of(const std::string& library, Os& os = Os::real());
const Host& test_host();

// The real system, except for one entry that fails.
class FailingOs : public Os {
 public:
  bool fail_map = false, fail_list = false, fail_open_library = false;

  Result<std::unique_ptr<MappedFile>> map(const std::string& path) override;
  Result<std::string> read(const std::string& path, uint64_t max_bytes) override;
  Result<std::unique_ptr<OutputFile>> create(const std::string& path, WhenMapped when_mapped) override;
  bool exists(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& folder) override;
  Result<uint64_t> free_bytes(const std::string& folder) override;
  Result<void*> open_library(const std::string& path) override;
  Result<void*> symbol(void* library, const char* name) override;
  uint64_t now_ns() override;
};

}  // namespace switchyard::testing
