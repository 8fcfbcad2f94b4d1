// SPDX-License-Identifier: Apache-2.0
// switchyard-plugin-check as a user runs it: its output and exit code.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace switchyard::check {

struct Said {
  std::string text;  // standard output and error
  int code = -1;
};

inline FILE* start_program(const std::string& arguments) {
  return ::popen((std::string(SWITCHYARD_PLUGIN_CHECK " ") + arguments + " 2>&1").c_str(), "r");
}
inline Said end_of_program(FILE* pipe) {
  Said said;
  if (pipe == nullptr) return said;
  std::array<char, 4096> bytes;
  for (size_t n = 0; (n = std::fread(bytes.data(), 1, bytes.size(), pipe)) > 0;) said.text.append(bytes.data(), n);
  said.code = WEXITSTATUS(::pclose(pipe));
  return said;
}
inline Said run_program(const std::string& arguments) { return end_of_program(start_program(arguments)); }

// A plugin of tests/ops/fixtures.
inline std::string fixture(const std::string& name) { return SWITCHYARD_FIXTURES "/switchyard_broken_" + name + ".so"; }

}  // namespace switchyard::check
