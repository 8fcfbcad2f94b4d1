// SPDX-License-Identifier: Apache-2.0
// Names of operations and element types, from the op table.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "switchyard/op_table.h"

namespace switchyard {

// Every operation that this runtime knows, in each revision.
inline std::span<const swy_op_spec> known_ops() { return swy_op_table; }

// The latest revision of an operation by its name; NULL when this runtime does not know it.
inline const swy_op_spec* find_op(std::string_view name) {
  for (const swy_op_spec& op : known_ops()) {
    if (op.name == name) return swy_find_op(op.id, 0);
  }
  return nullptr;
}

// "attention"; "#99" for an id that is not known.
inline std::string op_name(swy_op_id id) {
  const swy_op_spec* op = swy_find_op(id, 0);
  return op != nullptr ? std::string(op->name) : fmt::format("#{}", id);
}

// "f32", "bf16", "i4a", "encoded"; "type 99" for a number that is not known.
inline std::string dtype_name(swy_dtype dtype) {
  const char* name = swy_dtype_name(dtype);
  return name != nullptr ? std::string(name) : fmt::format("type {}", dtype);
}

}  // namespace switchyard
