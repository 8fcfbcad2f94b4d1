// SPDX-License-Identifier: Apache-2.0
#include "tests/plugin/support.h"

namespace switchyard::testing {

std::string fixture(const std::string& name) { return SWITCHYARD_FIXTURES "/switchyard_" + name + ".so"; }

const Host& test_host() {
  static const Host host(2);
  return host;
}

Registry discover(const std::vector<std::string>& libraries, Os& os) {
  DiscoveryOptions options;
  options.libraries = libraries;
  return Registry::discover(os, options, test_host());
}

std::string reason_of(const std::string& library, Os& os) {
  const Registry r = discover({library}, os);
  return r.candidates().size() == 1 ? r.candidates()[0].reason : "not one candidate";
}

Result<std::unique_ptr<MappedFile>> FailingOs::map(const std::string& path) {
  if (fail_map) return error(Code::io, "cannot map {}: told to fail", path);
  return real().map(path);
}
Result<std::string> FailingOs::read(const std::string& path, uint64_t max_bytes) {
  return real().read(path, max_bytes);
}
Result<std::unique_ptr<OutputFile>> FailingOs::create(const std::string& path, WhenMapped when_mapped) {
  return real().create(path, when_mapped);
}
bool FailingOs::exists(const std::string& path) { return real().exists(path); }
Result<std::vector<std::string>> FailingOs::list(const std::string& folder) {
  if (fail_list) return error(Code::io, "cannot list {}: told to fail", folder);
  return real().list(folder);
}
Result<uint64_t> FailingOs::free_bytes(const std::string& folder) { return real().free_bytes(folder); }
Result<void*> FailingOs::open_library(const std::string& path) {
  if (fail_open_library) return error(Code::invalid_data, "cannot open {}: told to fail", path);
  return real().open_library(path);
}
Result<void*> FailingOs::symbol(void* library, const char* name) { return real().symbol(library, name); }
uint64_t FailingOs::now_ns() { return real().now_ns(); }

}  // namespace switchyard::testing
