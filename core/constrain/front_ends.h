// SPDX-License-Identifier: Apache-2.0
// What turns the text of a constraint into a grammar. Each adds nodes, and returns the one that is the whole text.
// Errors: usage or invalid_data, with what is wrong and where.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "core/base/status.h"
#include "core/constrain/grammar.h"

namespace switchyard::constrain {

Result<NodeId> json_schema(Grammar& grammar, std::string_view text);
Result<NodeId> gbnf(Grammar& grammar, std::string_view text);
Result<NodeId> lark(Grammar& grammar, std::string_view text);
Result<NodeId> tool_calls(Grammar& grammar, std::string_view text);

}  // namespace switchyard::constrain
