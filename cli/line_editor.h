// SPDX-License-Identifier: Apache-2.0
// LineEditor: a line typed at a terminal, with libedit: editing, history, UTF-8, and pastes of several lines as one.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace switchyard::cli {

class LineEditor {
 public:
  // `history`: earlier lines, oldest first. NULL where standard input and error are no terminal that can be edited on.
  // Needs a locale of UTF-8, see `use_utf8_locale`.
  static std::unique_ptr<LineEditor> create(const std::vector<std::string>& history);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  enum class Got { line, interrupt, end };
  // Shows `prompt` on standard error. A line may hold line ends: of a paste, or of Alt-Enter. `interrupt`: a signal
  // came, and `interrupted` is set.
  Got read(const std::string& prompt, std::string& line);
  void remember(const std::string& line);

  struct Impl;

 private:
  explicit LineEditor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Sets the locale's characters to UTF-8 where the environment names none of it. Before any thread.
void use_utf8_locale();

}  // namespace switchyard::cli
