// SPDX-License-Identifier: Apache-2.0
// JsonGrammar: adds the values that schemas allow to a grammar.
#pragma once

#include <functional>
#include <unordered_map>
#include <vector>

#include "core/constrain/grammar.h"
#include "core/constrain/schema_shapes.h"

namespace switchyard::constrain {

class JsonGrammar {
 public:
  // Both outlive it.
  JsonGrammar(Grammar& grammar, SchemaDocument& document);

  // A JSON text of such a value, without space around it. Errors: as SchemaShapes::shape.
  Result<NodeId> schema(SchemaDocument::Index i) { return value(shapes_.of_schema(i)); }
  // Builds what the nodes so far refer to. To be called once all are made.
  Status finish();

  // Its values are whole texts, so that those who follow one can say which strings a list has (Automaton::saw_item).
  void whole_texts() { whole_texts_ = true; }

  SchemaShapes& shapes() { return shapes_; }
  Expr space() const { return space_; }
  Result<NodeId> value(SchemaSet s);
  Expr quoted(Expr decoded);
  // Its values but lists and objects.
  Expr scalars(const Shape& shape);
  // How an object's members are written: the text before a value, from the language of its name; and the value.
  struct Style {
    std::function<Expr(Expr)> key;
    std::function<Result<NodeId>(SchemaSet)> value;
  };
  Status members(const ObjectShape& shape, ObjectSpec& spec, const Style& style);

 private:
  Result<NodeId> body(const Shape& shape);
  // A list or an object with these brackets, commas and space, and as many items as the shape may have.
  template <class Spec, class Shape>
  Spec within(const char* open, const char* close, const Shape& shape);
  Result<NodeId> list(const ArrayShape& shape);
  Result<NodeId> unique_list(const ArrayShape& shape);
  NodeId unique_texts(const ArrayShape& shape, Expr texts);
  Result<NodeId> object(const ObjectShape& shape);

  Grammar& g_;
  Expressions& x_;
  SchemaShapes shapes_;
  Expr space_ = kEpsilon;
  bool whole_texts_ = false;
  std::unordered_map<SchemaSet, RuleId> values_;
  std::vector<SchemaSet> open_;  // rules without a body
};

}  // namespace switchyard::constrain
