// SPDX-License-Identifier: Apache-2.0
// The token ids that a model's multi-token prediction layer guesses from: reading the whole head for each guess would
// cost more than the rest of the layer.
#pragma once

#include <string>
#include <string_view>

#include "core/base/os.h"
#include "core/program/id_ranges.h"

namespace switchyard {

// Ids are given out in the order of merges, the frequent ones first: so many of them are the rule.
inline constexpr uint32_t kShortlistTokens = 98304;

// `wanted`: "auto", the rule where the vocabulary is larger by a half; "off", all ids, which is an empty result; a
// number, so many ids from 0 on; or the path of a file of ids. But for the file, the added tokens of the tokenizer come
// to these. Errors: usage, for anything else; those of reading; invalid_data, for a file with something else than ids.
Result<IdRanges> make_shortlist(Os& os, const std::string& wanted, std::string_view tokenizer_json, uint32_t vocab);

}  // namespace switchyard
