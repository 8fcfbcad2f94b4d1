// SPDX-License-Identifier: Apache-2.0
// What a kernel says by name: the operation that it serves, and the encodings that it reads.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/program/op_names.h"
#include "switchyard/plugin.h"

namespace switchyard {

// The name of the operation with a name that the kernel serves; "": it serves one of ops.h, or its name is none.
inline std::string_view named_op_of(const swy_kernel& k) {
  const bool named = k.op == SWY_OP_NAMED && SWY_HAS(swy_kernel, &k, op_name) && swy_is_name(k.op_name);
  return named ? std::string_view(k.op_name) : std::string_view();
}

// "linear", "acme.gelu/1".
inline std::string op_kind(const swy_kernel& k) {
  const std::string_view name = named_op_of(k);
  return name.empty() ? op_name(k.op) : std::string(name);
}

// The encodings that a kernel names.
inline std::vector<std::string_view> encodings_of(const swy_kernel& k) {
  std::vector<std::string_view> names;
  if (!SWY_HAS(swy_kernel, &k, encodings) || k.encodings == nullptr) return names;
  for (const char* const* name = k.encodings; *name != nullptr; ++name) names.emplace_back(*name);
  return names;
}

}  // namespace switchyard
