// SPDX-License-Identifier: Apache-2.0
// The values of JSON Schema's `format` that are supported, as expressions over the decoded text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/constrain/expressions.h"

namespace switchyard::constrain {

// None for a format that is not supported.
std::optional<Expr> format_expression(Expressions& expressions, std::string_view format);
std::string supported_formats();  // for messages

}  // namespace switchyard::constrain
