// SPDX-License-Identifier: Apache-2.0
// Shape expressions of the op table (switchyard/op_table.h), and the numbers that their names stand for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "switchyard/op_table.h"

namespace switchyard {

// The fields of an operation's attributes, and the free names that were bound so far.
class ShapeNames {
 public:
  // `attrs`: the attribute struct of this entry, or longer; it must outlive this object.
  ShapeNames(const swy_op_spec& spec, std::span<const std::byte> attrs) : spec_(spec), attrs_(attrs) {}

  // `name` may end in "[i]", which stands for the repetition.
  std::optional<uint64_t> find(std::string_view name, uint32_t repetition) const;
  void bind(std::string_view name, uint32_t repetition, uint64_t value);

 private:
  struct Bound {
    std::string_view name;
    uint32_t repetition;
    uint64_t value;
  };
  const swy_op_spec& spec_;
  std::span<const std::byte> attrs_;
  std::vector<Bound> bound_;
};

// The value of an expression. Nothing where it is malformed, has an unbound name, or leaves the range of uint64_t.
std::optional<uint64_t> evaluate(std::string_view expression, const ShapeNames& names, uint32_t repetition = 0);

// The name that a dimension consists of; empty if it is more than a name.
std::string_view whole_name(std::string_view dimension);

// "experts, 2*width, hidden" in three parts without the spaces around them.
std::vector<std::string_view> dimensions_of(std::string_view shape);

}  // namespace switchyard
