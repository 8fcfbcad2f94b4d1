// SPDX-License-Identifier: Apache-2.0
// How Python writes values: str(), repr() and json.dumps().
#pragma once

#include <optional>
#include <string>

#include "core/text/jinja/context.h"

namespace switchyard::jinja {

// str(value). Fails for functions and generators, whose text in Python is a memory address.
std::string to_text(Context& cx, const Value& value);
// Appends str(value) to `out`.
void append_text(Context& cx, const Value& value, std::string& out);
// repr(value).
std::string to_repr(Context& cx, const Value& value);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // the text of one level; none: everything on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
// json.dumps(value). Fails for what JSON has no form for (undefined, functions).
std::string to_json(Context& cx, const Value& value, const JsonStyle& style);

// repr(float): the shortest digits that read back as `value`.
std::string float_repr(double value);

}  // namespace switchyard::jinja
