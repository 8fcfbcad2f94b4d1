// SPDX-License-Identifier: Apache-2.0
// Expressions: regular expressions over bytes, with intersection and complement, as numbers into a table in which
// equal expressions have equal numbers. An expression's derivative by a byte b is the expression of what may follow b
// (Brzozowski, "Derivatives of Regular Expressions", 1964; Owens, Reppy, Turon, "Regular-expression derivatives
// re-examined", 2009), so that expressions are the states of a deterministic automaton that is built as it is needed.
//
// Two kinds are not in those papers: `json` is the language of a JSON string's inside whose decoded text is in
// another language, with every escape that JSON allows; `multiple` counts the remainder of a decimal number.
//
// Not thread-safe. Nothing here fails on its own: growth beyond the limit sets `exhausted`, and whoever builds or
// follows expressions looks at it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/constrain/byte_set.h"
#include "core/constrain/hash.h"

namespace switchyard::constrain {

using Expr = uint32_t;
constexpr Expr kNothing = 0;   // the language without texts
constexpr Expr kEpsilon = 1;   // only the empty text
constexpr Expr kAllBytes = 2;  // every text of bytes
constexpr uint32_t kUnbounded = UINT32_MAX;

class Expressions {
 public:
  explicit Expressions(size_t max_expressions = 1 << 20);

  Expr bytes(const ByteSet& set);
  Expr literal(std::string_view text);
  Expr concat(Expr a, Expr b);
  Expr concat(std::initializer_list<Expr> parts);
  Expr either(std::vector<Expr> parts);
  Expr either(Expr a, Expr b) { return either(std::vector<Expr>{a, b}); }
  Expr both(std::vector<Expr> parts);
  Expr both(Expr a, Expr b) { return both(std::vector<Expr>{a, b}); }
  Expr complement(Expr a);
  Expr minus(Expr a, Expr b) { return both(a, complement(b)); }
  Expr repeat(Expr a, uint32_t min, uint32_t max);
  Expr optional(Expr a) { return either(kEpsilon, a); }
  // One of these texts; a tree of common beginnings. Sorts its argument.
  Expr one_of(std::vector<std::string_view> texts);
  // The characters with code points in these ranges, as UTF-8. Surrogates are left out.
  Expr characters(std::span<const std::pair<uint32_t, uint32_t>> ranges);
  Expr character() const { return character_; }    // any one
  Expr characters() const { return characters_; }  // any number of any characters
  Expr json_inside(Expr decoded) { return json(decoded, 0); }
  // Digits with a sign and a fraction, whose value times 10^`scale` is a multiple of `divisor`.
  Expr multiple_of(uint32_t divisor, uint32_t scale) { return multiple(divisor, scale, 0, 0); }

  Expr derive(Expr e, uint8_t byte);
  bool nullable(Expr e) const { return nodes_[e].nullable; }
  // Whether the language has a text. Exact, unless `exhausted`.
  bool alive(Expr e);
  bool matches(Expr e, std::string_view text);
  // Bytes from one edge to before the next have the same derivative.
  const ByteSet& edges(Expr e) const { return sets_[nodes_[e].edges]; }

  // For tokens inside a JSON string. `room`: every text of so many plain characters (neither quote, backslash nor
  // control) can be continued; -1: nothing is known. With `exact`, no longer text of plain characters can.
  struct Room {
    int64_t characters = -1;
    bool exact = false;
  };
  Room json_room(Expr e) const;
  // Any bytes before it, the inside of a JSON string whose decoded text is known and has no character that must be
  // escaped, and what follows.
  struct JsonLiteral {
    std::string before, text;
    Expr after = kEpsilon;
  };
  std::optional<JsonLiteral> json_literal(Expr e) const;
  // Any bytes, the inside of a JSON string with any text but finitely many, and what follows: the same with any text;
  // and with the texts that are left out.
  struct JsonGaps {
    Expr whole = kNothing, gaps = kNothing;
  };
  std::optional<JsonGaps> without_gaps(Expr e);
  // One that allows the same texts of at most `most` characters at the beginning of its texts, with fewer different
  // numbers of any characters.
  Expr with_short_counts(Expr e, uint32_t most);
  // Whether it is such a string of none of these forms, for which the whole vocabulary is followed.
  bool json_pattern(Expr e);
  // Whether the inside of a JSON string is among its parts.
  bool has_json(Expr e) const;

  size_t size() const { return nodes_.size(); }
  size_t memory_bytes() const;
  bool exhausted() const { return excess_ != Excess::none; }
  Status status() const;  // usage, where they are exhausted: which limit was reached, and what to do
  void limit(size_t max_expressions) { max_ = max_expressions; }
  // Steps of some ten nanoseconds until they count as exhausted; and some that are taken elsewhere.
  void allow_work(uint64_t steps) { work_allowed_ = work_left_ = steps; }
  uint64_t work_used() const { return work_allowed_ - work_left_; }
  void work(uint64_t steps) {
    if (steps > work_left_) exceed(Excess::work);
    work_left_ -= late() || exhausted() ? 0 : steps;
  }

  // From this time on, by Os::now_ns, all work counts as too much; 0: never.
  void stop_at(uint64_t now_ns) { stop_ns_ = now_ns; }

  // The texts of a language of at most `most`, in order; none if there are more, or texts of more than 1000 bytes.
  std::optional<std::vector<std::string>> texts(Expr e, size_t most);

 private:
  enum class Kind : uint8_t { nothing, epsilon, bytes, concat, either, both, complement, repeat, json, multiple };
  struct Node {
    Kind kind = Kind::nothing;
    bool nullable = false;
    bool finite = true;
    bool plain = true;  // no `both`, `complement`, `multiple`, half an escape in it: alive unless kNothing
    uint16_t depth = 0;
    uint32_t a = 0, b = 0, c = 0, edges = 0;
  };
  enum class Excess : uint8_t { none, depth, expressions, work, time };
  void exceed(Excess what) { excess_ = excess_ == Excess::none ? what : excess_; }
  enum class Life : uint8_t { unknown, dead, alive };

  bool late();  // whether the time to stop has come; looks at the clock now and then
  Expr intern(Node node);
  // Any texts of so many characters: `runs` holds for such an expression, and narrows the numbers by its own.
  bool runs(Expr e, uint32_t& min, uint32_t& max) const;
  Expr list(Kind kind, const std::vector<Expr>& parts, bool nullable);
  std::span<const Expr> parts(const Node& n) const { return {lists_.data() + n.a, n.b}; }
  uint32_t set_index(const ByteSet& set);
  Expr json(Expr decoded, uint32_t escape);
  int single_byte(Expr e) const;
  bool after_bytes(Expr& e, std::string& bytes) const;
  Expr multiple(uint32_t divisor, uint32_t scale, uint32_t remainder, uint32_t phase);
  Expr derive_now(Expr e, uint8_t byte);
  Expr derive_concat(Expr e, uint8_t byte);
  Expr derive_list(Expr e, uint8_t byte);
  Expr derive_json(Expr e, uint8_t byte);
  Expr derive_escape(Expr decoded, uint32_t escape, uint8_t byte);
  Expr derive_multiple(Expr e, uint8_t byte);
  Expr after_character(Expr e, uint32_t code_point);
  bool any_character(Expr e, uint32_t low, uint32_t high);
  bool any_bytes(Expr e, std::span<const std::pair<uint8_t, uint8_t>> ranges);
  bool escape_alive(Expr decoded, uint32_t escape);
  int only_ascii(Expr e) const;
  bool search(Expr e);
  Life known(Expr e);
  Expr tree(std::span<const std::string_view> texts, size_t at);
  bool endless(Expr e) const;

  std::vector<Node> nodes_;
  std::vector<Expr> lists_;
  std::vector<ByteSet> sets_;
  IndexTable node_table_, set_table_;
  std::vector<Life> life_;
  struct Derivative {
    Expr from = 0, to = 0;
    uint32_t byte = 0;
  };
  std::vector<Derivative> derivatives_;
  IndexTable derivative_table_;
  Expr character_ = 0, characters_ = 0;
  size_t max_;
  uint64_t work_allowed_ = uint64_t{1} << 24, work_left_ = work_allowed_;
  Excess excess_ = Excess::none;
  uint64_t stop_ns_ = 0;
  uint32_t looks_ = 0;  // at the clock, or past it
};

}  // namespace switchyard::constrain
