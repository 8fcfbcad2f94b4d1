// SPDX-License-Identifier: Apache-2.0
// What commands print: results on standard output, progress and errors on standard error.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "cli/say.h"
#include "core/base/status.h"

namespace switchyard::cli {

// A line on stderr that is rewritten in place, when stderr is a terminal; shown after a second of work.
class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();
  void update(uint64_t done, uint64_t total);
  bool on_terminal() const { return terminal_; }

 private:
  std::string what_;
  uint64_t begin_ns_, shown_ns_ = 0;
  bool terminal_, drawn_ = false;
};

double seconds_since(uint64_t begin_ns);

// One JSON value and a newline on stdout; bytes that are not UTF-8 (of a file's name, say) become U+FFFD.
void print_json(const nlohmann::ordered_json& value, int indent = -1);
// Prints a result on standard output as it is. If the command fails afterwards, its error is not added there as JSON,
// so that what is printed stays one document.
void print_document(std::string_view text);
bool printed_document();

// Prints "switchyard: message" to stderr and returns the exit code: 2 for a wrong request, 1 for everything else.
int report(const Status& status);

}  // namespace switchyard::cli
