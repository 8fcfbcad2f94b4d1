// SPDX-License-Identifier: Apache-2.0
// What a JSON Schema allows, by the type of the value. Keywords that act on the same value (`allOf`, `anyOf`, `not`,
// `$ref`, ...) become unions and intersections of shapes; schemas of members and items are only named in them, so that
// a recursive schema has finitely many shapes.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/constrain/decimals.h"
#include "core/constrain/expressions.h"
#include "core/constrain/schema_document.h"

namespace switchyard::constrain {

// Schemas that a value must satisfy all at once, or (lowest bit) must not. By number; sets are sorted.
using SchemaSet = uint32_t;
constexpr SchemaSet kAnyValue = 0;
constexpr SchemaSet kNoValue = 1;

struct ArrayShape {
  std::vector<SchemaSet> first = {};
  SchemaSet rest = kAnyValue;
  uint32_t min = 0, max = kUnbounded;
  bool unique = false;
  SchemaSet item(size_t i) const { return i < first.size() ? first[i] : rest; }
};

struct ObjectShape {
  struct Member {
    SchemaSet value = kAnyValue;
    bool required = false;
  };
  std::map<std::string, Member> members = {};
  // Names that are not in `members`, by languages that have no name in common; and all others.
  std::vector<std::pair<Expr, SchemaSet>> named = {};
  SchemaSet rest = kAnyValue;
  uint32_t min = 0, max = kUnbounded;
};

struct Shape {
  bool null = false, yes = false, no = false;
  Expr number = kNothing;  // without an exponent
  bool exponent = false;   // any number, and an exponent may be written
  Expr string = kNothing;  // decoded
  std::vector<ArrayShape> arrays = {};
  std::vector<ObjectShape> objects = {};  // alternatives, which may overlap
};

class SchemaShapes {
 public:
  SchemaShapes(SchemaDocument& document, Expressions& expressions)
      : document_(document), x_(expressions), decimals_(expressions) {
    (void)set({});
    (void)set({kNever});
  }

  SchemaSet of_schema(SchemaDocument::Index i) { return set({i * 2}); }
  // Errors: usage, for what is no schema; unsupported, naming the keyword and its place.
  Result<const Shape*> shape(SchemaSet s);
  Decimals& decimals() { return decimals_; }

 private:
  static constexpr uint32_t kNever = UINT32_MAX;
  using Json = nlohmann::json;
  using Index = SchemaDocument::Index;

  SchemaSet set(std::vector<uint32_t> atoms);
  SchemaSet all_of(SchemaSet a, SchemaSet b);
  Shape anything();
  Result<Shape> schema_shape(Index i);
  Result<Shape> object_schema(Index i);
  Status check_keywords(Index i) const;
  Status combine(Index i, Shape& out);
  Status combine_if(Index i, Shape& out);
  Status combine_dependencies(Index i, Shape& out);
  Result<Shape> one_of(Index i);
  Status wrong(Index i, std::string_view keyword, std::string_view what) const;
  Status unsupported(Index i, std::string_view keyword, std::string_view why) const;
  Result<uint32_t> count(Index i, const char* keyword, uint32_t otherwise) const;

  // Each narrows what `out` has of one type.
  Status types(Index i, Shape& out);
  Status values(Index i, Shape& out);
  Status numbers(Index i, Shape& out);
  Status strings(Index i, Shape& out);
  Status arrays(Index i, Shape& out);
  Status objects(Index i, Shape& out);
  Status members(Index i, ObjectShape& object);
  Status names(Index i, ObjectShape& object);
  Status tuple_items(Index i, ArrayShape& array);
  Result<Shape> literal(const Json& value);
  void restrict(Shape& out, std::string_view type);

  Result<Shape> both(const Shape& a, const Shape& b);
  ArrayShape both(const ArrayShape& a, const ArrayShape& b);
  ObjectShape both(const ObjectShape& a, const ObjectShape& b);
  void unite(Shape& a, const Shape& b);
  Result<Shape> without(const Shape& a, const Shape& b);
  template <class One>
  Result<std::vector<One>> without(std::vector<One> pieces, const std::vector<One>& shapes);
  Result<std::vector<ArrayShape>> without(const ArrayShape& a, const ArrayShape& b);
  Result<std::vector<ObjectShape>> without(const ObjectShape& a, const ObjectShape& b);
  std::vector<SchemaSet> breaking(SchemaSet in, SchemaSet out);
  bool others_agree(const ObjectShape& a, const ObjectShape& b);
  SchemaSet member(const ObjectShape& object, const std::string& name);
  bool impossible(const ObjectShape& object);
  bool impossible(const ArrayShape& array);
  bool impossible(SchemaSet s);
  bool apart(const ObjectShape& a, const ObjectShape& b);
  bool apart(const ArrayShape& a, const ArrayShape& b);

  SchemaDocument& document_;
  Expressions& x_;
  Decimals decimals_;
  std::vector<std::vector<uint32_t>> sets_;
  std::map<std::vector<uint32_t>, SchemaSet> set_index_;
  std::unordered_map<SchemaSet, Shape> shapes_;
  std::unordered_map<Index, std::optional<Shape>> schema_shapes_;  // none: being made
  std::unordered_map<SchemaSet, bool> impossible_;
  unsigned depth_ = 0;
  size_t work_ = 0;  // shapes made
};

}  // namespace switchyard::constrain
