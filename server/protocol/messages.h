// SPDX-License-Identifier: Apache-2.0
// Messages as clients send them, in the form that chat templates expect.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "server/protocol/api_error.h"

namespace switchyard::server {

// What clients send differs from what templates take: several system and developer messages become one at the
// beginning; an array of text parts becomes one string; the arguments of a tool call, JSON in a string, become an
// object; `reasoning` becomes `reasoning_content`. Refuses unknown roles and contents that are no text.
nlohmann::ordered_json normalised(const nlohmann::ordered_json& messages, Refusal& refusal);

// The text of a content: a string, or an array of parts with text, joined. `field` names it in a refusal.
std::string content_text(const nlohmann::ordered_json& content, const std::string& field, Refusal& refusal);

// The arguments of a call: an object as it is; of a string, the object that it is the JSON of. A model's text that is
// cut off or is no object is kept as {"arguments": text}, so that a conversation with it can go on.
nlohmann::ordered_json arguments_object(const nlohmann::ordered_json& arguments);

// Every string of a value, keys too, replaced by `of` it.
nlohmann::ordered_json with_strings(const nlohmann::ordered_json& value,
                                    const std::function<std::string(std::string_view)>& of);

}  // namespace switchyard::server
