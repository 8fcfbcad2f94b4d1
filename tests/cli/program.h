// SPDX-License-Identifier: Apache-2.0
// Runs the built `switchyard` program in a separate process, as a person or a script would.
#pragma once

#include <sys/types.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace switchyard::testing {

using Arguments = std::vector<std::string>;

struct Conditions {
  std::map<std::string, std::string> environment;  // in addition to the test's own environment without SWITCHYARD_*
  std::string out;                                 // file that takes standard output; "": read here
  uint64_t file_limit = 0;                         // bytes that a file may grow to; 0: no limit
  bool terminal = false;  // all three streams are a terminal of 80 columns, read as standard output here
};

// A running program. Ends with its object, which kills what still runs.
class Child {
 public:
  explicit Child(const Arguments& arguments, const Conditions& conditions = {});
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();

  void write(const std::string& text);
  void close_input();
  void signal(int number) const;
  // Reads until standard output (1) or error (2) holds `text` `times` times. False when the program ended before that,
  // or after a minute.
  bool wait_for(int stream, const std::string& text, size_t times = 1);
  bool wait_for_bytes(size_t count);             // the same, until standard output holds so many
  bool wait_until_it_catches(int number) const;  // this signal, which would have ended it before
  // Closes the input and reads to the end. The exit code, or minus the signal that ended the program.
  int finish();

  std::string out, err;  // read so far

 private:
  bool read_some();  // false at the end of both streams

  pid_t pid_ = -1;
  int in_ = -1;
  int streams_[2] = {-1, -1};
};

struct Ran {
  int exit = 0;
  std::string out, err;
};
Ran run_program(const Arguments& arguments, const std::string& input = "", const Conditions& conditions = {});

// Runs it with success, and parses its output.
nlohmann::json run_json(const Arguments& arguments, const Conditions& conditions = {});

}  // namespace switchyard::testing
