// SPDX-License-Identifier: Apache-2.0
// Token ids to measure with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/text/tokenizer.h"

namespace switchyard::cli {

// `n` pseudo-random ids below `vocab`, always the same.
std::vector<int32_t> random_tokens(uint32_t n, uint32_t vocab);

// `n` tokens of `file`, or of the text that is installed with the demo model; at its end it begins again. Random tokens
// if there is no tokenizer (NULL). Errors: those of the file.
Result<std::vector<int32_t>> sample_text(const Tokenizer* tokenizer, uint32_t vocab, uint32_t n,
                                         const std::string& file = "");

}  // namespace switchyard::cli
