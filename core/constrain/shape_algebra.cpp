// SPDX-License-Identifier: Apache-2.0
// Union and intersection of shapes, and whether they are empty.
#include <algorithm>

#include "core/constrain/schema_shapes.h"

namespace switchyard::constrain {

SchemaSet SchemaShapes::member(const ObjectShape& object, const std::string& name) {
  if (const auto found = object.members.find(name); found != object.members.end()) return found->second.value;
  for (const auto& [names, value] : object.named) {
    if (x_.matches(names, name)) return value;
  }
  return object.rest;
}

ArrayShape SchemaShapes::both(const ArrayShape& a, const ArrayShape& b) {
  x_.work(16 * (1 + a.first.size() + b.first.size()));
  ArrayShape out;
  out.first.resize(std::max(a.first.size(), b.first.size()));
  for (size_t i = 0; i < out.first.size(); ++i) out.first[i] = all_of(a.item(i), b.item(i));
  out.rest = all_of(a.rest, b.rest);
  out.min = std::max(a.min, b.min);
  out.max = std::min(a.max, b.max);
  out.unique = a.unique || b.unique;
  return out;
}

ObjectShape SchemaShapes::both(const ObjectShape& a, const ObjectShape& b) {
  x_.work(16 * (1 + a.members.size() + b.members.size() + a.named.size() * b.named.size()));
  ObjectShape out;
  for (const ObjectShape* side : {&a, &b}) {
    const ObjectShape& other = side == &a ? b : a;
    for (const auto& [name, m] : side->members) {
      ObjectShape::Member& to = out.members[name];
      to.value = all_of(m.value, member(other, name));
      to.required = to.required || m.required;
    }
  }
  std::vector<Expr> in_a, in_b;
  for (const auto& [names, value] : a.named) in_a.push_back(names);
  for (const auto& [names, value] : b.named) in_b.push_back(names);
  const Expr not_a = x_.complement(x_.either(in_a)), not_b = x_.complement(x_.either(in_b));
  const auto add = [&](Expr names, SchemaSet value) {
    if (names != kNothing && x_.alive(names)) out.named.emplace_back(names, value);
  };
  for (const auto& [names, value] : a.named) {
    for (const auto& [others, other] : b.named) add(x_.both(names, others), all_of(value, other));
    add(x_.both(names, not_b), all_of(value, b.rest));
  }
  for (const auto& [names, value] : b.named) add(x_.both(names, not_a), all_of(value, a.rest));
  out.rest = all_of(a.rest, b.rest);
  out.min = std::max(a.min, b.min);
  out.max = std::min(a.max, b.max);
  return out;
}

Result<Shape> SchemaShapes::both(const Shape& a, const Shape& b) {
  constexpr size_t kMaxPairs = 1 << 15;
  if (a.objects.size() * b.objects.size() > kMaxPairs || a.arrays.size() * b.arrays.size() > kMaxPairs) {
    return error(Code::unsupported, "schemas for the same value have more than {} combinations", kMaxPairs);
  }
  Shape out{a.null && b.null, a.yes && b.yes, a.no && b.no};
  out.exponent = a.exponent && b.exponent;
  out.number = x_.both(a.number, b.number);
  out.string = x_.both(a.string, b.string);
  for (const ArrayShape& x : a.arrays) {
    for (const ArrayShape& y : b.arrays) {
      if (x_.exhausted()) return x_.status();
      ArrayShape z = both(x, y);
      if (z.min <= z.max) out.arrays.push_back(std::move(z));
    }
  }
  // Conditions on one member, such as a series of `if`, exclude each other: without those that cannot hold at once,
  // there are as many alternatives as conditions, and not two to the power of that.
  const bool several = a.objects.size() > 1 && b.objects.size() > 1;
  for (const ObjectShape& x : a.objects) {
    for (const ObjectShape& y : b.objects) {
      if (x_.exhausted()) return x_.status();
      if (several && apart(x, y)) continue;
      ObjectShape z = both(x, y);
      const bool possible = std::none_of(z.members.begin(), z.members.end(),
                                         [](const auto& m) { return m.second.required && m.second.value == kNoValue; });
      if (possible && z.min <= z.max) out.objects.push_back(std::move(z));
    }
  }
  return out;
}

void SchemaShapes::unite(Shape& a, const Shape& b) {
  a.null = a.null || b.null;
  a.yes = a.yes || b.yes;
  a.no = a.no || b.no;
  a.exponent = a.exponent || b.exponent;
  a.number = x_.either(a.number, b.number);
  a.string = x_.either(a.string, b.string);
  a.arrays.insert(a.arrays.end(), b.arrays.begin(), b.arrays.end());
  a.objects.insert(a.objects.end(), b.objects.begin(), b.objects.end());
}

// False where it is not known, such as for what is being looked at already.
bool SchemaShapes::impossible(SchemaSet s) {
  constexpr unsigned kFar = 100;
  if (s == kNoValue) return true;
  if (s == kAnyValue) return false;
  if (const auto known = impossible_.find(s); known != impossible_.end()) return known->second;
  // Looking into schemas that are being made would not end.
  for (const uint32_t atom : sets_[s]) {
    const auto known = schema_shapes_.find(atom / 2);
    if (known != schema_shapes_.end() && !known->second) return false;
  }
  if (depth_ > kFar) return false;
  impossible_[s] = false;
  depth_ += 16;
  bool none = false;
  if (const auto found = shape(s); found.ok()) {
    const Shape& v = **found;
    none = !v.null && !v.yes && !v.no && !v.exponent && !x_.alive(v.number) && !x_.alive(v.string) &&
           std::all_of(v.arrays.begin(), v.arrays.end(), [&](const auto& a) { return impossible(a); }) &&
           std::all_of(v.objects.begin(), v.objects.end(), [&](const auto& o) { return impossible(o); });
  }
  depth_ -= 16;
  return impossible_[s] = none;
}

bool SchemaShapes::impossible(const ArrayShape& array) {
  if (array.min > array.max) return true;
  for (uint32_t i = 0; i < array.min && i <= array.first.size(); ++i) {
    if (impossible(array.item(i))) return true;
  }
  return false;
}

bool SchemaShapes::impossible(const ObjectShape& object) {
  if (object.min > object.max) return true;
  uint32_t required = 0;
  for (const auto& [name, m] : object.members) {
    if (m.required && impossible(m.value)) return true;
    required += m.required ? 1 : 0;
  }
  return required > object.max;
}

}  // namespace switchyard::constrain
