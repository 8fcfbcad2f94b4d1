// SPDX-License-Identifier: Apache-2.0
#include "core/constrain/regex_tree.h"

#include <span>

namespace switchyard::constrain {
namespace {

Expr between(Expressions& x, Expr e, Edge left, Edge right) {
  const Expr before = left == Edge::open ? kAllBytes : kEpsilon, after = right == Edge::open ? kAllBytes : kEpsilon;
  return x.concat({before, e, after});
}

Status misplaced(char anchor) {
  return error(Code::usage, "'{}' is supported only at an end of the pattern or of an alternative", anchor);
}

bool looks_ahead(const RegexTree& t) {
  return t.kind == RegexTree::Kind::ahead || t.kind == RegexTree::Kind::not_ahead;
}

Result<Expr> lower_sequence(Expressions& x, std::span<const RegexTree> items, Edge left, Edge right);

// What follows must match, or must not match: that is known where it goes on to the end of the text.
Result<Expr> lower_ahead(Expressions& x, const RegexTree& ahead, std::span<const RegexTree> rest, Edge left,
                         Edge right) {
  if (right == Edge::inside) {
    return error(Code::usage, "look-ahead is supported only where the rest of its group is the end of the pattern");
  }
  SWY_LET(const Expr then, lower_sequence(x, rest, Edge::inside, right));
  SWY_LET(const Expr seen, lower(x, ahead.kids[0], Edge::inside, Edge::open));
  const Expr e = ahead.kind == RegexTree::Kind::ahead ? x.both(then, seen) : x.minus(then, seen);
  return left == Edge::open ? x.concat(kAllBytes, e) : e;
}

Result<Expr> lower_sequence(Expressions& x, std::span<const RegexTree> items, Edge left, Edge right) {
  while (!items.empty() && items.front().kind == RegexTree::Kind::begin) {
    if (left == Edge::inside) return misplaced('^');
    left = Edge::text;
    items = items.subspan(1);
  }
  while (!items.empty() && items.back().kind == RegexTree::Kind::end) {
    if (right == Edge::inside) return misplaced('$');
    right = Edge::text;
    items = items.first(items.size() - 1);
  }
  if (items.empty()) return left == Edge::open || right == Edge::open ? kAllBytes : kEpsilon;
  if (looks_ahead(items[0])) return lower_ahead(x, items[0], items.subspan(1), left, right);
  std::vector<Expr> parts;
  for (size_t i = 0; i < items.size(); ++i) {
    if (looks_ahead(items[i])) {
      SWY_LET(const Expr rest, lower_ahead(x, items[i], items.subspan(i + 1), Edge::inside, right));
      parts.push_back(rest);
      break;
    }
    SWY_LET(const Expr part,
            lower(x, items[i], i == 0 ? left : Edge::inside, i + 1 == items.size() ? right : Edge::inside));
    parts.push_back(part);
  }
  Expr e = kEpsilon;
  for (size_t i = parts.size(); i-- > 0;) e = x.concat(parts[i], e);
  return e;
}

}  // namespace

Result<Expr> lower(Expressions& x, const RegexTree& tree, Edge left, Edge right) {
  switch (tree.kind) {
    case RegexTree::Kind::leaf:
      return between(x, tree.expr, left, right);
    case RegexTree::Kind::begin:
    case RegexTree::Kind::end:
    case RegexTree::Kind::ahead:
    case RegexTree::Kind::not_ahead:
      return lower_sequence(x, {&tree, 1}, left, right);
    case RegexTree::Kind::sequence:
      return lower_sequence(x, tree.kids, left, right);
    case RegexTree::Kind::either: {
      std::vector<Expr> ways;
      for (const RegexTree& kid : tree.kids) {
        SWY_LET(const Expr way, lower(x, kid, left, right));
        ways.push_back(way);
      }
      return x.either(std::move(ways));
    }
    case RegexTree::Kind::repeat: {
      SWY_LET(const Expr once, lower(x, tree.kids[0], Edge::inside, Edge::inside));
      return between(x, x.repeat(once, tree.min, tree.max), left, right);
    }
  }
  return kNothing;
}

}  // namespace switchyard::constrain
