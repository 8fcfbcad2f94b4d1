// SPDX-License-Identifier: Apache-2.0
// The lines that were typed in chats, kept from one to the next in a file of the user's alone.
#pragma once

#include <string>
#include <vector>

namespace switchyard::cli {

// $XDG_STATE_HOME/switchyard/chat_history, or the same under ~/.local/state; "" when there is no absolute path to it.
std::string chat_history_path();

class ChatHistory {
 public:
  // `path` "": nothing is kept.
  explicit ChatHistory(std::string path) : path_(std::move(path)) {}

  // Earlier lines, oldest first. What cannot be read is told as a warning.
  std::vector<std::string> load();
  // Appends a line, unless it is long. After a failure, which is told as a warning, no more is kept.
  void add(const std::string& line);

 private:
  std::string path_;
};

}  // namespace switchyard::cli
