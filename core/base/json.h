// SPDX-License-Identifier: Apache-2.0
// The one reader of JSON. Texts are untrusted: whatever they hold, reading them ends soon and takes memory in
// proportion to their size, and the value can be walked, copied, printed and destroyed by functions that recurse.
//
// This header has only names of nlohmann's types; include <nlohmann/json.hpp> where values are used.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "core/base/status.h"

namespace switchyard {

constexpr size_t kMaxJsonDepth = 64;

// The largest tokenizers take a third of either. A value takes at most about 120 bytes, besides its text.
struct JsonLimits {
  size_t bytes = size_t{64} << 20;  // of the text
  size_t values = size_t{4} << 20;  // lists, objects, texts, numbers and so on; a key counts with its value
};

// `name` is what the message calls the text. Of equal keys in an object the last counts. Errors: invalid_data, for
// what is not JSON, nests deeper than kMaxJsonDepth or exceeds `limits`, each with the offset; out_of_host_memory.
Result<nlohmann::json> read_json(std::string_view text, std::string_view name, const JsonLimits& limits = {});

// The same, with the keys of objects in the order of the text: for what a chat template prints.
Result<nlohmann::ordered_json> read_ordered_json(std::string_view text, std::string_view name,
                                                 const JsonLimits& limits = {});

// A value in a message: as JSON if that is short, else what kind of value it is. Nothing in it affects a terminal.
std::string brief(const nlohmann::json& value);

}  // namespace switchyard
