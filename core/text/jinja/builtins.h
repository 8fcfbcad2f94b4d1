// SPDX-License-Identifier: Apache-2.0
// The names that templates may use without defining them. Each table is a constant; a lookup returns null for a name
// that is not in it.
#pragma once

#include <string_view>

#include "core/text/jinja/context.h"

namespace switchyard::jinja {

const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
const Builtin* find_function(std::string_view name);
// A method of values of this kind.
const Builtin* find_method(Kind kind, std::string_view name);
// Whether values of any kind have this method.
bool is_method(std::string_view name);
// Whether Python's method of this name would change its list or dict, which the sandbox of chat templates forbids.
bool changes_its_receiver(Kind kind, std::string_view name);

namespace detail {  // the tables' halves, for find_filter and find_method
const Builtin* find_text_filter(std::string_view name);
const Builtin* find_list_filter(std::string_view name);
const Builtin* find_text_method(std::string_view name);

template <size_t N>
const Builtin* find_in(const Builtin (&table)[N], std::string_view name) {
  for (const Builtin& entry : table) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}
}  // namespace detail

// Work that filters and methods share. `text` arguments are Python's str of the filtered value.
Value replace_text(Context& cx, std::string_view text, std::string_view from, std::string_view to, int64_t count);
Value join_text(Context& cx, const List& items, std::string_view separator);
// Pairs (key, value) of a dict.
Value dict_items(Context& cx, const Dict& dict, List::Shape shape);

}  // namespace switchyard::jinja
