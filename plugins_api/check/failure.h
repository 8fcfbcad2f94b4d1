// How the kit's own code gives up: Failure, with one line of text. It never crosses the public functions of check.h.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace switchyard::check {

class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Its arguments one after the other, as operator<< prints them.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

}  // namespace switchyard::check
