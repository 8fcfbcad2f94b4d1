// SPDX-License-Identifier: Apache-2.0
#include "core/constrain/constraint.h"

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "core/base/os.h"
#include "core/base/printable.h"
#include "core/constrain/automaton.h"
#include "core/constrain/front_ends.h"
#include "core/constrain/regex_syntax.h"

namespace switchyard {

using constrain::Automaton;
using constrain::Expr;
using constrain::Grammar;
using constrain::NodeId;

struct Constraint::Shared {
  std::mutex mutex;
  std::shared_ptr<Automaton> automaton;
  constrain::AutomatonLimits limits;
  uint32_t text_states = 0, byte_states = 0;
};

Constraint::~Constraint() = default;

namespace {

Result<NodeId> regex(Grammar& grammar, std::string_view text) {
  SWY_LET(const Expr e, constrain::parse_regex(grammar.expressions, text));
  return grammar.leaf(e);
}

Result<NodeId> choice(Grammar& grammar, std::string_view text) {
  SWY_LET(const nlohmann::json list, read_json(text, "the list of choices"));
  if (!list.is_array() || list.empty()) {
    return error(Code::usage, "{} is no list of choices; write [\"yes\", \"no\"]", brief(list));
  }
  std::vector<std::string_view> choices;
  for (const auto& one : list) {
    if (!one.is_string() || one.get_ref<const std::string&>().empty()) {
      return error(Code::usage, "choice {} is no text of one character or more", brief(one));
    }
    choices.emplace_back(one.get_ref<const std::string&>());
  }
  return grammar.leaf(grammar.expressions.one_of(std::move(choices)));
}

Result<NodeId> build(Grammar& grammar, ConstraintKind kind, std::string_view text) {
  switch (kind) {
    case ConstraintKind::regex:
      return regex(grammar, text);
    case ConstraintKind::json_schema:
      return constrain::json_schema(grammar, text);
    case ConstraintKind::json_object:
      return constrain::json_schema(grammar, R"({"type":"object"})");
    case ConstraintKind::choice:
      return choice(grammar, text);
    case ConstraintKind::gbnf:
      return constrain::gbnf(grammar, text);
    case ConstraintKind::lark:
      return constrain::lark(grammar, text);
    case ConstraintKind::tool_calls:
      return constrain::tool_calls(grammar, text);
  }
  return error(Code::usage, "unknown kind of constraint");
}

}  // namespace

Result<std::shared_ptr<const Constraint>> Constraint::compile(ConstraintKind kind, std::string_view text,
                                                              std::shared_ptr<const TokenTrie> vocabulary,
                                                              const ConstraintLimits& limits) {
  if (text.size() > limits.text_bytes) {
    return error(Code::usage, "it has {} bytes; the limit is {}", text.size(), limits.text_bytes);
  }
  std::shared_ptr<Constraint> c(new Constraint);
  c->grammar_ = std::make_unique<Grammar>(limits.expressions);
  c->vocabulary_ = std::move(vocabulary);
  constrain::Expressions& expressions = c->grammar_->expressions;
  expressions.stop_at(Os::real().now_ns() + limits.compile_ns);
  SWY_LET(const NodeId root, build(*c->grammar_, kind, text));
  SWY_TRY(expressions.status());
  SWY_TRY(c->grammar_->finish(root));
  expressions.stop_at(0);
  // An automaton begins with a copy of them, and one that is full from the start would be replaced by every operation.
  if (expressions.memory_bytes() > limits.memory_bytes / 2) {
    return error(Code::usage, "its compiled form takes more than {} MiB; use shorter texts or fewer alternatives",
                 limits.memory_bytes >> 21);
  }
  c->json_ = kind == ConstraintKind::json_schema || kind == ConstraintKind::json_object;
  c->unique_ = c->grammar_->unique_texts;
  c->shared_ = std::make_unique<Shared>();
  c->shared_->limits.memory_bytes = limits.memory_bytes;
  c->shared_->limits.new_states = limits.new_states;
  c->shared_->text_states = limits.text_states;
  c->shared_->byte_states = limits.byte_states;
  return std::shared_ptr<const Constraint>(std::move(c));
}

std::shared_ptr<Automaton> Constraint::automaton() const {
  const std::lock_guard lock(shared_->mutex);
  std::shared_ptr<Automaton>& shared = shared_->automaton;
  if (shared != nullptr) {
    const std::lock_guard used(shared->mutex);
    if (!shared->full()) return shared;
  }
  // The old one goes with the last matcher that has it.
  shared = std::make_shared<Automaton>(*grammar_, *vocabulary_, shared_->limits);
  return shared;
}

ConstraintMatcher::ConstraintMatcher(std::shared_ptr<const Constraint> constraint, std::span<const int32_t> end_ids)
    : constraint_(std::move(constraint)),
      automaton_(constraint_->automaton()),
      end_ids_(end_ids.begin(), end_ids.end()),
      state_(automaton_->start()) {}

Status ConstraintMatcher::failure(std::string_view why) const {
  return error(Code::unsupported, "the constraint is too large to follow after {} bytes of text: {}", text_.size(),
               why);
}

uint64_t ConstraintMatcher::allowed_states() const {
  const Constraint::Shared& limits = *constraint_->shared_;
  return limits.text_states + uint64_t{limits.byte_states} * text_.size();
}

// After an operation. One text has a limit of its own, since a full automaton is replaced by an empty one.
Status ConstraintMatcher::count() {
  made_ += automaton_->new_states();
  if (automaton_->failed()) return failure(automaton_->fault());
  const uint64_t allowed = allowed_states();
  if (made_ <= allowed) return {};
  return failure(fmt::format("it has had more than {} states; use smaller counts or fewer alternatives", allowed));
}

Status ConstraintMatcher::follow() {
  {
    const std::lock_guard lock(automaton_->mutex);
    if (!automaton_->full()) return {};
  }
  automaton_ = constraint_->automaton();
  const std::lock_guard lock(automaton_->mutex);
  automaton_->begin_operation();
  state_ = automaton_->start();
  lists_ = {};
  for (size_t i = 0; i < text_.size(); ++i) {
    if (i % 1024 == 1023) {
      SWY_TRY(count());
      automaton_->begin_operation();
    }
    state_ = next(state_, text_[i], lists_);
  }
  return count();
}

uint32_t ConstraintMatcher::next(uint32_t state, char byte, constrain::ListReader& lists) {
  state = automaton_->next(state, static_cast<uint8_t>(byte));
  if (constraint_->unique_ && state != Automaton::kDead && lists.push(byte)) {
    state = automaton_->saw_item(state, lists.text());
  }
  return state;
}

bool ConstraintMatcher::can_follow(std::string_view bytes) {
  constrain::ListReader lists = lists_;
  uint32_t state = state_;
  for (const char c : bytes) state = next(state, c, lists);
  return state != Automaton::kDead;
}

bool ConstraintMatcher::is_end(int32_t token) const {
  return std::find(end_ids_.begin(), end_ids_.end(), token) != end_ids_.end();
}

Status ConstraintMatcher::mask(std::span<uint32_t> mask) {
  Status filled = fill(mask);
  if (!filled.ok()) std::fill(mask.begin(), mask.end(), 0u);  // what it has is worthless
  return filled;
}

Status ConstraintMatcher::fill(std::span<uint32_t> mask) {
  SWY_TRY(follow());
  const std::lock_guard lock(automaton_->mutex);
  automaton_->begin_operation();
  automaton_->allow(state_, mask);
  SWY_TRY(count());
  if (constraint_->json_ && endless_space()) {
    const TokenMask& spaces = constraint_->vocabulary_->spaces();
    for (size_t i = 0; i < std::min(mask.size(), spaces.size()); ++i) mask[i] &= ~spaces[i];
  }
  if (automaton_->in_unique_list(state_)) {
    for (const uint32_t token : constraint_->vocabulary_->several_quotes()) {
      uint32_t& word = mask[token / 32];
      if ((word >> token % 32 & 1) == 0) continue;
      if (!can_follow(constraint_->vocabulary_->piece(token))) word &= ~(1u << token % 32);
    }
    SWY_TRY(count());
  }
  const bool end = automaton_->accepts(state_);
  for (const int32_t id : end_ids_) {
    if (id < 0 || static_cast<size_t>(id) / 32 >= mask.size()) continue;
    uint32_t& word = mask[static_cast<size_t>(id) / 32];
    const uint32_t bit = 1u << id % 32;
    word = end ? word | bit : word & ~bit;
  }
  return {};
}

// Between the parts of a JSON text, after so much space that more of it would be a model that has lost its way.
bool ConstraintMatcher::endless_space() {
  constexpr size_t kMost = 256;
  if (text_.size() < kMost || text_.find_last_not_of(" \t\r\n") + kMost >= text_.size()) return false;
  return automaton_->next(state_, '\n') != Automaton::kDead;  // which no string has in it
}

Status ConstraintMatcher::accept(int32_t token) {
  if (is_end(token)) {
    if (can_end()) return {};
    return error(Code::usage, "the text cannot end after {} bytes", text_.size());
  }
  if (token < 0 || static_cast<uint32_t>(token) >= constraint_->vocabulary_->vocab() ||
      constraint_->vocabulary_->piece(static_cast<uint32_t>(token)).empty()) {
    return error(Code::usage, "token {} has no text", token);
  }
  return accept_text(constraint_->vocabulary_->piece(static_cast<uint32_t>(token)));
}

Status ConstraintMatcher::accept_text(std::string_view bytes) {
  SWY_TRY(follow());
  const std::lock_guard lock(automaton_->mutex);
  automaton_->begin_operation();
  constrain::ListReader lists = lists_;
  uint32_t state = state_;
  for (const char c : bytes) state = next(state, c, lists);
  SWY_TRY(count());
  if (state == Automaton::kDead) {
    return error(Code::usage, "'{}' cannot follow after {} bytes of text", printable(bytes), text_.size());
  }
  state_ = state;
  lists_ = std::move(lists);
  text_ += bytes;
  return {};
}

bool ConstraintMatcher::can_end() {
  if (!follow().ok()) return false;
  const std::lock_guard lock(automaton_->mutex);
  return automaton_->accepts(state_);
}

bool ConstraintMatcher::finished() {
  if (!can_end()) return false;
  const std::lock_guard lock(automaton_->mutex);
  automaton_->begin_operation();
  return automaton_->ends(state_) && !automaton_->failed();
}

// Text of the bytes that `byte` gives for each state, up to one of -1, or to where the text may end. It is not what was
// asked for, so that it takes a part of a token's limits, and fails nobody: after trouble there is none any more.
template <class Byte>
std::string ConstraintMatcher::text_by(size_t max_bytes, Byte byte) {
  std::string text;
  looks_ahead_ = looks_ahead_ && follow().ok();
  if (!looks_ahead_) return text;
  const std::lock_guard lock(automaton_->mutex);
  automaton_->begin_operation();
  constrain::ListReader lists = lists_;
  for (uint32_t state = state_; text.size() < max_bytes && !automaton_->accepts(state);) {
    const int likely = byte(state);
    if (likely < 0 || automaton_->used_a_quarter()) break;
    state = next(state, static_cast<char>(likely), lists);
    if (state == Automaton::kDead) break;
    text += static_cast<char>(likely);
  }
  ahead_ += automaton_->new_states();
  looks_ahead_ = !automaton_->failed() && ahead_ <= allowed_states();
  return looks_ahead_ ? text : std::string();
}

std::string ConstraintMatcher::forced_text(size_t max_bytes) {
  return text_by(max_bytes, [this](uint32_t state) { return automaton_->only_byte(state); });
}

int ConstraintMatcher::likely_byte(uint32_t state) {
  int only = -1;
  for (int b = 0; b < 256; ++b) {
    if (automaton_->used_a_quarter()) return -1;
    const bool seldom = b == ' ' || b == '\t' || b == '\n' || b == '\r' || b == '\\';
    if (seldom || automaton_->next(state, static_cast<uint8_t>(b)) == Automaton::kDead) continue;
    if (only >= 0) return -1;
    only = b;
  }
  return only;
}

std::string ConstraintMatcher::likely_text(size_t max_bytes) {
  return text_by(max_bytes, [this](uint32_t state) {
    const int only = automaton_->only_byte(state);
    return only >= 0 || !constraint_->json_ ? only : likely_byte(state);
  });
}

}  // namespace switchyard
