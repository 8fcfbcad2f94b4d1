// SPDX-License-Identifier: Apache-2.0
// Forms of expressions with JSON strings in them whose tokens are found without following each of their texts.
#include <algorithm>

#include "core/constrain/expressions.h"

namespace switchyard::constrain {

// The byte that is the only text; -1 if there are others.
int Expressions::single_byte(Expr e) const {
  const Node& n = nodes_[e];
  return n.kind == Kind::bytes && sets_[n.a].size() == 1 ? static_cast<int>(sets_[n.a].next(0)) : -1;
}

// Takes known bytes off the beginning, up to the inside of a JSON string; false if there is none.
bool Expressions::after_bytes(Expr& e, std::string& bytes) const {
  for (;;) {
    const Node& n = nodes_[e];
    const Expr head = n.kind == Kind::concat ? n.a : e;
    if (nodes_[head].kind == Kind::json) return nodes_[head].b == 0;
    const int byte = single_byte(head);
    if (byte < 0 || n.kind != Kind::concat) return false;
    bytes += static_cast<char>(byte);
    e = n.b;
  }
}

std::optional<Expressions::JsonLiteral> Expressions::json_literal(Expr e) const {
  JsonLiteral out;
  if (!after_bytes(e, out.before)) return std::nullopt;
  const Node& n = nodes_[e];
  const Node& inside = nodes_[n.kind == Kind::concat ? n.a : e];
  if (n.kind == Kind::concat) out.after = n.b;
  for (Expr text = inside.a; text != kEpsilon;) {
    const Node& t = nodes_[text];
    const int c = single_byte(t.kind == Kind::concat ? t.a : text);
    if (c < 0x20 || c >= 0x7F || c == '"' || c == '\\') return std::nullopt;
    out.text += static_cast<char>(c);
    text = t.kind == Kind::concat ? t.b : kEpsilon;
  }
  return out;
}

std::optional<Expressions::JsonGaps> Expressions::without_gaps(Expr e) {
  std::string before;
  if (!after_bytes(e, before)) return std::nullopt;
  const bool more = nodes_[e].kind == Kind::concat;
  const Node inside = nodes_[more ? nodes_[e].a : e];
  const Expr after = more ? nodes_[e].b : kEpsilon;
  if (nodes_[inside.a].kind != Kind::both) return std::nullopt;
  Expr any = kNothing;
  std::vector<Expr> gaps;
  for (const Expr p : parts(nodes_[inside.a])) {
    const Node& part = nodes_[p];
    if (part.kind == Kind::complement && nodes_[part.a].finite) {
      gaps.push_back(part.a);
    } else if (part.kind == Kind::repeat && part.a == character_ && part.c == kUnbounded && any == kNothing) {
      any = p;
    } else {
      return std::nullopt;
    }
  }
  if (any == kNothing) return std::nullopt;
  const Expr head = literal(before);
  return JsonGaps{concat({head, json_inside(any), after}), concat({head, json_inside(either(std::move(gaps))), after})};
}

Expr Expressions::with_short_counts(Expr e, uint32_t most) {
  std::string before;
  Expr at = e;
  if (!after_bytes(at, before)) return e;
  const bool more = nodes_[at].kind == Kind::concat;
  const Node inside = nodes_[more ? nodes_[at].a : at];
  const Node run = nodes_[inside.a];
  if (run.kind != Kind::repeat || run.a != character_) return e;
  const uint32_t min = std::min(run.b, most + 1), max = run.c > most ? kUnbounded : run.c;
  if (min == run.b && max == run.c) return e;
  return concat({literal(before), json_inside(repeat(character_, min, max)), more ? nodes_[at].b : kEpsilon});
}

bool Expressions::json_pattern(Expr e) {
  std::string before;
  Expr inside = e;
  return after_bytes(inside, before) && !json_literal(e) && !json_room(inside).exact && !without_gaps(e);
}

bool Expressions::has_json(Expr e) const {
  for (; nodes_[e].kind == Kind::concat; e = nodes_[e].b) {
    if (nodes_[nodes_[e].a].kind == Kind::json) return true;
  }
  return nodes_[e].kind == Kind::json;
}

}  // namespace switchyard::constrain
