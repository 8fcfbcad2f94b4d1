// SPDX-License-Identifier: Apache-2.0
// The keywords that narrow one type of value.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "core/base/printable.h"
#include "core/constrain/formats.h"
#include "core/constrain/regex_syntax.h"
#include "core/constrain/schema_shapes.h"

namespace switchyard::constrain {

Result<uint32_t> SchemaShapes::count(Index i, const char* keyword, uint32_t otherwise) const {
  const Json& s = document_.at(i);
  const auto found = s.find(keyword);
  if (found == s.end()) return otherwise;
  const double value = found->is_number() ? found->get<double>() : -1;
  if (value < 0 || value != std::floor(value)) return wrong(i, keyword, "it is no whole number from 0 on");
  if (value >= kUnbounded) {
    if (std::string_view(keyword).starts_with("max")) return kUnbounded;
    return unsupported(i, keyword, "it is above 4294967294");
  }
  return static_cast<uint32_t>(value);
}

void SchemaShapes::restrict(Shape& out, std::string_view type) {
  const Shape all = anything();
  if (type == "null") out.null = true;
  if (type == "boolean") out.yes = out.no = true;
  if (type == "number") {
    out.number = all.number;
    out.exponent = true;
  }
  if (type == "integer") out.number = x_.either(out.number, decimals_.integers());
  if (type == "string") out.string = all.string;
  if (type == "array") out.arrays = all.arrays;
  if (type == "object") out.objects = all.objects;
}

Status SchemaShapes::types(Index i, Shape& out) {
  const Json& s = document_.at(i);
  const auto found = s.find("type");
  if (found == s.end()) return {};
  const Json list = found->is_array() ? *found : Json::array({*found});
  Shape allowed;
  for (const Json& one : list) {
    static constexpr std::string_view kTypes[] = {"null", "boolean", "number", "integer", "string", "array", "object"};
    const std::string name = one.is_string() ? one.get<std::string>() : "";
    if (std::find(std::begin(kTypes), std::end(kTypes), name) == std::end(kTypes)) {
      return wrong(i, "type",
                   brief(one) + " is no type; types are null, boolean, number, integer, string, array, object");
    }
    restrict(allowed, name);
  }
  out = std::move(allowed);
  return {};
}

Result<Shape> SchemaShapes::literal(const Json& value) {
  Shape s;
  if (value.is_null()) s.null = true;
  if (value.is_boolean()) (value.get<bool>() ? s.yes : s.no) = true;
  if (value.is_number()) s.number = decimals_.equal(decimal(value));
  if (value.is_string()) s.string = x_.literal(value.get_ref<const std::string&>());
  if (value.is_array()) {
    ArrayShape array;
    for (const Json& item : value) array.first.push_back(of_schema(document_.add({{"const", item}})));
    array.min = array.max = static_cast<uint32_t>(value.size());
    s.arrays.push_back(std::move(array));
  }
  if (value.is_object()) {
    ObjectShape object;
    for (const auto& [name, member] : value.items()) {
      object.members[name] = {of_schema(document_.add({{"const", member}})), true};
    }
    object.rest = kNoValue;
    s.objects.push_back(std::move(object));
  }
  return s;
}

Status SchemaShapes::values(Index i, Shape& out) {
  const Json& s = document_.at(i);
  if (const auto found = s.find("const"); found != s.end()) {
    SWY_LET(const Shape one, literal(*found));
    SWY_LET(out, both(out, one));
  }
  const auto list = s.find("enum");
  if (list == s.end()) return {};
  if (!list->is_array()) return wrong(i, "enum", "it is no list of values");
  Shape all;
  std::vector<std::string_view> texts;
  std::vector<Expr> numbers;
  for (const Json& value : *list) {
    if (value.is_string()) {
      texts.push_back(value.get_ref<const std::string&>());
      continue;
    }
    SWY_LET(const Shape one, literal(value));
    if (value.is_number()) {
      numbers.push_back(one.number);
    } else {
      unite(all, one);
    }
  }
  all.string = x_.one_of(std::move(texts));
  all.number = x_.either(std::move(numbers));
  SWY_LET(out, both(out, all));
  return {};
}

Status SchemaShapes::numbers(Index i, Shape& out) {
  const Json& s = document_.at(i);
  Expr allowed = decimals_.all();
  bool any = true;
  for (const char* key : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}) {
    const auto found = s.find(key);
    if (found == s.end()) continue;
    const std::string_view name = key;
    if (found->is_boolean() && name.starts_with("exclusive")) continue;  // draft 4: it belongs to the limit
    if (!found->is_number()) return wrong(i, key, brief(*found) + " is no number");
    const auto exclusive = s.find(name == "minimum" ? "exclusiveMinimum" : "exclusiveMaximum");
    const bool inclusive =
        !name.starts_with("exclusive") && !(exclusive != s.end() && exclusive->is_boolean() && exclusive->get<bool>());
    const Decimal limit = decimal(*found);
    any = false;
    if (name == "multipleOf") {
      auto multiples = decimals_.multiples(limit);
      if (!multiples.ok()) return wrong(i, key, multiples.status().message());
      allowed = x_.both(allowed, *multiples);
    } else if (name.ends_with("inimum")) {
      allowed = x_.both(allowed, decimals_.at_least(limit, inclusive));
    } else {
      allowed = x_.both(allowed, decimals_.at_most(limit, inclusive));
    }
  }
  if (any) return {};
  out.number = x_.both(out.number, allowed);
  out.exponent = false;
  return {};
}

Status SchemaShapes::strings(Index i, Shape& out) {
  const Json& s = document_.at(i);
  SWY_LET(const uint32_t min, count(i, "minLength", 0));
  SWY_LET(const uint32_t max, count(i, "maxLength", kUnbounded));
  if (min > 0 || max != kUnbounded) {
    out.string = x_.both(out.string == x_.characters() ? kAllBytes : out.string,
                         min <= max ? x_.repeat(x_.character(), min, max) : kNothing);
  }
  if (const auto pattern = s.find("pattern"); pattern != s.end()) {
    if (!pattern->is_string()) return wrong(i, "pattern", brief(*pattern) + " is no text");
    const auto parsed = parse_regex(x_, pattern->get_ref<const std::string&>(), {.search = true});
    if (!parsed.ok()) return unsupported(i, "pattern", parsed.status().message());
    out.string = x_.both(out.string, *parsed);
  }
  if (const auto format = s.find("format"); format != s.end()) {
    if (!format->is_string()) return wrong(i, "format", brief(*format) + " is no text");
    // Of numbers it names a size in bits, as OpenAPI has it.
    static constexpr std::string_view kOfNumbers[] = {"int32", "int64", "float", "double"};
    const auto& name = format->get_ref<const std::string&>();
    if (std::find(std::begin(kOfNumbers), std::end(kOfNumbers), name) == std::end(kOfNumbers)) {
      const auto known = format_expression(x_, name);
      if (!known) {
        return unsupported(i, "format", fmt::format("'{}' is none of {}", printable(name), supported_formats()));
      }
      out.string = x_.both(out.string, *known);
    }
  }
  return {};
}

Status SchemaShapes::tuple_items(Index i, ArrayShape& array) {
  const Json& s = document_.at(i);
  const auto items = s.find("items"), prefix = s.find("prefixItems"), more = s.find("additionalItems");
  const bool old = items != s.end() && items->is_array();  // before 2020-12
  const auto tuple = old ? items : prefix;
  if (tuple != s.end()) {
    if (!tuple->is_array()) return wrong(i, old ? "items" : "prefixItems", "it is no list of schemas");
    for (const Json& one : *tuple) array.first.push_back(of_schema(document_.index(one, i)));
  }
  const auto rest = old ? more : items;
  if (rest != s.end()) array.rest = of_schema(document_.index(*rest, i));
  if (const auto left = s.find("unevaluatedItems"); left != s.end() && rest == s.end()) {
    array.rest = of_schema(document_.index(*left, i));
  }
  return {};
}

Status SchemaShapes::arrays(Index i, Shape& out) {
  const Json& s = document_.at(i);
  ArrayShape array;
  SWY_TRY(tuple_items(i, array));
  SWY_LET(array.min, count(i, "minItems", 0));
  SWY_LET(array.max, count(i, "maxItems", kUnbounded));
  for (size_t n = 0; n < array.first.size(); ++n) {
    if (array.first[n] == kNoValue) array.max = std::min(array.max, static_cast<uint32_t>(n));
  }
  if (array.rest == kNoValue) array.max = std::min(array.max, static_cast<uint32_t>(array.first.size()));
  if (const auto unique = s.find("uniqueItems"); unique != s.end() && unique->is_boolean() && unique->get<bool>()) {
    array.unique = true;
  }
  for (ArrayShape& known : out.arrays) known = both(known, array);
  std::erase_if(out.arrays, [](const ArrayShape& a) { return a.min > a.max; });
  return {};
}

// Names that match a pattern, in parts that no two patterns share.
Status SchemaShapes::names(Index i, ObjectShape& object) {
  constexpr size_t kMaxParts = 64;
  const Json& s = document_.at(i);
  const auto patterns = s.find("patternProperties");
  if (patterns == s.end()) return {};
  if (!patterns->is_object()) return wrong(i, "patternProperties", "it is no object");
  std::vector<Expr> before;
  for (const auto& [pattern, schema] : patterns->items()) {
    const auto parsed = parse_regex(x_, pattern, {.search = true});
    if (!parsed.ok()) {
      return unsupported(i, "patternProperties",
                         fmt::format("'{}': {}", printable(pattern), parsed.status().message()));
    }
    const Expr names = x_.both(x_.characters(), *parsed), others = x_.complement(*parsed);
    const SchemaSet value = of_schema(document_.index(schema, i));
    for (auto& [name, m] : object.members) {
      if (x_.matches(names, name)) m.value = all_of(m.value, value);
    }
    std::vector<std::pair<Expr, SchemaSet>> parts;
    for (const auto& [known, v] : object.named) {
      parts.emplace_back(x_.both(known, names), all_of(v, value));
      parts.emplace_back(x_.both(known, others), v);
    }
    parts.emplace_back(x_.minus(names, x_.either(before)), value);
    std::erase_if(parts, [&](const auto& part) { return !x_.alive(part.first); });
    object.named = std::move(parts);
    before.push_back(names);
    if (object.named.size() > kMaxParts) return unsupported(i, "patternProperties", "its patterns overlap too often");
  }
  return {};
}

Status SchemaShapes::members(Index i, ObjectShape& object) {
  const Json& s = document_.at(i);
  if (const auto found = s.find("properties"); found != s.end()) {
    if (!found->is_object()) return wrong(i, "properties", "it is no object");
    for (const auto& [name, schema] : found->items()) {
      object.members[name].value = of_schema(document_.index(schema, i));
    }
  }
  SWY_TRY(names(i, object));
  for (const char* key : {"additionalProperties", "unevaluatedProperties"}) {
    const auto found = s.find(key);
    if (found == s.end()) continue;
    object.rest = of_schema(document_.index(*found, i));
    break;
  }
  const auto required = s.find("required");
  if (required == s.end() || required->is_boolean()) return {};  // a boolean is draft 3's, and the parent's
  if (!required->is_array()) return wrong(i, "required", "it is no list of names");
  for (const Json& name : *required) {
    if (!name.is_string()) return wrong(i, "required", brief(name) + " is no name");
    const auto& text = name.get_ref<const std::string&>();
    const SchemaSet value = member(object, text);
    object.members[text] = {value, true};
  }
  return {};
}

Status SchemaShapes::objects(Index i, Shape& out) {
  const Json& s = document_.at(i);
  ObjectShape object;
  SWY_TRY(members(i, object));
  SWY_LET(object.min, count(i, "minProperties", 0));
  SWY_LET(object.max, count(i, "maxProperties", kUnbounded));
  for (ObjectShape& known : out.objects) known = both(known, object);
  if (const auto names = s.find("propertyNames"); names != s.end()) {
    SWY_LET(const Shape shape, schema_shape(document_.index(*names, i)));
    ObjectShape allowed;
    const Expr refused = x_.minus(x_.characters(), shape.string);
    if (x_.alive(refused)) allowed.named.emplace_back(refused, kNoValue);
    for (ObjectShape& known : out.objects) known = both(known, allowed);
  }
  std::erase_if(out.objects, [](const ObjectShape& o) { return o.min > o.max; });
  return {};
}

}  // namespace switchyard::constrain
