// SPDX-License-Identifier: Apache-2.0
// Shapes of schemas and of sets of schemas; the keywords of other schemas for the same value.
#include "core/constrain/schema_shapes.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/printable.h"

namespace switchyard::constrain {
namespace {

constexpr unsigned kMaxSchemaDepth = 128;  // of schemas for the same value within each other
constexpr size_t kMaxAlternatives = 256;   // of arrays or objects in a shape
constexpr size_t kMaxWork = 200'000;

constexpr std::string_view kUnsupported[] = {
    "contains", "minContains", "maxContains", "$dynamicRef",      "$recursiveRef",
    "extends",  "disallow",    "divisibleBy", "unevaluatedItems", "unevaluatedProperties"};
constexpr const char* kApplicators[] = {"$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "not"};

}  // namespace

Status SchemaShapes::wrong(Index i, std::string_view keyword, std::string_view what) const {
  return error(Code::usage, "'{}' at {}: {}", keyword, document_.place(i), what);
}

Status SchemaShapes::unsupported(Index i, std::string_view keyword, std::string_view why) const {
  return error(Code::unsupported, "'{}' at {} is not supported: {}", keyword, document_.place(i), why);
}

SchemaSet SchemaShapes::set(std::vector<uint32_t> atoms) {
  std::sort(atoms.begin(), atoms.end());
  atoms.erase(std::unique(atoms.begin(), atoms.end()), atoms.end());
  std::vector<uint32_t> kept;
  for (const uint32_t a : atoms) {
    if (a == kNever) {
      kept = {kNever};
      break;
    }
    const Json& schema = document_.at(a / 2);
    const bool negated = a % 2 != 0;
    if (schema.is_boolean() && schema.get<bool>() == negated) {
      kept = {kNever};
      break;
    }
    if (schema.is_boolean() || (schema.is_object() && schema.empty() && !negated)) continue;
    kept.push_back(a);
  }
  const auto [found, fresh] = set_index_.try_emplace(kept, static_cast<SchemaSet>(sets_.size()));
  if (fresh) sets_.push_back(std::move(kept));
  return found->second;
}

SchemaSet SchemaShapes::all_of(SchemaSet a, SchemaSet b) {
  if (a == b || b == kAnyValue) return a;
  if (a == kAnyValue) return b;
  std::vector<uint32_t> atoms = sets_[a];
  atoms.insert(atoms.end(), sets_[b].begin(), sets_[b].end());
  return set(std::move(atoms));
}

Shape SchemaShapes::anything() {
  Shape s{true, true, true, decimals_.all(), true, x_.characters()};
  s.arrays.emplace_back();
  s.objects.emplace_back();
  return s;
}

Result<const Shape*> SchemaShapes::shape(SchemaSet s) {
  if (const auto known = shapes_.find(s); known != shapes_.end()) return &known->second;
  if (++work_ > kMaxWork) return error(Code::usage, "it has more than {} different schemas", kMaxWork);
  Shape all = s == kNoValue ? Shape() : anything();
  const std::vector<uint32_t> atoms = s == kNoValue ? std::vector<uint32_t>() : sets_[s];
  for (const uint32_t atom : atoms) {
    SWY_LET(Shape one, schema_shape(atom / 2));
    if (atom % 2 != 0) {
      auto negated = without(anything(), one);
      if (!negated.ok()) return unsupported(atom / 2, "not", negated.status().message());
      one = *std::move(negated);
    }
    SWY_LET(all, both(all, one));
  }
  SWY_TRY(x_.status());
  return &shapes_.emplace(s, std::move(all)).first->second;
}

Result<Shape> SchemaShapes::schema_shape(Index i) {
  if (const auto known = schema_shapes_.find(i); known != schema_shapes_.end()) {
    if (known->second) return *known->second;
    return error(Code::usage, "the schema at {} refers to itself for the same value", document_.place(i));
  }
  if (++depth_ > kMaxSchemaDepth) return error(Code::usage, "the schema at {} nests too deep", document_.place(i));
  schema_shapes_[i] = std::nullopt;
  const Json& schema = document_.at(i);
  Result<Shape> made = schema.is_boolean() ? (schema.get<bool>() ? anything() : Shape()) : object_schema(i);
  --depth_;
  if (!made.ok()) {
    schema_shapes_.erase(i);
    return made;
  }
  schema_shapes_[i] = *made;
  return made;
}

Status SchemaShapes::check_keywords(Index i) const {
  const Json& s = document_.at(i);
  for (const std::string_view name : kUnsupported) {
    const auto found = s.find(name);
    if (found == s.end()) continue;
    if (name.starts_with("unevaluated")) {
      if (found->is_boolean() && found->get<bool>()) continue;
      // Nothing but this schema looks at the value, so that it is what `additional...` is.
      const bool alone = std::none_of(std::begin(kApplicators), std::end(kApplicators),
                                      [&](const char* key) { return s.contains(key); });
      if (alone) continue;
      return unsupported(i, name, "it depends on other schemas for the same value");
    }
    return unsupported(i, name, "no part of it is checked");
  }
  return {};
}

Result<Shape> SchemaShapes::object_schema(Index i) {
  if (!document_.at(i).is_object()) {
    return error(Code::usage, "{} is no schema: a schema is an object, true or false", document_.place(i));
  }
  const Json& s = document_.at(i);
  if (document_.ref_alone() && s.contains("$ref")) {
    Shape out = anything();
    SWY_TRY(combine(i, out));
    return out;
  }
  SWY_TRY(check_keywords(i));
  Shape out = anything();
  SWY_TRY(types(i, out));
  SWY_TRY(numbers(i, out));
  SWY_TRY(strings(i, out));
  SWY_TRY(arrays(i, out));
  SWY_TRY(objects(i, out));
  SWY_TRY(values(i, out));
  SWY_TRY(combine(i, out));
  return out;
}

// The keywords that have other schemas for the same value.
Status SchemaShapes::combine(Index i, Shape& out) {
  const Json& s = document_.at(i);
  if (const auto ref = s.find("$ref"); ref != s.end()) {
    if (!ref->is_string()) return wrong(i, "$ref", "it is no text");
    SWY_LET(const Index target, document_.resolve(ref->get<std::string>(), i));
    SWY_LET(const Shape shape, schema_shape(target));
    SWY_LET(out, both(out, shape));
    if (document_.ref_alone()) return {};
  }
  for (const char* key : {"allOf", "anyOf", "oneOf"}) {
    const auto found = s.find(key);
    if (found == s.end()) continue;
    if (!found->is_array() || found->empty()) return wrong(i, key, "it is no list of schemas");
    if (found->size() > kMaxWork) return wrong(i, key, "it has too many schemas");
  }
  if (const auto all = s.find("allOf"); all != s.end()) {
    for (const Json& one : *all) {
      SWY_LET(const Shape shape, schema_shape(document_.index(one, i)));
      SWY_LET(out, both(out, shape));
    }
  }
  if (const auto any = s.find("anyOf"); any != s.end()) {
    Shape united;
    for (const Json& one : *any) {
      SWY_LET(const Shape shape, schema_shape(document_.index(one, i)));
      unite(united, shape);
    }
    SWY_LET(out, both(out, united));
  }
  if (s.contains("oneOf")) {
    SWY_LET(const Shape one, one_of(i));
    SWY_LET(out, both(out, one));
  }
  if (const auto no = s.find("not"); no != s.end()) {
    SWY_LET(const Shape shape, schema_shape(document_.index(*no, i)));
    auto left = without(out, shape);
    if (!left.ok()) return unsupported(i, "not", left.status().message());
    out = *std::move(left);
  }
  SWY_TRY(combine_if(i, out));
  SWY_TRY(combine_dependencies(i, out));
  if (out.arrays.size() > kMaxAlternatives || out.objects.size() > kMaxAlternatives) {
    return error(Code::unsupported, "the schema at {} has more than {} alternatives", document_.place(i),
                 kMaxAlternatives);
  }
  return {};
}

Status SchemaShapes::combine_if(Index i, Shape& out) {
  const Json& s = document_.at(i);
  const auto condition = s.find("if");
  if (condition == s.end() || (!s.contains("then") && !s.contains("else"))) return {};
  SWY_LET(const Shape holds, schema_shape(document_.index(*condition, i)));
  auto fails = without(out, holds);
  if (!fails.ok()) return unsupported(i, "if", fails.status().message());
  Shape united;
  for (const auto& [key, when] : {std::pair{"then", &holds}, {"else", &*fails}}) {
    Shape then = anything();
    if (s.contains(key)) {
      SWY_LET(then, schema_shape(document_.index(s[key], i)));
    }
    SWY_LET(const Shape branch, both(*when, then));
    unite(united, branch);
  }
  SWY_LET(out, both(out, united));
  return {};
}

// If a member is there, others must be, or a schema holds.
Status SchemaShapes::combine_dependencies(Index i, Shape& out) {
  const Json& s = document_.at(i);
  for (const char* key : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    const auto found = s.find(key);
    if (found == s.end()) continue;
    if (!found->is_object()) return wrong(i, key, "it is no object");
    for (const auto& [name, then] : found->items()) {
      Shape united = anything();
      united.objects[0].members[name] = {kNoValue, false};
      Shape with;
      with.objects.emplace_back().members[name].required = true;
      if (then.is_array()) {
        for (const Json& other : then) {
          if (!other.is_string()) return wrong(i, key, "it has a name that is no text");
          with.objects[0].members[other.get<std::string>()].required = true;
        }
      } else {
        SWY_LET(const Shape shape, schema_shape(document_.index(then, i)));
        SWY_LET(with, both(with, shape));
      }
      unite(united, with);
      SWY_LET(out, both(out, united));
    }
  }
  return {};
}

// Exactly one of the schemas: each without the others.
Result<Shape> SchemaShapes::one_of(Index i) {
  std::vector<Shape> branches;
  for (const Json& one : document_.at(i)["oneOf"]) {
    SWY_LET(Shape shape, schema_shape(document_.index(one, i)));
    branches.push_back(std::move(shape));
  }
  Shape once;
  for (size_t n = 0; n < branches.size(); ++n) {
    Shape left = branches[n];
    for (size_t m = 0; m < branches.size(); ++m) {
      if (m == n) continue;
      SWY_TRY(x_.status());
      auto less = without(left, branches[m]);
      if (!less.ok()) {
        return unsupported(i, "oneOf", "it cannot be told whether two of its schemas hold at once; anyOf may do");
      }
      left = *std::move(less);
    }
    unite(once, left);
    if (once.objects.size() > kMaxAlternatives || once.arrays.size() > kMaxAlternatives) {
      return unsupported(i, "oneOf", "it has too many alternatives");
    }
    SWY_TRY(x_.status());
  }
  return once;
}

}  // namespace switchyard::constrain
