// SPDX-License-Identifier: Apache-2.0
// TextThread: a session, and the text that its tokens stand for. A text that goes on where that one ends is read from
// there; any other is read from its beginning, since the states of a session cannot be cut back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/engine/session.h"
#include "core/text/tokenizer.h"

namespace switchyard {

class TextThread {
 public:
  // Both outlive it. The session is empty, and used through this object alone from now on.
  TextThread(Session& session, const Tokenizer& tokenizer) : session_(session), tokenizer_(tokenizer) {}

  // What the session has seen and what was drawn after it, as text.
  const std::string& text() const { return text_; }
  const std::vector<int32_t>& seen() const { return seen_; }  // the session's tokens
  const std::vector<int32_t>& owed() const { return owed_; }  // the rest of the text's: drawn, but not fed
  Session& session() const { return session_; }               // which is not a part of the thread

  // What has to be fed before the session has seen a text.
  struct Reading {
    std::string text;
    std::vector<int32_t> fresh;  // tokens to feed
    bool anew = false;           // the session has to forget what it has seen first
    // Tokens of the whole text.
    size_t total(const TextThread& thread) const { return fresh.size() + (anew ? 0 : thread.seen_.size()); }
  };
  // Changes nothing. Special tokens in the text count as tokens but for those marked by Tokenizer::quote_specials.
  // Errors: usage, for a text that is not UTF-8.
  Result<Reading> read(std::string text) const;

  // After the session has been fed `reading.fresh`, emptied before if the reading is anew. `drawn`: the tokens that
  // came after it, without a stop id; `answer`: what was shown of them. Where the session has not seen just the text's
  // tokens (a stop string was cut off, the reading was cancelled) it is emptied, and the next reading begins anew.
  void end(const Reading& reading, std::vector<int32_t> drawn, const std::string& answer);

  // Forgets the tokens; the text stays.
  void forget_tokens();
  void clear();
  // As saved by another thread, whose session's states the session has taken on.
  void resume(std::string text, std::vector<int32_t> seen, std::vector<int32_t> owed);

 private:
  Session& session_;
  const Tokenizer& tokenizer_;
  std::string text_;
  std::vector<int32_t> seen_, owed_;
};

}  // namespace switchyard
