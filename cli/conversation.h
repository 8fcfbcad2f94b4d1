// SPDX-License-Identifier: Apache-2.0
// Conversation: messages, and the session that has read them. Each turn feeds only what is new, and drops the oldest
// turns before the context is full.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/generate.h"
#include "core/generate/session_file.h"
#include "core/text/chat_template.h"

namespace switchyard::cli {

class Conversation {
 public:
  // `note` gets what the user should know: lines without an end.
  Conversation(Speaker& speaker, ChatTemplate chat_template, std::function<void(const std::string&)> note)
      : speaker_(speaker), template_(std::move(chat_template)), note_(std::move(note)) {}

  // The system message; "" removes it. The conversation goes on under the new one. Errors: usage, when the text is not
  // UTF-8.
  Status instruct(const std::string& text);
  std::string instructions() const;
  Status clear();  // all messages but the system's

  // The answer to the user's next message. Ctrl-C ends it, and what was shown is kept. A message that gets no answer
  // is forgotten. Errors: usage, for a message that does not fit the context, and a parameter out of range; those of
  // the template and the devices.
  Result<Generation> ask(const std::string& message, const TextOptions& options,
                         const std::function<void(const Event&)>& emit);

  Status save(const std::string& path) const;
  Status load(const std::string& path);  // errors as load_session

  size_t turns() const;                                          // messages of the user
  size_t used() const { return thread().session().position(); }  // tokens of the context

 private:
  Result<TextThread::Reading> read() const;
  Result<TextThread::Reading> read_without(size_t turns) const;
  Result<TextThread::Reading> fit(const TextOptions& options);
  Result<Generation> answer(const TextOptions& options, const std::function<void(const Event&)>& emit);
  const TextThread& thread() const { return speaker_.thread(); }
  size_t first_turn() const { return !messages_.empty() && messages_[0].role == "system" ? 1 : 0; }
  std::vector<size_t> turn_starts() const;

  Speaker& speaker_;
  ChatTemplate template_;
  std::function<void(const std::string&)> note_;
  std::vector<Message> messages_;
};

}  // namespace switchyard::cli
