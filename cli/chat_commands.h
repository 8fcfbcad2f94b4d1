// SPDX-License-Identifier: Apache-2.0
// What a chat does besides answering: the lines that begin with a slash.
#pragma once

#include <optional>
#include <string>

#include "cli/conversation.h"

namespace switchyard::cli {

struct ChatState {
  const Speaker& speaker;
  Conversation conversation;
  TextOptions options;
  bool stats = false;  // after every answer
  std::optional<Generation> last = {};
  bool ended = false;
};

// Whether a line is a command: a slash, then letters alone up to a space or the end, on one line.
bool is_command(const std::string& line);
// Runs it; what it has to say goes to standard error. Errors: usage, for an unknown command or a wrong value; those of
// the files that it names.
Status run_command(ChatState& chat, const std::string& line);

// The figures of an answer, on one line.
std::string stats_line(const ChatState& chat, const Generation& g);

}  // namespace switchyard::cli
