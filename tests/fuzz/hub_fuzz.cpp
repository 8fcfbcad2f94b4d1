// SPDX-License-Identifier: Apache-2.0
// A hub's answers are untrusted: the input is the list of a repository's files. What is accepted has safe paths, hashes
// that can be file names, and models that consist of listed files.
#include <cstdint>
#include <string>

#include "core/hub/listing.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace hub = switchyard::hub;
  const std::string input(reinterpret_cast<const char*>(data), size);
  hub::parse_name(input);
  const auto list = hub::parse_listing(input, "o/n");
  if (!list.ok()) {
    if (list.status().message().size() > 2000) __builtin_trap();  // a line, not a dump of the answer
    return 0;
  }
  for (const hub::RemoteFile& f : list->files) {
    if (!hub::fault_of_path(f.path).empty() || f.path[0] == '/') __builtin_trap();
    if (f.digest.find_first_not_of("0123456789abcdef") != std::string::npos) __builtin_trap();
  }
  for (const hub::Choice& c : hub::models_of(list->named())) {
    if (c.files.empty()) __builtin_trap();
    for (const std::string& path : c.files) {
      if (list->find(path) == nullptr) __builtin_trap();
    }
  }
  return 0;
}
