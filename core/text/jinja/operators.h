// SPDX-License-Identifier: Apache-2.0
// Python's operators on values. Every one charges the work it does, and fails with a message for a type error.
#pragma once

#include <memory>
#include <string_view>

#include "core/text/jinja/context.h"

namespace switchyard::jinja {

bool equal(Context& cx, const Value& a, const Value& b);
// a < b.
bool less(Context& cx, const Value& a, const Value& b);
// a <= b, which for a NaN is not the same as !(b < a).
bool at_most(Context& cx, const Value& a, const Value& b);
// `item in container`.
bool contains(Context& cx, const Value& container, const Value& item);

Value add(Context& cx, const Value& a, const Value& b);
Value multiply(Context& cx, const Value& a, const Value& b);
// `-`, `/`, `//`, `%` and `**`, which numbers alone have; `op` is the operator as written.
Value arithmetic(std::string_view op, const Value& a, const Value& b);
Value negate(const Value& value);

// len(value).
int64_t length(const Value& value);
// The items of an iteration: a str's characters, a dict's keys, the rest of a generator.
std::shared_ptr<const List> iterate(Context& cx, const Value& value);

// value.name and value[index], in jinja2's order: attribute first, or item first. Missing ones are undefined; access to
// an undefined value fails.
Value attribute(Context& cx, const Value& value, std::string_view name);
Value item(Context& cx, const Value& value, const Value& index);
// value[start:stop:step]; none where a bound was left out.
Value slice(Context& cx, const Value& value, const Value& start, const Value& stop, const Value& step);
// The entry of `dict` under `key`, or null.
const Value* find(Context& cx, const Dict& dict, const Value& key);
const Value* find(Context& cx, const Dict& dict, std::string_view key);
// Sets `key` in `entries`, which are a dict being built; fails for a key that Python cannot hash.
void insert(Context& cx, std::vector<Value::Entry>& entries, Value key, Value value);

}  // namespace switchyard::jinja
