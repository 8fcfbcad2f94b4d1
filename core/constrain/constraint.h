// SPDX-License-Identifier: Apache-2.0
// Constraint: a language that a generated text must belong to, compiled for one vocabulary; and ConstraintMatcher,
// which follows one text and says which tokens may come next.
//
// A mask allows exactly the tokens after which the text can still be completed, so that following masks never leads
// to a dead end. (After 256 bytes of space between the parts of a JSON text it allows no more space.) Where a text may
// end, the tokens that end a generation are allowed, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/constrain/list_reader.h"
#include "core/text/token_trie.h"

namespace switchyard {

enum class ConstraintKind : uint8_t {
  regex,        // a regular expression that the whole text matches
  json_schema,  // JSON Schema (draft 2020-12 and most of the older ones)
  json_object,  // any JSON object; the text is not used
  choice,       // a JSON list of texts, one of which is the whole text
  gbnf,         // llama.cpp's grammar format
  lark,         // a grammar in the style of Lark
  tool_calls,   // JSON: the tools, the choice, the format (tool_calls.h)
};

struct ConstraintLimits {
  size_t text_bytes = size_t{1} << 20;     // of the constraint
  size_t expressions = size_t{1} << 20;    // of the compiled form
  size_t memory_bytes = size_t{64} << 20;  // of states and masks, together for all that follow it
  uint64_t compile_ns = 5'000'000'000;
  uint32_t new_states = 1 << 14;  // that one mask or token may make
  // That all masks and tokens of one text may make, and so many more for each of its bytes.
  uint32_t text_states = 1 << 15, byte_states = 32;
};

namespace constrain {
class Automaton;
class Grammar;
}  // namespace constrain

class Constraint {
 public:
  // Errors: usage, with what is wrong in the text, or which part of it is not supported.
  static Result<std::shared_ptr<const Constraint>> compile(ConstraintKind kind, std::string_view text,
                                                           std::shared_ptr<const TokenTrie> vocabulary,
                                                           const ConstraintLimits& limits = {});
  ~Constraint();

  const TokenTrie& vocabulary() const { return *vocabulary_; }

 private:
  friend class ConstraintMatcher;
  struct Shared;
  Constraint() = default;
  // The automaton that matchers share. [thread-safe]
  std::shared_ptr<constrain::Automaton> automaton() const;

  std::unique_ptr<constrain::Grammar> grammar_;
  std::shared_ptr<const TokenTrie> vocabulary_;
  std::unique_ptr<Shared> shared_;
  bool json_ = false;    // space between the parts of a text means nothing
  bool unique_ = false;  // it has lists of strings that must differ
};

// A copy follows its own text from there on. One matcher belongs to one thread at a time; matchers of one constraint
// may be used by several threads at once.
class ConstraintMatcher {
 public:
  // `end_ids` are allowed where the text may end.
  explicit ConstraintMatcher(std::shared_ptr<const Constraint> constraint, std::span<const int32_t> end_ids = {});

  // Sets the bits of the tokens that may come next, in a mask of zeros. A mask may be longer than the vocabulary.
  // Errors: unsupported, when that needs more memory or time than the limits allow: which, and what to do; the mask is
  // all zeros then.
  Status mask(std::span<uint32_t> mask);
  // The text goes on with this token. Errors: usage, if it may not, and the matcher is then as before; unsupported, as
  // above. An end id changes nothing, where the text may end.
  Status accept(int32_t token);
  Status accept_text(std::string_view bytes);
  // Whether the text may end here.
  bool can_end();
  // It may end, and nothing can follow.
  bool finished();
  // What the text must go on with, whatever is chosen; at most `max_bytes`. Often empty, and always after it
  // has taken too much.
  std::string forced_text(size_t max_bytes = 1024);
  // The same, where spaces and escapes, which JSON allows almost everywhere, count as no other way to go on: a guess.
  std::string likely_text(size_t max_bytes);

  const std::string& text() const { return text_; }

 private:
  Status fill(std::span<uint32_t> mask);
  Status follow();  // to a fresh automaton, when the shared one is full
  Status failure(std::string_view why) const;
  Status count();
  uint64_t allowed_states() const;
  bool is_end(int32_t token) const;
  bool endless_space();
  uint32_t next(uint32_t state, char byte, constrain::ListReader& lists);
  bool can_follow(std::string_view bytes);
  int likely_byte(uint32_t state);
  template <class Byte>
  std::string text_by(size_t max_bytes, Byte byte);

  std::shared_ptr<const Constraint> constraint_;
  std::shared_ptr<constrain::Automaton> automaton_;
  std::vector<int32_t> end_ids_;
  uint32_t state_ = 0;
  uint64_t made_ = 0;        // states, of which there is a limit
  uint64_t ahead_ = 0;       // states of forced and likely text, of which there is the same limit
  bool looks_ahead_ = true;  // it has had no trouble with them
  std::string text_;
  constrain::ListReader lists_;  // where items must differ
};

}  // namespace switchyard
