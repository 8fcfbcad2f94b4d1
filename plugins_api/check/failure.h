// SPDX-License-Identifier: Apache-2.0
// How the kit's own code gives up: Failure, with one line of text. It never crosses the public functions of kit.h and
// worker.h.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace switchyard::check {

class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The plugin refuses the settings on this machine: SWY_UNSUPPORTED with SWY_REASON_ARCH.
class WrongMachine : public Failure {
 public:
  using Failure::Failure;
};

// The check does not apply: the plugin does not claim the feature, or refuses with the reason in this exception.
class Unsupported : public Failure {
 public:
  using Failure::Failure;
};

// Its arguments one after the other, as operator<< prints them.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// Whether it can be written in a command line, and in a list.
inline bool is_one_word(const char* s) {
  return s != nullptr && *s != '\0' && std::string(s).find_first_of(" \t\n,/=") == std::string::npos;
}

}  // namespace switchyard::check
