// SPDX-License-Identifier: Apache-2.0
// Expressions for the inside of JSON strings. Besides the language of the decoded text, such an expression has the
// part of an escape that was read:
//   0          none
//   1          a backslash
//   else       kUnicode, with the digits read so far (their number in bits 4-7, their value in bits 8-19) and, where
//              the first half of a surrogate pair came before, kHigh and that half's ten bits in bits 20-29; its
//              `\` and `u` are still to come with kBackslash and kLetter
#include <algorithm>

#include "core/constrain/expressions.h"
#include "core/constrain/text_scanner.h"
#include "core/constrain/utf8_ranges.h"

namespace switchyard::constrain {
namespace {

constexpr uint32_t kAfterBackslash = 1, kUnicode = 2, kBackslash = 4, kLetter = 8, kHigh = 1u << 30;
constexpr uint32_t kShort = UINT32_MAX;

// What `\c` stands for; kShort where it stands for nothing.
uint32_t escaped(uint8_t c) {
  switch (c) {
    case '"':
    case '\\':
    case '/':
      return c;
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    default:
      return kShort;
  }
}

// Digits of which only the surrogates are told apart: a value of the same kind.
uint32_t same_kind(uint32_t value, uint32_t digits) {
  const uint32_t top = value >> 4 * (digits - 1), second = digits > 1 ? value >> 4 * (digits - 2) & 15 : 0;
  if (top != 0xD) return 0;
  if (digits == 1) return value;
  return second < 8 ? 0 : (second < 12 ? 0xD8u : 0xDCu) << 4 * (digits - 2);
}

ByteSet around(std::string_view characters) {
  ByteSet edges;
  for (const char c : characters) {
    edges.add(static_cast<unsigned char>(c));
    edges.add(static_cast<unsigned char>(c) + 1u);
  }
  return edges;
}

const ByteSet& escape_edges(uint32_t escape) {
  static const ByteSet none = [] {
    ByteSet e = around("\"\\");
    e.add(0x20);
    return e;
  }();
  static const ByteSet letters = around("\"\\/bfnrtu");
  static const ByteSet digits = around("0123456789abcdefABCDEF");
  if (escape == 0) return none;
  return (escape & kUnicode) != 0 && (escape & (kBackslash | kLetter)) == 0 ? digits : letters;
}

}  // namespace

Expr Expressions::json(Expr decoded, uint32_t escape) {
  if (decoded == kNothing) return kNothing;
  const Node& n = nodes_[decoded];
  ByteSet edges = escape_edges(escape);
  if (escape == 0) edges |= sets_[n.edges];
  return intern({.kind = Kind::json,
                 .nullable = escape == 0 && n.nullable,
                 .finite = n.finite,
                 .plain = escape == 0 && n.plain,
                 .depth = static_cast<uint16_t>(n.depth + 1),
                 .a = decoded,
                 .b = escape,
                 .edges = set_index(edges)});
}

Expr Expressions::after_character(Expr e, uint32_t code_point) {
  std::string text;
  append_utf8(text, code_point);
  for (const char c : text) e = derive(e, static_cast<uint8_t>(c));
  return e;
}

Expr Expressions::derive_json(Expr e, uint8_t byte) {
  const Node n = nodes_[e];
  if (n.b != 0) return derive_escape(n.a, n.b, byte);
  if (byte < 0x20 || byte == '"') return kNothing;
  if (byte == '\\') return json(n.a, kAfterBackslash);
  return json(derive(n.a, byte), 0);
}

// The ASCII character that every text of it begins with; -1 if there is none.
int Expressions::only_ascii(Expr e) const {
  const Node& n = nodes_[nodes_[e].kind == Kind::concat ? nodes_[e].a : e];
  if (n.kind != Kind::bytes || sets_[n.a].size() != 1) return -1;
  const unsigned b = sets_[n.a].next(0);
  return b < 0x80 ? static_cast<int>(b) : -1;
}

Expr Expressions::derive_escape(Expr decoded, uint32_t escape, uint8_t byte) {
  if (escape == kAfterBackslash) {
    if (byte == 'u') return json(decoded, kUnicode);
    const uint32_t code_point = escaped(byte);
    return code_point == kShort ? kNothing : json(after_character(decoded, code_point), 0);
  }
  if ((escape & kBackslash) != 0) return byte == '\\' ? json(decoded, (escape & ~kBackslash) | kLetter) : kNothing;
  if ((escape & kLetter) != 0) return byte == 'u' ? json(decoded, escape & ~kLetter) : kNothing;
  const int digit = hex_digit(static_cast<char>(byte));
  if (digit < 0) return kNothing;
  const uint32_t digits = (escape >> 4 & 15) + 1, high = escape & (kHigh | 0x3FFu << 20);
  uint32_t value = (escape >> 8 & 0xFFF) << 4 | static_cast<uint32_t>(digit);
  // Most expressions have one derivative for all characters, or for one only.
  if (uint32_t least = 0, most = kUnbounded; runs(decoded, least, most)) value = same_kind(value, digits);
  if (const int c = only_ascii(decoded);
      c >= 0 && (high != 0 || value != static_cast<uint32_t>(c) >> 4 * (4 - digits))) {
    return kNothing;
  }
  if (digits < 4) return json(decoded, kUnicode | digits << 4 | value << 8 | high);
  if (high != 0) {
    if (value < 0xDC00 || value > 0xDFFF) return kNothing;
    return json(after_character(decoded, 0x10000 + (high >> 20 & 0x3FF) * 0x400 + (value - 0xDC00)), 0);
  }
  if (value >= 0xDC00 && value <= 0xDFFF) return kNothing;
  if (value >= 0xD800 && value < 0xDC00) return json(decoded, kUnicode | kBackslash | kHigh | (value - 0xD800) << 20);
  return json(after_character(decoded, value), 0);
}

bool Expressions::any_bytes(Expr e, std::span<const std::pair<uint8_t, uint8_t>> ranges) {
  if (e == kNothing) return false;
  if (ranges.empty()) return alive(e);
  const ByteSet edges = sets_[nodes_[e].edges];
  for (unsigned b = ranges[0].first; b <= ranges[0].second; b = edges.next(b + 1)) {
    if (any_bytes(derive(e, static_cast<uint8_t>(b)), ranges.subspan(1))) return true;
    if (b == 255) break;
  }
  return false;
}

bool Expressions::any_character(Expr e, uint32_t low, uint32_t high) {
  const std::vector<Utf8Range> ranges = utf8_ranges(low, high);
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const Utf8Range& range) { return any_bytes(e, std::span(range.bytes).first(range.length)); });
}

bool Expressions::escape_alive(Expr decoded, uint32_t escape) {
  if (escape == kAfterBackslash) return any_character(decoded, 0, 0x10FFFF);
  const uint32_t left = 4 - (escape >> 4 & 15);
  uint32_t low = (escape >> 8 & 0xFFF) << 4 * left, high = low + (1u << 4 * left) - 1;
  if (const int c = only_ascii(decoded); c >= 0) {
    const auto at = static_cast<uint32_t>(c);
    return (escape & kHigh) == 0 && low <= at && at <= high && alive(after_character(decoded, at));
  }
  if ((escape & kHigh) != 0) {
    if ((escape & (kBackslash | kLetter)) != 0) low = 0, high = 0xFFFF;
    low = std::max(low, 0xDC00u);
    high = std::min(high, 0xDFFFu);
    const uint32_t base = 0x10000 + (escape >> 20 & 0x3FF) * 0x400;
    return low <= high && any_character(decoded, base + (low - 0xDC00), base + (high - 0xDC00));
  }
  if (any_character(decoded, low, high)) return true;
  const uint32_t first = std::max(low, 0xD800u), last = std::min(high, 0xDBFFu);
  return first <= last &&
         any_character(decoded, 0x10000 + (first - 0xD800) * 0x400, 0x10000 + (last - 0xD800) * 0x400 + 0x3FF);
}

Expressions::Room Expressions::json_room(Expr e) const {
  const Node* n = &nodes_[e];
  if (n->kind == Kind::concat) n = &nodes_[n->a];
  if (n->kind != Kind::json || n->b != 0) return {};
  const Expr decoded = n->a;
  n = &nodes_[decoded];
  if (decoded == characters_) return {INT64_MAX, true};
  if (decoded == character_) return {1, true};
  if (n->kind == Kind::repeat && n->a == character_) return {n->c == kUnbounded ? INT64_MAX : int64_t{n->c}, true};
  if (n->kind == Kind::either) {
    const auto ways = parts(*n);
    return std::find(ways.begin(), ways.end(), characters_) != ways.end() ? Room{INT64_MAX, true} : Room{};
  }
  if (n->kind != Kind::both) return {};
  bool free = false;
  for (const Expr p : parts(*n)) {
    const Node& part = nodes_[p];
    if (part.kind == Kind::complement && nodes_[part.a].finite) continue;
    if (part.kind != Kind::repeat || part.a != character_ || part.c != kUnbounded) return {};
    free = true;
  }
  return free ? Room{INT64_MAX, true} : Room{};
}

}  // namespace switchyard::constrain
