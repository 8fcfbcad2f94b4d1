// SPDX-License-Identifier: Apache-2.0
// Difference of shapes: what satisfies one and breaks another. What breaks a list's or an object's shape breaks one of
// its conditions; it is known which members and items there can be from what satisfies the first.
#include <algorithm>

#include "core/constrain/schema_shapes.h"

namespace switchyard::constrain {

namespace {

// Adds the shapes of `a` that have fewer, and those that have more items or members than `b` allows.
template <class Shape, class Add>
void outside_range(const Shape& a, const Shape& b, const Add& add) {
  if (b.min > a.min) {
    Shape piece = a;
    piece.max = std::min(a.max, b.min - 1);
    add(std::move(piece));
  }
  if (b.max < a.max) {
    Shape piece = a;
    piece.min = std::max(a.min, b.max + 1);
    add(std::move(piece));
  }
}

}  // namespace

// The values of `in` that are not in `out`, as sets any of which a value may satisfy; none where every value of `in` is
// in `out`.
std::vector<SchemaSet> SchemaShapes::breaking(SchemaSet in, SchemaSet out) {
  if (in == kNoValue || out == kAnyValue || in == out) return {};
  if (impossible(all_of(in, out))) return {in};
  std::vector<SchemaSet> ways;
  const std::vector<uint32_t> has = sets_[in], breaks = sets_[out];  // copies: sets are added
  for (const uint32_t atom : breaks) {
    if (std::binary_search(has.begin(), has.end(), atom)) continue;
    const SchemaSet way = all_of(in, set({atom ^ 1}));
    if (!impossible(way)) ways.push_back(way);
  }
  return ways;
}

Result<std::vector<ArrayShape>> SchemaShapes::without(const ArrayShape& a, const ArrayShape& b) {
  constexpr size_t kMostItems = 16;  // of any schema that one of them may break
  std::vector<ArrayShape> out;
  const auto add = [&](ArrayShape piece) {
    if (!impossible(piece)) out.push_back(std::move(piece));
  };
  const auto break_item = [&](size_t i) {
    for (const SchemaSet way : breaking(a.item(i), b.item(i))) {
      ArrayShape piece = a;
      piece.first.resize(std::max(a.first.size(), i + 1), a.rest);
      piece.first[i] = way;
      piece.min = std::max(a.min, static_cast<uint32_t>(i + 1));
      add(std::move(piece));
    }
  };
  const size_t listed = std::max(a.first.size(), b.first.size());
  for (size_t i = 0; i < listed && i < a.max; ++i) break_item(i);
  if (a.max > listed) {
    const auto ways = breaking(a.rest, b.rest);
    if (ways.size() == 1 && ways[0] == a.rest) {  // each one of them
      break_item(listed);
    } else if (!ways.empty() && a.max - listed > kMostItems) {
      return error(Code::unsupported, "it would need an item that breaks a schema, anywhere in a list");
    } else if (!ways.empty()) {
      for (size_t i = listed; i < a.max; ++i) break_item(i);
    }
  }
  outside_range(a, b, add);
  if (b.unique && !a.unique && a.max > 1 && b.max > 1) {
    return error(Code::unsupported, "it would need two equal items, anywhere in a list");
  }
  return out;
}

// Whether every member of a name that neither lists satisfies `b`, if it satisfies `a`.
bool SchemaShapes::others_agree(const ObjectShape& a, const ObjectShape& b) {
  std::vector<Expr> listed;
  for (const ObjectShape* shape : {&a, &b}) {
    for (const auto& [name, m] : shape->members) listed.push_back(x_.literal(name));
  }
  const Expr names = x_.minus(x_.characters(), x_.either(std::move(listed)));
  const auto parts = [&](const ObjectShape& o) {
    auto all = o.named;
    std::vector<Expr> known;
    for (const auto& part : o.named) known.push_back(part.first);
    all.emplace_back(x_.complement(x_.either(std::move(known))), o.rest);
    return all;
  };
  const auto of_b = parts(b);
  for (const auto& [in_a, value] : parts(a)) {
    for (const auto& [in_b, other] : of_b) {
      if (!breaking(value, other).empty() && x_.alive(x_.both({names, in_a, in_b}))) return false;
    }
  }
  return true;
}

Result<std::vector<ObjectShape>> SchemaShapes::without(const ObjectShape& a, const ObjectShape& b) {
  std::vector<ObjectShape> out;
  const auto add = [&](ObjectShape piece) {
    if (!impossible(piece)) out.push_back(std::move(piece));
  };
  const auto break_member = [&](const std::string& name) {
    const SchemaSet value = member(a, name);
    for (const SchemaSet way : breaking(value, member(b, name))) {
      ObjectShape piece = a;
      piece.members[name] = {way, true};
      add(std::move(piece));
    }
    const auto in_a = a.members.find(name), in_b = b.members.find(name);
    const bool there = in_a != a.members.end() && in_a->second.required;
    if (in_b == b.members.end() || !in_b->second.required || there) return;
    ObjectShape piece = a;
    piece.members[name] = {kNoValue, false};
    add(std::move(piece));
  };
  for (const auto& [name, m] : b.members) break_member(name);
  for (const auto& [name, m] : a.members) {
    if (!b.members.contains(name)) break_member(name);
  }
  if (!others_agree(a, b)) {
    return error(Code::unsupported, "it would need a member that breaks a schema, under any name");
  }
  outside_range(a, b, add);
  return out;
}

bool SchemaShapes::apart(const ArrayShape& a, const ArrayShape& b) { return impossible(both(a, b)); }

// A member that one of them requires tells most objects apart.
bool SchemaShapes::apart(const ObjectShape& a, const ObjectShape& b) {
  for (const auto& [one, other] : {std::pair{&a, &b}, {&b, &a}}) {
    for (const auto& [name, m] : one->members) {
      if (m.required && impossible(all_of(m.value, member(*other, name)))) return true;
    }
  }
  return impossible(both(a, b));
}

// Takes shapes away from alternatives, one after the other.
template <class One>
Result<std::vector<One>> SchemaShapes::without(std::vector<One> pieces, const std::vector<One>& shapes) {
  constexpr size_t kMostPieces = 256;
  for (const One& shape : shapes) {
    std::vector<One> left;
    for (One& piece : pieces) {
      if (apart(piece, shape)) {
        left.push_back(std::move(piece));
        continue;
      }
      SWY_LET(std::vector<One> parts, without(piece, shape));
      left.insert(left.end(), std::make_move_iterator(parts.begin()), std::make_move_iterator(parts.end()));
      if (left.size() > kMostPieces) {
        return error(Code::unsupported, "it would have more than {} alternatives", kMostPieces);
      }
    }
    pieces = std::move(left);
  }
  return pieces;
}

Result<Shape> SchemaShapes::without(const Shape& a, const Shape& b) {
  Shape out;
  out.null = a.null && !b.null;
  out.yes = a.yes && !b.yes;
  out.no = a.no && !b.no;
  out.exponent = a.exponent && b.number == kNothing && !b.exponent;
  out.number = b.exponent ? kNothing : b.number == kNothing ? a.number : x_.minus(a.number, b.number);
  out.string = b.string == x_.characters() ? kNothing : b.string == kNothing ? a.string : x_.minus(a.string, b.string);
  SWY_LET(out.arrays, without(a.arrays, b.arrays));
  SWY_LET(out.objects, without(a.objects, b.objects));
  return out;
}

}  // namespace switchyard::constrain
