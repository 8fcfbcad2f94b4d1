// SPDX-License-Identifier: Apache-2.0
// JSON Schema as a grammar: a node for each shape, and a rule for each that has lists or objects in it.
#include "core/constrain/json_schema.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/json.h"

namespace switchyard::constrain {

JsonGrammar::JsonGrammar(Grammar& grammar, SchemaDocument& document)
    : g_(grammar), x_(grammar.expressions), shapes_(document, grammar.expressions) {
  ByteSet spaces;
  for (const unsigned char c : {' ', '\t', '\r', '\n'}) spaces.add(c);
  space_ = x_.repeat(x_.bytes(spaces), 0, kUnbounded);
}

Expr JsonGrammar::quoted(Expr decoded) {
  return x_.concat({x_.literal("\""), x_.json_inside(decoded), x_.literal("\"")});
}

Expr JsonGrammar::scalars(const Shape& shape) {
  std::vector<Expr> ways;
  if (shape.null) ways.push_back(x_.literal("null"));
  if (shape.yes) ways.push_back(x_.literal("true"));
  if (shape.no) ways.push_back(x_.literal("false"));
  ways.push_back(shape.exponent ? shapes_.decimals().all_with_exponents() : shape.number);
  ways.push_back(quoted(shape.string));
  return x_.either(std::move(ways));
}

Result<NodeId> JsonGrammar::value(SchemaSet s) {
  if (const auto known = values_.find(s); known != values_.end()) return g_.use(known->second);
  SWY_LET(const Shape* shape, shapes_.shape(s));
  if (shape->arrays.empty() && shape->objects.empty()) return g_.leaf(scalars(*shape));
  const RuleId rule = g_.add_rule("value");
  values_[s] = rule;
  open_.push_back(s);
  return g_.use(rule);
}

Result<NodeId> JsonGrammar::body(const Shape& shape) {
  std::vector<NodeId> ways = {g_.leaf(scalars(shape))};
  for (const ArrayShape& array : shape.arrays) {
    SWY_LET(const NodeId node, list(array));
    ways.push_back(node);
  }
  for (const ObjectShape& object : shape.objects) {
    SWY_LET(const NodeId node, this->object(object));
    ways.push_back(node);
  }
  return g_.either(ways);
}

template <class Spec, class Shape>
Spec JsonGrammar::within(const char* open, const char* close, const Shape& shape) {
  Spec spec;
  spec.open = x_.concat(x_.literal(open), space_);
  spec.separator = x_.concat({space_, x_.literal(","), space_});
  spec.close = x_.concat(space_, x_.literal(close));
  spec.min = shape.min;
  spec.max = shape.max;
  return spec;
}

// Items that must differ, of finitely many values: they are members that have no value.
Result<NodeId> JsonGrammar::unique_list(const ArrayShape& shape) {
  constexpr size_t kMostValues = 4096;
  const auto refused = error(Code::unsupported,
                             "'uniqueItems' is not supported for these items: they must be {}at most {} values that "
                             "are neither numbers, lists nor objects",
                             whole_texts_ ? "strings, or of " : "of ", kMostValues);
  if (!shape.first.empty()) return refused;
  SWY_LET(const Shape* item, shapes_.shape(shape.rest));
  if (!item->arrays.empty() || !item->objects.empty() || item->number != kNothing) return refused;
  const auto texts = x_.texts(item->string, kMostValues);
  if (!texts && whole_texts_ && !item->null && !item->yes && !item->no) return unique_texts(shape, item->string);
  if (!texts) return refused;
  auto spec = within<ObjectSpec>("[", "]", shape);
  const NodeId nothing = g_.leaf(kEpsilon);
  const auto add = [&](Expr text) { spec.members.push_back({text, nothing, false, true}); };
  if (item->null) add(x_.literal("null"));
  if (item->yes) add(x_.literal("true"));
  if (item->no) add(x_.literal("false"));
  for (const std::string& text : *texts) add(quoted(x_.literal(text)));
  return g_.object(std::move(spec));
}

NodeId JsonGrammar::unique_texts(const ArrayShape& shape, Expr texts) {
  auto spec = within<ListSpec>("[", "]", shape);
  spec.rest = g_.leaf(quoted(texts));
  spec.unique = texts;
  return g_.list(std::move(spec));
}

Result<NodeId> JsonGrammar::list(const ArrayShape& shape) {
  if (shape.unique && shape.max > 1) return unique_list(shape);
  auto spec = within<ListSpec>("[", "]", shape);
  for (size_t i = 0; i < shape.first.size() && i < shape.max; ++i) {
    SWY_LET(const NodeId node, value(shape.first[i]));
    spec.first.push_back(node);
  }
  if (shape.first.size() < shape.max) {
    SWY_LET(spec.rest, value(shape.rest));
  }
  return g_.list(std::move(spec));
}

Result<NodeId> JsonGrammar::object(const ObjectShape& shape) {
  auto spec = within<ObjectSpec>("{", "}", shape);
  const Expr colon = x_.concat({space_, x_.literal(":"), space_});
  const Style style{[&](Expr name) { return x_.concat(quoted(name), colon); },
                    [this](SchemaSet s) { return value(s); }};
  SWY_TRY(members(shape, spec, style));
  return g_.object(std::move(spec));
}

Status JsonGrammar::members(const ObjectShape& shape, ObjectSpec& spec, const Style& style) {
  spec.min = shape.min;
  spec.max = shape.max;
  uint32_t required = 0;
  std::vector<std::string_view> names;
  for (const auto& [name, m] : shape.members) {
    names.push_back(name);
    if (m.value == kNoValue && !m.required) continue;
    SWY_LET(const NodeId node, style.value(m.value));
    spec.members.push_back({style.key(x_.literal(name)), node, m.required, true});
    required += m.required ? 1 : 0;
  }
  const Expr known = x_.one_of(std::move(names));
  std::vector<Expr> parts;
  bool many = false;
  const auto add = [&](Expr others, SchemaSet v) -> Status {
    if (v == kNoValue || !x_.alive(others)) return {};
    SWY_LET(const NodeId node, style.value(v));
    spec.members.push_back({style.key(others), node, false, false});
    many = true;
    return {};
  };
  for (const auto& [part, v] : shape.named) {
    parts.push_back(part);
    SWY_TRY(add(x_.minus(part, known), v));
  }
  SWY_TRY(
      add(x_.both({x_.characters(), x_.complement(x_.either(std::move(parts))), x_.complement(known)}), shape.rest));
  // A name that comes twice counts as one member.
  if (many && shape.min > required + 1) {
    return error(Code::unsupported,
                 "'minProperties' {} is not supported beside names that are not in 'properties': equal names would "
                 "have to be told apart",
                 shape.min);
  }
  return {};
}

Status JsonGrammar::finish() {
  while (!open_.empty()) {
    const SchemaSet s = open_.back();
    open_.pop_back();
    SWY_LET(const Shape* shape, shapes_.shape(s));
    const Shape copy = *shape;  // making others moves it
    SWY_LET(const NodeId node, body(copy));
    g_.set_rule(values_[s], node);
    SWY_TRY(x_.status());
  }
  return {};
}

Result<NodeId> json_schema(Grammar& grammar, std::string_view text) {
  SWY_LET(SchemaDocument document, SchemaDocument::parse(text));
  JsonGrammar json(grammar, document);
  json.whole_texts();
  SWY_LET(const NodeId root, json.schema(document.root()));
  SWY_TRY(json.finish());
  return root;
}

}  // namespace switchyard::constrain
